// The memory of modules. Weights of frozen modules leave it. Calls, and modules that are gone, leave little behind.
#include <sconce/module.h>

#include "base/compile_queue.h"
#include "base/paged_memory.h"
#include "plan/large_blocks.h"
#include "tests/support/bytes_in_use.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/support/model_files.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

void wait_for_pages() { CompileQueue::of_process().wait_until_idle(); }

Options frozen() { return Options().compile(CompileMode::kBlocking).frozen(true); }

// Two layers, saved.
class SavedModel {
 public:
  SavedModel() : path_(::testing::TempDir() + "weight_memory_test_" + std::to_string(getpid()) + ".pt") {
    at::manual_seed(1);
    torch::jit::Module script =
        module_of("def forward(self, x):\n    return torch.linear(torch.relu(torch.linear(x, self.a, self.c)), self.b)\n",
                  {{"a", at::randn({300, 200})}, {"b", at::randn({100, 300})}, {"c", at::randn({300})}});
    script.eval();
    script.save(path_);
  }
  ~SavedModel() { std::filesystem::remove(path_); }
  SavedModel(const SavedModel&) = delete;
  SavedModel& operator=(const SavedModel&) = delete;

  const std::string& path() const { return path_; }
  at::Tensor expected(const at::Tensor& x) const { return torch::jit::load(path_).forward({x}).toTensor(); }

 private:
  const std::string path_;
};

TEST(WeightMemory, PackedWeightsOfFrozenModulesLeaveMemory) {
  const at::NoGradGuard no_grad;
  const SavedModel saved;
  const auto weights = static_cast<size_t>(300 * 200 + 100 * 300) * sizeof(float);
  for (const bool pages : {true, false}) {
    const Module module = load(saved.path(), frozen().page_out_weights(pages));
    for (const int64_t batch : {7, 1, 20, 7}) {
      const at::Tensor x = at::randn({batch, 200});
      for (int call = 0; call < 6; ++call) {
        EXPECT_TRUE(agree(module.forward({x}), saved.expected(x), 1e-4)) << "batch of " << batch << ", call " << call;
        wait_for_pages();
      }
    }
    const WeightsExplanation explained = module.method("forward").explain().weights;
    EXPECT_GE(explained.packed_bytes, weights);
    EXPECT_LE(explained.packed_bytes, weights * 11 / 10);
    EXPECT_EQ(explained.in_files_bytes, pages ? weights : 0);
    const torch::jit::Module script = torch::jit::load(saved.path());
    module.script_module().save(saved.path());
    EXPECT_EQ(module.method("forward").explain().weights.in_files_bytes, 0U);
    EXPECT_TRUE(at::equal(module.script_module().attr("a").toTensor(), script.attr("a").toTensor()));
    EXPECT_TRUE(at::equal(module.script_module().attr("b").toTensor(), script.attr("b").toTensor()));
  }
}

// The folded weights, and the originals.
TEST(WeightMemory, FoldedWeightsLeaveMemory) {
  const at::NoGradGuard no_grad;
  const Module module = load(model_file("resnet18"), frozen());
  const torch::jit::Module script = torch::jit::load(model_file("resnet18"));
  size_t bytes = 0;
  for (const at::Tensor& each : script.parameters()) {
    bytes += each.nbytes();
  }
  for (const int64_t batch : {1, 2}) {
    const at::Tensor x = at::randn({batch, 3, 64, 64});
    const c10::IValue expected = torch::jit::Module(script).forward({x});
    for (int call = 0; call < 40; ++call) {  // large weights are packed after some
      ASSERT_TRUE(agree(module.forward({x}), expected, 1e-3)) << "batch of " << batch << ", call " << call;
    }
    wait_for_pages();
  }
  const WeightsExplanation explained = module.method("forward").explain().weights;
  EXPECT_GE(static_cast<double>(explained.packed_bytes), 0.9 * static_cast<double>(bytes));
  EXPECT_LE(static_cast<double>(explained.packed_bytes), 1.1 * static_cast<double>(bytes));
  EXPECT_GE(static_cast<double>(explained.in_files_bytes), 1.8 * static_cast<double>(bytes));
  const auto parameters = script.parameters();
  const std::vector<at::Tensor> kept = module.parameters();
  size_t i = 0;
  for (const at::Tensor& each : parameters) {
    EXPECT_TRUE(at::equal(kept[i++], each));
  }
}

TEST(WeightMemory, WhatWasWrittenBeforeFreezingStays) {
  const at::NoGradGuard no_grad;
  const SavedModel saved;
  const Module module = load(saved.path(), frozen());
  const at::Tensor a = module.script_module().attr("a").toTensor();
  a[100].fill_(0.5);
  const at::Tensor copy = a.clone();
  torch::jit::Module script = torch::jit::load(saved.path());
  script.attr("a").toTensor().copy_(a);
  const at::Tensor x = at::randn({3, 200});
  for (int call = 0; call < 8; ++call) {
    EXPECT_TRUE(agree(module.forward({x}), script.forward({x}), 1e-4));
    wait_for_pages();
    EXPECT_TRUE(at::equal(a, copy));
  }
  EXPECT_EQ(module.method("forward").explain().weights.in_files_bytes, 0U) << "what was handed out stays in memory";
}

// ---- what is left behind

// SCONCE_LOADS: how many times.
TEST(WeightMemory, LoadedAndDroppedModulesLeaveNothing) {
  const at::NoGradGuard no_grad;
  const SavedModel saved;
  const at::Tensor x = at::randn({3, 200});
  const uint64_t times = environment_number("SCONCE_LOADS", 150);
  double before = 0;
  for (uint64_t time = 0; time < times; ++time) {
    const Module module = load(saved.path(), time % 2 == 0 ? frozen() : Options());
    for (int call = 0; call < 5; ++call) {
      module.forward({x});
    }
    wait_for_pages();
    before = time == 50 ? bytes_in_use() : before;
  }
  EXPECT_LE(bytes_in_use() - before, 0.5 * kMiB);
}

// A second pass over all sizes needs no more memory than the first, apart from the blocks that the process keeps.
TEST(WeightMemory, ManySizesStayWithinBounds) {
  const at::NoGradGuard no_grad;
  const SavedModel saved;
  for (const bool is_frozen : {false, true}) {
    const Module module = load(saved.path(), Options().frozen(is_frozen));
    double after_first = 0;
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t batch = 1; batch <= 1000; ++batch) {
        module.forward({at::ones({batch, 200})});
      }
      module.method("forward").wait_for_compiles();
      EXPECT_LE(module.method("forward").explain().plans.size(), 3U);
      free_kept_blocks();
      after_first = pass == 0 ? bytes_in_use() : after_first;
    }
    EXPECT_LE(bytes_in_use() - after_first, kMiB);
  }
}

// Beside its weights, a module of a class takes about as much as the one before it.
TEST(WeightMemory, ModulesOfAClassShareTheirKernels) {
  const at::NoGradGuard no_grad;
  const SavedModel saved;
  const at::Tensor x = at::randn({3, 200});
  std::vector<Module> modules;
  double before = 0;
  for (int i = 0; i < 100; ++i) {
    modules.push_back(load(saved.path(), frozen()));
    for (int call = 0; call < 5; ++call) {
      modules.back().forward({x});
    }
    before = i == 20 ? bytes_in_use() : before;
  }
  wait_for_pages();
  EXPECT_LE((bytes_in_use() - before) / 79, 0.5 * kMiB);
}

}  // namespace
}  // namespace sconce::testing
