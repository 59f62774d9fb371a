#include <sconce/log.h>
#include <sconce/module.h>
#include <sconce/status.h>
#include <sconce/version.h>

#include "tests/support/graphs.h"

#include "base/libtorch_version.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/version.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sconce {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::module_of;

MethodStatus status_of(const std::string& method) {
  for (const MethodStatus& each : status().methods) {
    if (each.method == method) {
      return each;
    }
  }
  return {};
}

// The class is the test's own, so that other tests of the process do not count.
Module make(const std::string& class_name) {
  torch::jit::Module module(class_name);
  module.register_parameter("w", at::ones({64, 64}), false);
  module.define("def forward(self, x):\n    return torch.relu(x.matmul(self.w.t())) + 1.0\n");
  return accelerate(std::move(module), Options().compile(CompileMode::kBlocking));
}

TEST(Status, SumsCountersOfAllModulesOfAClass) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::ones({3, 64});
  {
    const Module first = make("__torch__.models.Reloaded");
    for (int call = 0; call < 4; ++call) {
      first.forward({x});
    }
    const Counters counters = first.counters("forward");
    EXPECT_EQ(counters.invocations, 4);
    EXPECT_EQ(counters.compiles, 2);
    const Counters explained = first.method("forward").explain().counters;
    EXPECT_EQ(counters.cache_hits, explained.cache_hits);
    EXPECT_EQ(counters.refusals, explained.refusals);
    EXPECT_EQ(status_of("Reloaded.forward").counters.invocations, 4);
    EXPECT_EQ(status_of("Reloaded.forward").programs, 1);
    EXPECT_GT(status().arena_bytes, 0);
  }
  EXPECT_EQ(status_of("Reloaded.forward").programs, 0);
  const Module second = make("__torch__.models.Reloaded");
  second.forward({x});
  second.method("forward").clear_cache();
  second.forward({x});
  const MethodStatus sum = status_of("Reloaded.forward");
  EXPECT_EQ(sum.programs, 1);
  EXPECT_EQ(sum.counters.invocations, 6);
  EXPECT_EQ(second.counters("forward").invocations, 1);  // since its cache was cleared
}

TEST(Status, IsTextJsonAndPrometheus) {
  Status status;
  status.methods.push_back({"N\"et.forward", 2, Counters{.invocations = 17, .cache_hits = 16, .cache_misses = 1}});
  status.packed_bytes = 4096;
  EXPECT_THAT(to_prometheus(status), HasSubstr("# TYPE sconce_calls_total counter\n"
                                               "sconce_calls_total{method=\"N\\\"et.forward\"} 17\n"));
  EXPECT_THAT(to_prometheus(status), HasSubstr("\nsconce_packed_bytes 4096\n"));
  const auto json = nlohmann::json::parse(to_json(status));
  EXPECT_EQ(json["methods"][0]["invocations"], 17);
  EXPECT_EQ(json["packed_bytes"], 4096);
  EXPECT_THAT(to_text(status), HasSubstr("N\"et.forward"));
  EXPECT_THAT(to_text(Status()), HasSubstr("no method was loaded"));
}

TEST(Status, SaysWhatTheProcessCanDo) {
  const Capabilities has = capabilities();
  EXPECT_EQ(has.sconce, SCONCE_VERSION);
  EXPECT_EQ(has.libtorch, TORCH_VERSION);
  EXPECT_EQ(libtorch_version(), TORCH_VERSION);
  EXPECT_GE(has.usable_cores, 1);
  EXPECT_EQ(has.why_no_kernels, "");
  EXPECT_THAT(to_text(has), HasSubstr("kernels: available"));
  EXPECT_TRUE(nlohmann::json::parse(to_json(has))["why_no_kernels"].is_null());
}

TEST(Log, TellsTheProgramWhatWasCompiled) {
  struct Lines {
    std::mutex mutex;
    std::vector<std::string> lines;
  };
  const auto log = std::make_shared<Lines>();
  set_log_callback([log](LogLevel level, std::string_view line) {
    const std::lock_guard<std::mutex> lock(log->mutex);
    EXPECT_EQ(level, LogLevel::kInfo) << line;
    log->lines.emplace_back(line);
  });
  const auto reset = c10::make_scope_exit([] { set_log_callback(nullptr); });
  const at::NoGradGuard no_grad;
  make("__torch__.models.Logged").forward({at::ones({2, 64})});
  set_log_callback(nullptr);
  EXPECT_THAT(log->lines, Contains(HasSubstr("compiled Logged.forward in ")));
  const size_t count = log->lines.size();
  make("__torch__.models.Logged").forward({at::ones({2, 64})});
  EXPECT_EQ(log->lines.size(), count);
}

}  // namespace
}  // namespace sconce
