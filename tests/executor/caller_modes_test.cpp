// The modes of the thread that loads a module, and that calls it: results are LibTorch's under the same modes, whatever the
// mode was before.
#include <sconce/module.h>

#include "tests/support/graphs.h"
#include "tests/support/part.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;

enum class Mode { kNone, kInference, kNoGrad, kAutocast, kAnomaly, kDeterministic, kFloat64, kObserved };
constexpr std::array kModes = {"none",    "inference mode", "no_grad",         "autocast",
                               "anomaly", "deterministic",  "default float64", "observed"};

// Runs the action in the mode.
void run_in(Mode mode, const std::function<void()>& action) {
  std::optional<c10::InferenceMode> inference;
  std::optional<at::NoGradGuard> no_grad;
  std::atomic<int> observed = 0;
  static std::atomic<int>* observed_now;
  at::CallbackHandle handle = 0;
  switch (mode) {
    case Mode::kNone: break;
    case Mode::kInference: inference.emplace(); break;
    case Mode::kNoGrad: no_grad.emplace(); break;
    case Mode::kAutocast: at::autocast::set_autocast_enabled(at::kCPU, true); break;
    case Mode::kAnomaly: torch::autograd::AnomalyMode::set_enabled(true, /*check_nan=*/false); break;
    case Mode::kDeterministic: at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false); break;
    case Mode::kFloat64: c10::set_default_dtype(caffe2::TypeMeta::Make<double>()); break;
    case Mode::kObserved:
      observed_now = &observed;
      handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction&) {
        ++*observed_now;
        return std::unique_ptr<at::ObserverContext>();
      }));
      break;
  }
  action();
  switch (mode) {
    case Mode::kAutocast:
      at::autocast::set_autocast_enabled(at::kCPU, false);
      at::autocast::clear_cache();
      break;
    case Mode::kAnomaly: torch::autograd::AnomalyMode::set_enabled(false); break;
    case Mode::kDeterministic: at::globalContext().setDeterministicAlgorithms(false, false); break;
    case Mode::kFloat64: c10::set_default_dtype(caffe2::TypeMeta::Make<float>()); break;
    case Mode::kObserved: at::removeCallback(handle); break;
    default: break;
  }
}

// A module in a file, with parameters that require gradients.
class SavedModule {
 public:
  SavedModule(const std::string& name, const std::string& source,
              const std::vector<std::pair<std::string, at::Tensor>>& parameters)
      : path_(::testing::TempDir() + "caller_modes_" + name + "_" + std::to_string(getpid()) + ".pt") {
    torch::jit::Module script("__torch__." + name);
    for (const auto& [parameter, value] : parameters) {
      script.register_parameter(parameter, value.requires_grad_(), /*is_buffer=*/false);
    }
    script.register_attribute("training", c10::BoolType::get(), false);
    script.define(source);
    script.save(path_);
  }
  ~SavedModule() { std::filesystem::remove(path_); }
  SavedModule(const SavedModule&) = delete;
  SavedModule& operator=(const SavedModule&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

const SavedModule& perceptron() {
  static const SavedModule saved(
      "Perceptron",
      "def forward(self, x):\n"
      "    y = torch.relu(torch.linear(x, self.a, self.returned))\n"
      "    y = torch.linear(y, self.c) * 0.5 + torch.ones([1]) / 3\n"
      "    return torch.softmax(y, -1), torch.arange(3) / 2, y.detach() > 0, self.returned[1:]\n",
      {{"a", at::randn({64, 32}) / 6}, {"returned", at::randn({64})}, {"c", at::randn({16, 64}) / 8}});
  return saved;
}

const SavedModule& convnet() {
  static const SavedModule saved(
      "Convnet",
      "def forward(self, x):\n"
      "    y = torch.conv2d(x, self.a, None, 1, 1)\n"
      "    y = torch.batch_norm(y, self.s, self.t, self.m.detach(), self.v.detach(), False, 0.1,\n"
      "                         1e-5, False)\n"
      "    y = torch.conv2d(torch.relu(y), self.c, None, 2, 1)\n"
      "    return torch.linear(torch.relu(y).mean([2, 3]), self.d), y.sum()\n",
      {{"a", at::randn({16, 8, 3, 3}) / 9},
       {"s", at::rand({16}) + 0.5},
       {"t", at::randn({16})},
       {"m", at::randn({16})},
       {"v", at::rand({16}) + 0.5},
       {"c", at::randn({16, 16, 3, 3}) / 12},
       {"d", at::randn({10, 16}) / 4}});
  return saved;
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  return value.isTensor() ? std::vector{value.toTensor()} : [&] {
    std::vector<at::Tensor> tensors;
    for (const c10::IValue& each : value.toTupleRef().elements()) {
      tensors.push_back(each.toTensor());
    }
    return tensors;
  }();
}

// One order of modes: while the module is loaded, in its first call, in five later ones.
void expect_as_libtorch(const SavedModule& saved, const at::Tensor& x, const Options& options,
                        const std::array<Mode, 3>& modes) {
  const auto [at_load, first, later] = modes;
  // LibTorch's own module has inference tensors if it is loaded in inference mode, which it cannot use outside of it.
  std::optional<torch::jit::Module> script;
  run_in(at_load == Mode::kInference ? Mode::kNone : at_load, [&] { script = torch::jit::load(saved.path()); });
  // A frozen module has constants, which require no gradient, but for a parameter that a method returns.
  for (const auto& parameter : script->named_parameters()) {
    parameter.value.requires_grad_(!options.frozen() || parameter.name == "returned");
  }
  std::optional<Module> module;
  run_in(at_load, [&] { module = load(saved.path(), options); });
  for (int call = 1; call <= 6; ++call) {
    const Mode mode = call == 1 ? first : later;
    SCOPED_TRACE(std::string("call ") + std::to_string(call) + " in " + kModes[static_cast<size_t>(mode)]);
    run_in(mode, [&] {
      const c10::IValue expected = script->forward({x});
      const c10::IValue result = module->forward({x});
      EXPECT_TRUE(agree(result, expected, mode == Mode::kAutocast ? 3e-2 : 1e-4));
      const std::vector<at::Tensor> results = tensors_of(result);
      const std::vector<at::Tensor> expected_results = tensors_of(expected);
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(results[i].is_inference(), expected_results[i].is_inference()) << "result " << i;
      }
    });
  }
}

// All pairs of modes of any two of the three.
TEST(CallerModes, GiveLibTorchsResultsInAnyOrder) {
  const bool optimizes = torch::jit::getGraphExecutorOptimize();
  torch::jit::setGraphExecutorOptimize(false);
  at::manual_seed(3);
  const at::Tensor row = at::randn({4, 32});
  const at::Tensor image = at::randn({2, 8, 10, 10});
  const Part part = part_of_run();
  uint64_t number = 0;
  for (const bool frozen : {false, true}) {
    const Options options = Options().compile(CompileMode::kBlocking).frozen(frozen);
    for (size_t at_load = 0; at_load < kModes.size(); ++at_load) {
      for (size_t first = 0; first < kModes.size(); ++first) {
        if (!part.has(number++)) {
          continue;
        }
        const size_t later = (at_load + first) % kModes.size();
        SCOPED_TRACE(std::string(frozen ? "frozen, " : "") + "loaded in " + kModes[at_load]);
        const std::array modes = {static_cast<Mode>(at_load), static_cast<Mode>(first), static_cast<Mode>(later)};
        expect_as_libtorch(perceptron(), row, options, modes);
        expect_as_libtorch(convnet(), image, options, modes);
      }
    }
  }
  torch::jit::setGraphExecutorOptimize(optimizes);
}

size_t packed_bytes_after_calls(const Module& module, const at::Tensor& x) {
  for (int call = 0; call < 6; ++call) {
    module.forward({x});
  }
  return module.method("forward").explain().weights.packed_bytes;
}

TEST(CallerModes, AModuleLoadedInInferenceModePacksItsWeights) {
  const at::Tensor x = at::randn({2, 8, 10, 10});
  for (const bool frozen : {false, true}) {
    for (const bool moves : {false, true}) {
      Options options = Options().compile(CompileMode::kBlocking).frozen(frozen);
      options = moves ? options.device("cpu") : options;
      const at::NoGradGuard no_grad;
      const size_t packed = packed_bytes_after_calls(load(convnet().path(), options), x);
      EXPECT_GT(packed, 0U);
      std::optional<Module> module;
      {
        const c10::InferenceMode inference;
        module = load(convnet().path(), options);
        module->to(at::kCPU);
        EXPECT_EQ(packed_bytes_after_calls(*module, x), packed);
        EXPECT_TRUE(tensors_of(module->forward({x}))[0].is_inference());
      }
      EXPECT_FALSE(module->parameters().front().is_inference());
      EXPECT_TRUE(module->parameters().front().requires_grad());
      EXPECT_GE(packed_bytes_after_calls(*module, x), packed);
    }
  }
}

// The mode of gradients is the caller's also while tensors are made outside of inference mode.
TEST(CallerModes, AModuleLoadedInInferenceModeMayBeTrained) {
  std::optional<Module> module;
  {
    const c10::InferenceMode inference;
    module = load(perceptron().path());
  }
  tensors_of(module->forward({at::randn({4, 32})}))[0].square().sum().backward();
  EXPECT_TRUE(module->parameters().front().grad().defined());
}

TEST(CallerModes, ExplainSaysThatInferenceTensorsAreNotPacked) {
  const c10::InferenceMode inference;
  const at::Tensor x = at::randn({2, 8, 10, 10});
  const torch::jit::Module script = torch::jit::load(convnet().path());
  const Options options = Options().compile(CompileMode::kBlocking);
  const Module module = accelerate(script, options);
  EXPECT_EQ(packed_bytes_after_calls(module, x), 0U);
  const std::vector<RefusalExplanation> refusals = module.method("forward").explain().refusals;
  ASSERT_EQ(refusals.size(), 1U);
  EXPECT_EQ(refusals[0].what, "packing of weights");
  EXPECT_THAT(refusals[0].reason, HasSubstr("inference tensors"));
  // Writes to constants need not be counted.
  const Module frozen = accelerate(script, Options(options).frozen(true));
  EXPECT_GT(packed_bytes_after_calls(frozen, x), 0U);
  EXPECT_TRUE(frozen.method("forward").explain().refusals.empty());
  EXPECT_TRUE(accelerate(script, Options(options).pack_weights(false)).method("forward").explain().refusals.empty());
}

}  // namespace
}  // namespace sconce::testing
