#include <sconce/module.h>

#include "tests/support/graphs.h"

#include "base/shared_library.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <functional>
#include <thread>

namespace sconce {
namespace {

using testing::agree;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::module_of;

const char* const kModuleMethods = R"(
def forward(self, x, factor: float = 2.0, note: str = "none"):
    return self.scaled(x, factor) + self.w

def scaled(self, x, factor: float):
    return x * factor

def describe(self, x, note: str = "none") -> Tuple[Tensor, str]:
    return x, note

def mode(self) -> bool:
    return self.training

def count(self):
    self.calls += 1
    return self.calls

def fail(self, x, flag: bool):
    assert not flag, "the author's words"
    return x
)";

Module make(const Options& options = {}) {
  return accelerate(module_of(kModuleMethods, {{"w", at::ones({2})}, {"calls", 0}, {"training", true}}), options);
}

TEST(Module, FillsInDefaultsAndTakesKeywordArguments) {
  const Module module = make();
  const at::Tensor x = at::full({2}, 3.0);
  EXPECT_TRUE(agree(module.forward({x}), x * 2 + 1));
  EXPECT_TRUE(agree(module.forward({x, 4.0}), x * 4 + 1));
  EXPECT_TRUE(agree(module.forward({x}, {{"factor", 5.0}}), x * 5 + 1));
  EXPECT_TRUE(agree(module.forward({}, {{"factor", 5.0}, {"x", x}}), x * 5 + 1));
  EXPECT_EQ(module.run_method("describe", {x}, {{"note", "hello"}}).toTupleRef().elements()[1].toStringRef(), "hello");
}

TEST(Module, SaysWhatIsWrongWithArguments) {
  const Module module = make();
  EXPECT_THAT(message_of([&] { module.forward({}); }), HasSubstr("missing value for argument 'x'"));
  EXPECT_THAT(message_of([&] { module.forward({"text"}); }), HasSubstr("Expected a value of type 'Tensor"));
  EXPECT_THAT(message_of([&] { module.forward({at::ones({2})}, {{"nonsense", 1}}); }), HasSubstr("nonsense"));
  EXPECT_THAT(message_of([&] { module.forward({at::ones({2}), 1.0, "n", 4}); }), HasSubstr("at most"));
  EXPECT_TRUE(agree(module.forward({at::ones({2})}), at::ones({2}) * 3)) << "and works on";
}

TEST(Module, AnUnknownMethodIsAnErrorThatListsTheMethods) {
  const Module module = make();
  const std::string message = message_of([&] { module.run_method("backward", {}); });
  EXPECT_THAT(message, HasSubstr("no method 'backward'"));
  EXPECT_THAT(message, HasSubstr("forward"));
  EXPECT_THAT(message, HasSubstr("scaled"));
  EXPECT_FALSE(module.has_method("backward"));
  EXPECT_TRUE(module.has_method("scaled"));
  EXPECT_THAT(module.method_names(), ElementsAre("forward", "scaled", "describe", "mode", "count", "fail"));
}

TEST(Module, TrainAndEvalReachTheGraph) {
  Module module = make();
  module.train();
  EXPECT_TRUE(module.run_method("mode", {}).toBool());
  module.eval();
  EXPECT_FALSE(module.run_method("mode", {}).toBool());
  module.train();
  EXPECT_TRUE(module.run_method("mode", {}).toBool());
}

TEST(Module, KeepsWhatAMethodWritesIntoItsAttributes) {
  const Module module = make();
  EXPECT_EQ(module.run_method("count", {}).toInt(), 1);
  EXPECT_EQ(module.run_method("count", {}).toInt(), 2);
  EXPECT_EQ(module.script_module().attr("calls").toInt(), 2);
}

TEST(Module, CopiesAreTheSameModule) {
  const Module module = make();
  const Module copy = module;
  copy.run_method("count", {});
  EXPECT_EQ(module.run_method("count", {}).toInt(), 2);
  EXPECT_EQ(&module.method("count"), &copy.method("count"));
}

TEST(Module, OneThatWasMovedFromIsStillThatModule) {
  Module from = make();
  const Module to = std::move(from);
  EXPECT_TRUE(agree(to.forward({at::ones({2})}), from.forward({at::ones({2})})));  // NOLINT(bugprone-use-after-move)
}

TEST(Module, AMethodsExecutorBindsSelf) {
  const Module module = make();
  GraphExecutor& executor = module.method("scaled");
  std::vector<c10::IValue> stack = {at::ones({2}), 4.0};
  executor.run(stack);
  EXPECT_TRUE(agree(stack.at(0), at::ones({2}) * 4));
  std::vector<c10::IValue> few = {at::ones({2})};
  EXPECT_THAT(message_of([&] { executor.run(few); }), HasSubstr("scaled expects 2 argument(s) and was given 1"));
  std::vector<c10::IValue> below = {"below", at::ones({2}), 4.0};
  executor.run(below);
  EXPECT_EQ(below.size(), 2);
  EXPECT_EQ(below[0].toStringRef(), "below");
}

TEST(Module, AnAuthorsExceptionKeepsItsWordsAndTheModuleWorksOn) {
  const Module module = make();
  EXPECT_THAT(message_of([&] { module.run_method("fail", {at::ones({1}), true}); }), HasSubstr("the author's words"));
  EXPECT_TRUE(agree(module.run_method("fail", {at::ones({1}), false}), at::ones({1})));
}

// Returns `what()` of the error that `call` throws, which must be an E.
template <typename E>
std::string what_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Its first line says what failed where. LibTorch's errors end with a stack of C++ frames; these do not.
TEST(Module, WhatSaysReasonAndPlaceWithoutFramesOfTheBuild) {
  const Module module = accelerate(module_of("def forward(self, x, i: int):\n    return torch.mm(x, x).select(0, i)\n"));
  const std::vector<std::string> all = {
      what_of<c10::Error>([&] { module.forward({at::ones({2, 3}), 0}); }),
      what_of<c10::IndexError>([&] { module.forward({at::ones({2, 2}), 5}); }),
      what_of<c10::Error>([&] { module.forward({}); }),
      what_of<c10::Error>([&] { module.run_method("no_such_method", {}); }),
      what_of<c10::Error>([&] { module.method("no_such_method"); }),
      what_of<c10::Error>([] { load("no/such/file.pt"); }),
      what_of<c10::Error>([] { GraphExecutor(nullptr, "f", Options()); }),
  };
  for (const std::string& what : all) {
    EXPECT_THAT(what, ::testing::Not(HasSubstr("Exception raised from"))) << what;
    EXPECT_THAT(what, ::testing::Not(HasSubstr("frame #"))) << what;
    EXPECT_THAT(what, ::testing::Not(HasSubstr(".cpp"))) << what;
  }
  EXPECT_THAT(first_line(all[0]), ::testing::AllOf(HasSubstr("mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
                                                   HasSubstr("aten::mm("), ::testing::ContainsRegex(" # .*:2:[0-9]+")));
  EXPECT_THAT(first_line(all[1]), ::testing::AllOf(HasSubstr("out of range"), ::testing::ContainsRegex(" # .*:2:[0-9]+")));
  EXPECT_EQ(std::count(all[5].begin(), all[5].end(), '\n'), 0) << all[5];
}

TEST(Module, AWrongKeywordIsNamedInLibTorchsWords) {
  const Module module = accelerate(module_of("def forward(self, x, y: int = 1):\n    return x * y\n"));
  EXPECT_THAT(what_of<c10::Error>([&] { module.forward({at::ones({2})}, {{"z", 2}}); }),
              ::testing::StartsWith("Unknown keyword argument 'z' for operator 'forward'. Schema: forward("));
  EXPECT_THAT(what_of<c10::Error>([&] { module.forward({}, {{"z", at::ones({2})}}); }),
              ::testing::StartsWith("Unknown keyword argument 'z' for operator 'forward'. Schema: forward("));
  EXPECT_THAT(what_of<c10::Error>([&] { module.forward({at::ones({2})}, {{"x", at::ones({2})}}); }),
              ::testing::StartsWith("Argument 'x' specified both as positional and keyword argument"));
  EXPECT_THAT(what_of<c10::Error>([&] { module.forward({}, {{"y", 2}}); }),
              ::testing::StartsWith("forward() is missing value for argument 'x'"));
}

TEST(Module, ArgumentsAreCountedWithoutTheModule) {
  const Module module = accelerate(module_of("def forward(self, x):\n    return x\n"));
  EXPECT_THAT(what_of<c10::Error>([&] { module.forward({at::ones({2}), 1}); }),
              ::testing::StartsWith("Expected at most 1 argument(s) for operator 'forward', but received 2 argument(s). "
                                    "Declaration: forward("));
}

TEST(Module, ParametersAreTheScriptModulesOwn) {
  const at::Tensor weight = at::ones({2}).requires_grad_(true);
  const Module module = accelerate(module_of("def forward(self, x):\n    return (x * self.w).sum()\n", {{"w", weight}}));
  ASSERT_EQ(module.parameters().size(), 1);
  EXPECT_TRUE(module.parameters()[0].is_same(weight));
  module.forward({at::full({2}, 3.0)}).toTensor().backward();
  EXPECT_TRUE(agree(weight.grad(), at::full({2}, 3.0)));
}

// The plans of both modes: LibTorch's autograd records the operators, or one node stands for the subgraph.
TEST(Module, RecordsGradientsOfViewsWhoseBaseCameToRequireThem) {
  for (const CompileMode compile : {CompileMode::kNever, CompileMode::kBlocking}) {
    const at::Tensor state = at::ones({3});
    const at::Tensor buffer = state.view({3});
    const char* const source = "def forward(self, x, l: List[Tensor]):\n  return x * 2 + self.b + l[0]\n";
    const Module module = accelerate(module_of(source, {{"b", buffer}}), Options().compile(compile));
    const auto result = [&](const at::Tensor& x, const at::Tensor& element) {
      return module.forward({x, c10::List<at::Tensor>({element})}).toTensor();
    };
    const at::Tensor plain = at::ones({3});
    for (int call = 0; call < 3; ++call) {  // later calls find the attributes unchanged
      EXPECT_FALSE(result(plain, plain).requires_grad());
    }
    const at::Tensor base = at::ones({3});
    const at::Tensor view = base.view({3});
    base.requires_grad_(true);
    EXPECT_TRUE(result(view, plain).requires_grad());
    EXPECT_TRUE(result(plain, view).requires_grad());
    state.requires_grad_(true);
    for (int call = 0; call < 3; ++call) {
      const at::Tensor leaf = at::ones({3}).requires_grad_(true);
      const at::Tensor y = result(plain, plain);
      EXPECT_TRUE(y.requires_grad());
      (y * leaf).sum().backward();
      EXPECT_TRUE(agree(leaf.grad(), at::full({3}, 4.0)));
      EXPECT_FALSE(state.grad().defined()) << "as in eager execution: the view has no gradient function";
    }
  }
}

TEST(Module, SaysWhyThereIsNoCudaDevice) {
  if (open_library("libcuda.so.1")) {
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  }
  const std::string reason = "no CUDA device: this machine has no NVIDIA driver";
  EXPECT_THAT(message_of([] { load("model.pt", Options().device("cuda")); }), HasSubstr(reason));
  EXPECT_THAT(message_of([] { make().to(c10::Device("cuda:1")); }), HasSubstr(reason));
}

TEST(Module, TwoThreadsThatFirstAskForOneMethodMakeItOnce) {
  for (int round = 0; round < 10; ++round) {
    const Module module = make();
    std::atomic<int> ready{0};
    std::vector<GraphExecutor*> seen(4);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < seen.size(); ++t) {
      threads.emplace_back([&, t] {
        ++ready;
        while (ready.load() < 4) {
          std::this_thread::yield();
        }
        seen[t] = &module.method(t % 2 == 0 ? "forward" : "describe");
        EXPECT_TRUE(agree(module.forward({at::ones({2})}), at::ones({2}) * 3));
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(seen[0], seen[2]);
    EXPECT_EQ(seen[1], seen[3]);
    EXPECT_NE(seen[0], seen[1]);
  }
}

TEST(Module, ARefusedMethodDoesNotSpoilTheOthers) {
  const Module module = load(testing::models_dir() + "/several_methods.pt");
  EXPECT_THROW(module.method("no_such_method"), c10::Error);
  EXPECT_EQ(module.run_method("width", {}).toInt(), 10);
}

TEST(Module, RunsTheModelsOfTheSuiteAsTheyWereSaved) {
  const Module module = load(testing::models_dir() + "/several_methods.pt");
  const at::Tensor x = at::rand({3, 10});
  const c10::AutoGradMode mode(false);
  torch::jit::Module reference = module.script_module();
  for (const char* method : {"forward", "encode", "summary"}) {
    EXPECT_TRUE(agree(module.run_method(method, {x}), reference.get_method(method)({x}), 1e-6)) << method;
  }
  EXPECT_EQ(module.run_method("width", {}).toInt(), 10);
}

// As LibTorch's interpreter does, where each place of the script warns once in a call.
TEST(Module, WarnsOncePerPlaceInEachCall) {
  class Warnings : public c10::WarningHandler {
   public:
    void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
    std::vector<std::string> messages;
  };
  torch::jit::Module script("M");
  script.define(
      "def forward(self, x):\n"
      "    for i in range(2):\n"
      "        torch.warn(\"look out\")\n"
      "    return x + 1\n");
  const Module module = accelerate(script);
  Warnings warnings;
  Warnings expected;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&expected);
    for (int i = 0; i < 3; ++i) {
      script.forward({at::ones({2})});
    }
  }
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(agree(module.forward({at::ones({2})}), at::full({2}, 2.0)));
    }
  }
  EXPECT_EQ(expected.messages.size(), 3U);
  EXPECT_EQ(warnings.messages, expected.messages);
}

}  // namespace
}  // namespace sconce
