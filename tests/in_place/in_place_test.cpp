// Acceleration in place, by programs that call LibTorch alone. tests/python has the same from Python, and more.
#include <sconce/in_place.h>

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/jit_exception.h>

#include <memory>
#include <string>

namespace sconce {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::module_of;
using ::testing::Not;
using Script = torch::jit::Module;

const char* const kMethods = R"(
def forward(self, x):
    return torch.tanh(torch.matmul(x, self.w)) * self.scale + self.b

def count(self):
    self.calls += 1
    return self.calls

def fail(self, x, kind: int):
    assert kind != 1, "the author's words"
    return torch.matmul(x, self.w)
)";

at::Tensor parameter(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

// Each has code of its own.
Script make() {
  return module_of(kMethods, {{"w", parameter({4, 4})}, {"b", parameter({4})}, {"scale", 2.0}, {"calls", 0}});
}

// Copies a module, with parameters that are leaves.
Script copy_of(const Script& module) {
  const torch::autograd::AutoGradMode no_grad(false);
  Script copy = module.deepcopy();
  for (const char* name : {"w", "b"}) {
    copy.setattr(name, copy.attr(name).toTensor().detach().clone().set_requires_grad(true));
  }
  return copy;
}

// A module with the same attributes and code of its own.
Script twin_of(const Script& module) {
  Script twin = make();
  for (const char* name : {"w", "b"}) {
    twin.setattr(name, module.attr(name).toTensor().detach().clone().set_requires_grad(true));
  }
  twin.setattr("scale", module.attr("scale"));
  return twin;
}

std::vector<at::Tensor> step(Script module, const at::Tensor& x) {
  const at::Tensor y = module.forward({x}).toTensor();
  std::vector<at::Tensor> results =
      torch::autograd::grad({y.square().sum()}, {module.attr("w").toTensor(), module.attr("b").toTensor()});
  results.push_back(y.detach());
  return results;
}

void expect_equal_steps(const Script& ours, const Script& theirs, const at::Tensor& x) {
  const std::vector<at::Tensor> got = step(ours, x);
  const std::vector<at::Tensor> expected = step(theirs, x);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-4, 1e-5)) << "result " << i;
  }
}

c10::IValue call_operator(const char* name, torch::jit::Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
  return stack.empty() ? c10::IValue() : stack.front();
}

TEST(InPlace, AnyProgramReachesTheOperators) {
  const Script module = make();
  const Script twin = twin_of(module);
  call_operator("sconce::accelerate", {module._ivalue(), std::string(R"({"compile": "blocking"})")});
  EXPECT_TRUE(call_operator("sconce::is_accelerated", {module._ivalue()}).toBool());
  const at::Tensor x = at::randn({3, 4});
  for (int call = 0; call < 4; ++call) {
    expect_equal_steps(module, twin, x);
  }
  const std::string page = call_operator("sconce::explain", {module._ivalue(), false}).toStringRef();
  EXPECT_THAT(page, HasSubstr("specialized plan: "));
  EXPECT_THAT(page, HasSubstr("invocations   4\n"));
  EXPECT_THAT(call_operator("sconce::explain", {module._ivalue(), true}).toStringRef(),
              HasSubstr("\"method\": \"forward\""));
  EXPECT_THAT(call_operator("sconce::status", {}).toStringRef(), HasSubstr("\"calls\": 4"));
  EXPECT_TRUE(call_operator("sconce::restore", {module._ivalue()}).toBool());
  EXPECT_FALSE(call_operator("sconce::restore", {module._ivalue()}).toBool());
  expect_equal_steps(module, twin, x);
}

// A simulation code runs copies that it hands to nobody.
TEST(InPlace, AllModulesAreAcceleratedInTheirFirstCall) {
  call_operator("sconce::accelerate_all", {std::string(R"({"compile": "blocking"})")});
  const Script original = make();
  const Script twin = twin_of(original);
  const Script held = original.clone();
  EXPECT_FALSE(is_accelerated(held));
  const at::Tensor x = at::randn({3, 4});
  for (int call = 0; call < 4; ++call) {
    expect_equal_steps(held, twin, x);
  }
  EXPECT_TRUE(is_accelerated(held));
  EXPECT_EQ(explain_in_place(held).front().counters.invocations, 4) << "the first call, too";
  EXPECT_TRUE(call_operator("sconce::stop_accelerating_all", {}).toBool());
  EXPECT_FALSE(call_operator("sconce::stop_accelerating_all", {}).toBool());
  Script later = make();
  later.forward({x});
  EXPECT_FALSE(is_accelerated(later));
  EXPECT_THAT(message_of([] { accelerate_all(Options().frozen(true)); }), HasSubstr("cannot be frozen"));
}

// A call with gradients is recorded with the module's own tensors.
TEST(InPlace, ModulesOfAClassRunOnTheirOwnAttributes) {
  Script first = make();
  Script second = copy_of(first);
  second.setattr("w", parameter({4, 4}));
  Script third = copy_of(first);
  third.setattr("scale", 0.5);
  const std::vector<std::pair<Script, Script>> pairs = {
      {first, twin_of(first)}, {second, twin_of(second)}, {third, twin_of(third)}};
  accelerate_in_place(first);
  const at::Tensor x = at::randn({3, 4});
  const auto recorded = [&] { return explain_in_place(first).at(0).recorded.by_plan; };
  do {
    expect_equal_steps(first, pairs[0].second, x);
    wait_for_compiles_in_place(first);
  } while (recorded() == 0 && explain_in_place(first).at(0).counters.invocations < 200);
  EXPECT_GT(recorded(), 0U);
  for (int call = 0; call < 20; ++call) {
    for (const auto& [ours, theirs] : pairs) {
      expect_equal_steps(ours, theirs, x);
    }
  }
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(first.run_method("count").toInt(), call + 1);
  }
  EXPECT_EQ(second.run_method("count").toInt(), 1);
}

TEST(InPlace, AModuleAtTheAddressOfADestroyedOneIsAnother) {
  const Script first = make();
  accelerate_in_place(first);
  const at::Tensor x = at::randn({3, 4});
  for (int round = 0; round < 20; ++round) {
    Script other = copy_of(first);
    other.setattr("w", parameter({4, 4}));
    const Script twin = twin_of(other);
    for (int call = 0; call < 8; ++call) {
      expect_equal_steps(other, twin, x);
    }
  }
}

TEST(InPlace, ServesAllAutocastStates) {
  const Script module = make();
  const Script twin = twin_of(module);
  accelerate_in_place(module);
  const at::Tensor x = at::randn({3, 4});
  for (int call = 0; call < 3; ++call) {
    for (const bool is_on : {false, true}) {
      at::autocast::set_autocast_enabled(at::kCPU, is_on);
      const at::Tensor got = Script(module).forward({x}).toTensor();
      const at::Tensor expected = Script(twin).forward({x}).toTensor();
      EXPECT_EQ(got.scalar_type(), expected.scalar_type());
      EXPECT_TRUE(at::allclose(got.to(at::kFloat), expected.to(at::kFloat), 2e-2, 2e-2));
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
  EXPECT_EQ(explain_in_place(module).at(0).counters.invocations, 6U);
}

std::string last_line(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);
}

TEST(InPlace, ErrorsAreThoseOfLibTorch) {
  Script ours = make();
  Script theirs = make();
  accelerate_in_place(ours);
  const at::Tensor x = at::randn({3, 5});
  for (int call = 0; call < 3; ++call) {
    const auto text = [&](Script& module, int kind) -> std::string {
      try {
        module.run_method("fail", x, kind);
      } catch (const torch::jit::JITException& raised) {
        return std::string("JITException ") + raised.getOriginalMsg().value_or("") + "\n" + raised.what();
      } catch (const std::runtime_error& error) {
        return std::string("runtime_error\n") + error.what();
      }
      return "";
    };
    for (const int kind : {0, 1}) {
      const std::string got = text(ours, kind);
      const std::string expected = text(theirs, kind);
      EXPECT_EQ(got.substr(0, got.find('\n')), expected.substr(0, expected.find('\n')));
      EXPECT_EQ(last_line(got), last_line(expected));
      EXPECT_THAT(got.substr(got.find("Traceback") + 1), Not(HasSubstr("Traceback")));
    }
  }
}

TEST(InPlace, NothingOutlivesTheModule) {
  std::weak_ptr<const torch::jit::CompilationUnit> code;
  const at::Tensor x = at::randn({3, 4});
  {
    Script module = make();
    code = module._ivalue()->compilation_unit();
    accelerate_in_place(module);
    for (int call = 0; call < 20; ++call) {
      step(module, x);
      wait_for_compiles_in_place(module);
    }
    EXPECT_GT(explain_in_place(module).at(0).recorded.by_plan, 0U);
    const torch::autograd::AutoGradMode no_grad(false);
    for (int call = 0; call < 20; ++call) {
      module.forward({x});
    }
  }
  EXPECT_TRUE(code.expired());
}

// Python keeps the code of what it has scripted. There, what calls of a module keep goes soon after the module.
TEST(InPlace, ClassesMayOutliveTheirModules) {
  const Script first = make();
  call_operator("sconce::note_immortal_code", {first._ivalue()});
  accelerate_in_place(first);
  const at::Tensor x = at::randn({3, 4});
  c10::weak_intrusive_ptr<c10::TensorImpl> weight(
      c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(x.unsafeGetTensorImpl()));
  {
    const Script second = copy_of(first);
    weight = second.attr("w").toTensor().getIntrusivePtr();
    for (int call = 0; call < 20; ++call) {
      step(second, x);
      wait_for_compiles_in_place(first);
    }
    EXPECT_GT(explain_in_place(first).at(0).recorded.by_plan, 0U);
    EXPECT_FALSE(weight.expired());
  }
  step(first, x);
  call_operator("sconce::status", {});
  EXPECT_TRUE(weight.expired());
}

TEST(InPlace, MayBeDoneAgainWithOtherOptions) {
  Script module = make();
  accelerate_in_place(module, Options().exact(true));
  const at::Tensor x = at::randn({3, 4});
  const at::Tensor exact = module.forward({x}).toTensor();
  accelerate_in_place(module, Options().compile(CompileMode::kNever));
  EXPECT_TRUE(at::allclose(module.forward({x}).toTensor(), exact));
  EXPECT_EQ(explain_in_place(module).at(0).counters.invocations, 1U);
  EXPECT_TRUE(restore(module));
  EXPECT_FALSE(is_accelerated(module));
}

TEST(InPlace, RunsAsynchronousCalls) {
  Script module = make();
  const at::Tensor x = at::randn({3, 4});
  const at::Tensor expected = module.forward({x}).toTensor();
  accelerate_in_place(module);
  auto future = module.get_method("forward").run_async({x});
  future->waitAndThrow();
  EXPECT_TRUE(at::allclose(future->value().toTensor(), expected));
}

TEST(InPlace, SaysWhatIsWrong) {
  const Script module = make();
  EXPECT_THAT(message_of([&] { accelerate_in_place(module, Options().frozen(true)); }), HasSubstr("torch.jit.freeze"));
  EXPECT_THAT(message_of([&] { accelerate_in_place(module, Options().device("cpu")); }), HasSubstr("its own `to`"));
  EXPECT_THAT(message_of([&] { explain_in_place(module); }), HasSubstr("not accelerated"));
  EXPECT_THAT(message_of([&] { call_operator("sconce::accelerate", {module._ivalue(), std::string("{\"exakt\": true}")}); }),
              HasSubstr("no option 'exakt'; did you mean 'exact'?"));
  EXPECT_THAT(message_of([&] { call_operator("sconce::accelerate", {3, std::string()}); }),
              HasSubstr("expects a scripted module, not Int"));
}

}  // namespace
}  // namespace sconce
