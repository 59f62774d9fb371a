// What one call of a frozen model executes, beside what LibTorch's freeze and optimize_for_inference leave of it.
#include "base/exception_message.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/support/model_files.h"
#include "tests/support/work_counter.h"

#include "tools/peers/script_peer.h"
#include "tools/sconce/commands/ops_library.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/deep_copy.h"

#include "load/load_module.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>

namespace sconce::testing {
namespace {

constexpr size_t kWorkCalls = 3;         // the last is counted: by then both have compiled what they run from then on
constexpr size_t kModelsByDefault = 40;  // the smallest
constexpr cli::CompareOptions kWorkTolerance{.rtol = 1e-3, .atol = 1e-4, .requires_grad = false};

// Where LibTorch executes less because it does something else, or knows more.
struct Allowance {
  size_t operators;  // that ours may execute more
  size_t bytes;      // that ours may move more
  const char* reason;
};
const std::map<std::string, Allowance> kAllowances = {
    {"view_outputs", {1, 0, "it hands out the argument itself instead of a detached one"}},
    {"ring_buffer", {1, 0, "it hands out an attribute instead of a detached one"}},
    {"attributes_state", {2, 0, "a `with` block may do anything: nothing is known of the detached tensors beside it"}},
    {"overlap_add", {2, 0, "it hands out and keeps arguments instead of detached ones"}},
    {"script_class_output", {1, 64, "it hands out the same zeros in every call"}},
    {"script_class", {3, 64, "it keeps the same zeros and ones in every call's objects"}},
    {"rng", {2, 0, "its torch.full has the default dtype of the freezing, not of the call"}},
    {"rng_eval", {2, 0, "its torch.full has the default dtype of the freezing, not of the call"}},
    {"sparse_layers", {1, 0, "it merges what reads a tensor and what reads the detached one"}},
    {"traced_shared_table", {1, 64, "it computes with the table while freezing, and misses what is written later"}},
    {"gru_packed", {0, 1024, "it makes one aten::cat of two nested ones"}},
};

struct LastCall {
  Work work;
  c10::IValue output;
};

LastCall last_call(const cli::ModelCases& cases, const std::function<c10::IValue(std::vector<c10::IValue>)>& run) {
  LastCall last;
  for (size_t call = 0; call < kWorkCalls; ++call) {
    const std::vector<c10::IValue> arguments = cli::deep_copy(cases.inputs[0]);
    at::manual_seed(cases.seed + call);
    last.work = count_work([&] { last.output = run(arguments); });
  }
  return last;
}

// What LibTorch makes of a model for inference, as far as it gets.
struct OfLibTorch {
  std::string how;  // empty: frozen and optimized
  LastCall last;
};

torch::jit::Module load_in_evaluation_mode(const std::string& name) {
  torch::jit::Module module = load_script_module(model_file(name), std::nullopt);
  module.eval();
  return module;
}

LastCall last_call_in_libtorch(peers::ScriptPeer& peer, const torch::jit::Module& module, const cli::ModelCases& cases) {
  peer.prepare(module, cases.method);
  const auto session = peer.session();
  return last_call(cases, [&](std::vector<c10::IValue> arguments) { return session->run(std::move(arguments)); });
}

std::optional<OfLibTorch> run_libtorch(const std::string& name, const cli::ModelCases& cases) {
  const std::vector<std::string> methods(cases.method == "forward" ? 0 : 1, cases.method);
  std::string reason;
  for (const bool optimize : {true, false}) {
    try {
      torch::jit::Module frozen = torch::jit::freeze(load_in_evaluation_mode(name), methods);
      if (optimize) {
        frozen = torch::jit::optimize_for_inference(frozen, methods);
        record_kernels_of_interpreter(*frozen.get_method(cases.method).graph());
      }
      peers::ScriptPeer peer({});
      return OfLibTorch{reason, last_call_in_libtorch(peer, frozen, cases)};
    } catch (const std::exception& failure) {
      reason = "not optimized: " + one_line_message(failure);
    }
  }
  std::cout << name << ": LibTorch freezes and runs nothing: " << reason << "\n";
  return std::nullopt;
}

std::string megabytes(size_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(3) << static_cast<double>(bytes) / 1e6;
  return out.str();
}

void print_row(const std::string& name, const Work& ours, const Work& theirs, const std::string& how) {
  std::cout << std::left << std::setw(34) << name << std::right << std::setw(7) << ours.operators() << std::setw(7)
            << theirs.operators() << std::setw(12) << megabytes(ours.bytes()) << std::setw(12) << megabytes(theirs.bytes())
            << "  " << how << "\n";
}

// "aten::relu 3 instead of 1, 0.012 MB instead of 0.004", for every operator that the sides differ in.
std::string differences(const Work& ours, const Work& theirs) {
  Work both = ours;
  both += theirs;
  const auto of = [](const Work& work, const std::string& name) {
    const auto found = work.by_operator.find(name);
    return found == work.by_operator.end() ? Work::OfOperator{} : found->second;
  };
  std::string text;
  for (const auto& entry : both.by_operator) {
    const Work::OfOperator a = of(ours, entry.first);
    const Work::OfOperator b = of(theirs, entry.first);
    if (a.executions != b.executions || a.bytes != b.bytes) {
      text += "  " + entry.first + " " + std::to_string(a.executions) + " instead of " + std::to_string(b.executions) +
              ", " + megabytes(a.bytes) + " MB instead of " + megabytes(b.bytes) + "\n";
    }
  }
  return text;
}

class ExecutedWorkTest : public ::testing::TestWithParam<std::string> {
 public:
  static void SetUpTestSuite() { cli::open_ops_library(plugin_file("torchvision_ops")); }
  static void TearDownTestSuite() { print_row("all", ours_, theirs_, ""); }

 protected:
  static inline Work ours_;
  static inline Work theirs_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExecutedWorkTest);

TEST_P(ExecutedWorkTest, IsNoMoreThanAfterOptimizeForInference) {
  const auto cases = std::get<cli::ModelCases>(cli::read_cases(cases_file(GetParam())));
  const at::NoGradGuard no_grad;
  Module module = load(model_file(GetParam()), Options().frozen(true).compile(CompileMode::kNever));
  module.eval();
  const LastCall ours = last_call(
      cases, [&](std::vector<c10::IValue> arguments) { return module.run_method(cases.method, std::move(arguments)); });
  const auto theirs = run_libtorch(GetParam(), cases);
  if (!theirs) {
    return;
  }
  const auto found = kAllowances.find(GetParam());
  const Allowance allowed = found == kAllowances.end() ? Allowance{0, 0, ""} : found->second;
  print_row(GetParam(), ours.work, theirs->last.work, theirs->how + allowed.reason);
  ours_ += ours.work;
  theirs_ += theirs->last.work;
  EXPECT_LE(ours.work.operators(), theirs->last.work.operators() + allowed.operators)
      << differences(ours.work, theirs->last.work);
  EXPECT_LE(ours.work.bytes(), theirs->last.work.bytes() + allowed.bytes) << differences(ours.work, theirs->last.work);
  if (!cli::compare(ours.output, theirs->last.output, kWorkTolerance).empty()) {
    // Frozen, LibTorch is not always right: under autocast it computes in other dtypes.
    peers::EagerPeer eager;
    const LastCall expected = last_call_in_libtorch(eager, load_in_evaluation_mode(GetParam()), cases);
    const bool agrees = cli::compare(theirs->last.output, expected.output, kWorkTolerance).empty();
    std::cout << "  frozen, LibTorch gives " << (agrees ? "the same as" : "something else than")
              << " operator after operator\n";
    for (const cli::Mismatch& mismatch : cli::compare(ours.output, expected.output, kWorkTolerance)) {
      ADD_FAILURE() << cli::to_string(mismatch);
    }
  }
}

// The smallest models, all with SCONCE_WORK_MODELS=1000.
std::vector<std::string> models() {
  std::vector<std::string> names = model_names();
  const std::vector<std::string> more = model_names("torchvision_ops");
  names.insert(names.end(), more.begin(), more.end());
  std::erase_if(names, [](const std::string& name) { return name == "operators"; });
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::filesystem::file_size(model_file(a)) < std::filesystem::file_size(model_file(b));
  });
  names.resize(std::min<size_t>(names.size(), environment_number("SCONCE_WORK_MODELS", kModelsByDefault)));
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, ExecutedWorkTest, ::testing::ValuesIn(models()),
                         [](const auto& model) { return std::filesystem::path(model.param).filename().string(); });

}  // namespace
}  // namespace sconce::testing
