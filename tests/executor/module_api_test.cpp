// What a program does with a module besides calling it: copies, attributes, parameters, files, warm-up.
#include <sconce/module.h>

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/jit/api/module.h>

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace sconce {
namespace {

using testing::agree;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::module_of;
using ::testing::UnorderedElementsAre;

// A recurrent cell with its state in a submodule.
torch::jit::Module cell() {
  torch::jit::Module inner =
      module_of(R"(
def forward(self, x):
    self.h = torch.tanh(torch.matmul(x, self.w) + self.h)
    self.calls += 1
    return self.h
)",
                {{"w", at::randn({4, 4}).set_requires_grad(true)}, {"h", at::zeros({1, 4})}, {"calls", 0}});
  torch::jit::Module outer("Outer");
  outer.register_module("inner", inner);
  outer.register_buffer("scale", at::full({1}, 2.0));
  outer.register_attribute("weights", c10::ListType::ofTensors(), c10::List<at::Tensor>({inner.attr("w").toTensor()}));
  outer.register_attribute("training", c10::BoolType::get(), true);
  outer.define(R"(
def forward(self, x):
    return self.inner.forward(x) * self.scale + self.weights[0].sum() * 0.0

def kind(self, x, k: int = 1) -> int:
    return k
)");
  return outer;
}

at::Tensor call(const Module& module, const at::Tensor& x) {
  const torch::autograd::AutoGradMode no_grad(false);
  return module.forward({x}).toTensor();
}

TEST(Module, AnEmptyOneSaysSo) {
  std::map<std::string, Module> models;
  EXPECT_THAT(message_of([&] { models["a"].forward({}); }), HasSubstr("the sconce::Module is empty"));
  models["a"] = accelerate(cell());
  EXPECT_TRUE(call(models["a"], at::ones({1, 4})).defined());
}

TEST(Module, ClonesAreStreamsOfTheirOwn) {
  const at::Tensor x = at::ones({1, 4});
  for (const bool shares_plans : {true, false}) {
    for (const bool shares_weights : {true, false}) {
      const Module base = accelerate(cell());
      const at::Tensor expected = call(base, x);
      const at::Tensor second = call(base, x);
      const Module fresh = [&] {
        Module reset = base.clone(CloneOptions().share_weights(shares_weights).share_plans(shares_plans));
        reset.set_attr("inner.h", at::zeros({1, 4}));
        reset.set_attr("inner.calls", 0);
        return reset;
      }();
      EXPECT_TRUE(at::allclose(call(fresh, x), expected));
      EXPECT_TRUE(at::allclose(call(fresh, x), second));
      EXPECT_EQ(fresh.attr("inner.calls").toInt(), 2);
      EXPECT_EQ(base.attr("inner.calls").toInt(), 2);
      const at::Tensor base_weight = base.attr("inner.w").toTensor();
      const at::Tensor weight = fresh.attr("inner.w").toTensor();
      EXPECT_EQ(weight.is_same(base_weight), shares_weights);
      EXPECT_TRUE(weight.is_leaf() && weight.requires_grad());
      EXPECT_TRUE(fresh.attr("weights").toTensorVector()[0].is_same(weight)) << "what two attributes share, copies share";
      EXPECT_FALSE(fresh.attr("scale").toTensor().is_same(base.attr("scale").toTensor()));
      const bool has_compiled = fresh.method("forward").explain().counters.invocations > 2;
      EXPECT_EQ(has_compiled, shares_plans);
    }
  }
}

TEST(Module, ClonesThatShareWeightsKeepThemApartFromTo) {
  const Module base = accelerate(cell());
  const at::Tensor before = base.attr("inner.w").toTensor().clone();
  Module converted = base.clone(CloneOptions().share_weights(true));
  converted.to(at::kDouble);
  EXPECT_EQ(converted.attr("inner.w").toTensor().scalar_type(), at::kDouble);
  EXPECT_EQ(base.attr("inner.w").toTensor().scalar_type(), at::kFloat);
  EXPECT_TRUE(converted.attr("weights").toTensorVector()[0].is_same(converted.attr("inner.w").toTensor()));
  Module loaded = base.clone(CloneOptions().share_weights(true));
  NamedTensors state = {{"inner.w", at::ones({4, 4})}, {"scale", at::ones({1})}, {"inner.h", at::zeros({1, 4})}};
  loaded.load_state(state);
  EXPECT_TRUE(agree(loaded.attr("inner.w").toTensor().detach(), at::ones({4, 4})));
  EXPECT_TRUE(agree(base.attr("inner.w").toTensor(), before));
  Module refused = base.clone(CloneOptions().share_weights(true));
  EXPECT_THAT(message_of([&] { refused.load_state({{"inner.w", at::ones({4, 4})}}); }),
              HasSubstr("load_state: the state has no"));
  EXPECT_TRUE(refused.attr("inner.w").toTensor().is_same(base.attr("inner.w").toTensor())) << "nothing has changed";
  Module eval = base.clone(CloneOptions().share_weights(true));
  eval.eval();
  EXPECT_TRUE(base.attr("training").toBool());
  EXPECT_FALSE(eval.attr("training").toBool());
}

TEST(Module, CloneSharesFrozenPlansOnlyWithTheirWeights) {
  const auto make = [] {
    return accelerate(module_of("def forward(self, x):\n    return x * self.w\n", {{"w", at::full({1}, 3.0)}}),
                      Options().frozen(true));
  };
  const Module base = make();
  const at::Tensor x = at::ones({2});
  EXPECT_TRUE(agree(base.forward({x}).toTensor(), x * 3));
  const Module own = base.clone();
  EXPECT_TRUE(agree(own.forward({x}).toTensor(), x * 3));
  EXPECT_EQ(own.method("forward").explain().counters.invocations, 1U);
  const Module shared = base.clone(CloneOptions().share_weights(true));
  EXPECT_TRUE(agree(shared.forward({x}).toTensor(), x * 3));
  EXPECT_EQ(shared.method("forward").explain().counters.invocations, 2U);
}

TEST(Module, ClonesKeepStridesAndViews) {
  const at::Tensor memory = at::arange(24.0);
  const Module base =
      accelerate(module_of("def forward(self):\n    return self.a\n",
                           {{"a", memory.view({4, 6}).t()}, {"b", memory.slice(0, 6, 12)}, {"c", at::empty({0})}}));
  const Module copy = base.clone();
  const at::Tensor a = copy.attr("a").toTensor();
  EXPECT_TRUE(agree(a, base.attr("a").toTensor()));
  EXPECT_EQ(a.strides(), base.attr("a").toTensor().strides());
  copy.attr("b").toTensor().fill_(-1);
  EXPECT_EQ(a.index({0, 1}).item<float>(), -1) << "one memory";
  EXPECT_EQ(base.attr("a").toTensor().index({0, 1}).item<float>(), 6);
}

TEST(Module, HasNamedTensorsAndAttributes) {
  Module module = accelerate(cell());
  std::vector<std::string> names;
  for (const auto& [name, tensor] : module.named_parameters()) {
    names.push_back(name);
  }
  EXPECT_THAT(names, ElementsAre("inner.w"));
  names.clear();
  for (const auto& [name, tensor] : module.named_buffers()) {
    names.push_back(name);
  }
  EXPECT_THAT(names, UnorderedElementsAre("scale", "inner.h"));
  EXPECT_EQ(module.input_types("kind").size(), 2U);
  EXPECT_EQ(module.input_types("kind")[1].first, "k");
  EXPECT_EQ(module.input_types("kind")[1].second->repr_str(), "int");
  EXPECT_THAT(message_of([&] { module.attr("inner.z"); }), HasSubstr("no attribute 'inner.z'"));
  EXPECT_THAT(message_of([&] { module.attr("outer.z"); }), HasSubstr("no submodule 'outer'"));
  EXPECT_THAT(message_of([&] { module.set_attr("inner.calls", 2.5); }), HasSubstr("has type int, not float"));
  module.set_attr("inner.calls", 7);
  EXPECT_EQ(module.attr("inner.calls").toInt(), 7);
  EXPECT_THAT(message_of([&] { module.load_state({{"inner.w", at::ones({4, 4})}}); }),
              HasSubstr("the state has no 'inner.h'"));
  EXPECT_THAT(message_of([&] { module.load_state({{"scale", at::ones({1})}, {"scale", at::ones({1})}}); }),
              HasSubstr("'scale' stands there twice"));
  EXPECT_THAT(message_of([&] { module.load_state({{"inner.v", at::ones({4, 4})}}); }), HasSubstr("no parameter or buffer"));
  EXPECT_THAT(message_of([&] { module.load_state({{"inner.w", at::ones({4})}}); }), HasSubstr("has sizes [4]"));
}

TEST(Module, AFrozenOneSetsWhatIsPreserved) {
  Module module = accelerate(module_of("def forward(self, x):\n    return x * self.w + self.b\n",
                                       {{"w", at::full({1}, 3.0)}, {"b", at::zeros({1})}}),
                             Options().frozen(true).preserve({"b"}));
  const at::Tensor x = at::ones({2});
  EXPECT_TRUE(agree(module.forward({x}).toTensor(), x * 3));
  module.set_attr("b", at::ones({1}));
  EXPECT_TRUE(agree(module.forward({x}).toTensor(), x * 4));
  EXPECT_THAT(message_of([&] { module.set_attr("w", at::ones({1})); }), HasSubstr("Options::preserve"));
}

TEST(Module, IsSavedAndLoadedFromStreams) {
  const Module module = accelerate(cell());
  const at::Tensor x = at::ones({1, 4});
  const at::Tensor expected = call(module.clone(), x);
  std::stringstream stream;
  module.save(stream, {{"notes.txt", "hello"}});
  ExtraFiles extra = {{"notes.txt", ""}};
  const Module loaded = load(stream, {}, &extra);
  EXPECT_EQ(extra.at("notes.txt"), "hello");
  EXPECT_TRUE(at::allclose(call(loaded, x), expected));
  const std::string path = std::filesystem::temp_directory_path() / "sconce_module_api_test.pt";
  module.save(path);
  EXPECT_TRUE(at::allclose(call(load(path), x), expected));
  std::filesystem::remove(path);
  EXPECT_THAT(message_of([&] { module.save("/nowhere/model.pt"); }), HasSubstr("/nowhere/model.pt: cannot be written"));
  std::stringstream nothing;
  EXPECT_THAT(message_of([&] { load(nothing); }), HasSubstr("the stream: "));
  std::stringstream text("this is no archive, and long enough to be looked at");
  EXPECT_THAT(message_of([&] { load(text); }), HasSubstr("the stream: "));
}

TEST(Module, WarmsUpOnACopy) {
  const Module module = accelerate(cell());
  const at::Tensor x = at::ones({1, 4});
  at::manual_seed(1);
  const at::Tensor expected = at::rand({2});
  at::manual_seed(1);
  {
    const torch::autograd::AutoGradMode no_grad(false);
    module.warm_up({{x}, {at::ones({3, 4})}});
  }
  EXPECT_TRUE(agree(at::rand({2}), expected));
  EXPECT_EQ(module.attr("inner.calls").toInt(), 0);
  const Explanation before = module.method("forward").explain();
  EXPECT_GT(before.counters.compiles, 1U);
  call(module, x);
  const Explanation after = module.method("forward").explain();
  EXPECT_EQ(after.counters.compiles, before.counters.compiles);
  EXPECT_EQ(after.counters.cache_misses, before.counters.cache_misses);
}

TEST(Module, RunsAsynchronously) {
  const Module module =
      accelerate(module_of("def forward(self, x):\n    assert bool(x.sum() > 0), 'not positive'\n    return x * 2\n", {}));
  const at::Tensor x = at::ones({3});
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
  for (int i = 0; i < 8; ++i) {
    futures.push_back(module.run_async("forward", {x}));
  }
  for (const auto& future : futures) {
    future->wait();
    EXPECT_TRUE(agree(future->value().toTensor(), x * 2));
  }
  const auto failed = module.run_async("forward", {-x});
  failed->wait();
  EXPECT_TRUE(failed->hasError());
  EXPECT_THAT(failed->tryRetrieveErrorMessage(), HasSubstr("not positive"));
  EXPECT_THAT(message_of([&] { module.run_async("forward", {}); }), HasSubstr("missing value for argument 'x'"));
}

// LibTorch's own `save` ends the process.
TEST(Module, SaysThatADiskIsFull) {
  torch::jit::Module large("__torch__.Large");
  large.register_parameter("w", at::zeros({512, 512}), false);
  large.define("def forward(self, x):\n    return x + self.w\n");
  const Module module = accelerate(large);
  EXPECT_THAT(message_of([&] { module.save("/dev/full"); }),
              HasSubstr("/dev/full: cannot be written: No space left on device"));
  std::ofstream full("/dev/full", std::ios::binary);
  EXPECT_THAT(message_of([&] { module.save(full); }), HasSubstr("the stream cannot be written"));
  EXPECT_TRUE(module.forward({at::ones({1})}).isTensor());
}

// The child has none of the threads that ran the parent's calls.
TEST(Module, RunsAsynchronousCallsInAForkedChild) {
  at::set_num_threads(1);
  torch::jit::Module script("__torch__.Forked");
  script.define("def forward(self, x):\n    return x * 2.0\n");
  const Module module = accelerate(script);
  module.run_async("forward", {at::ones({2})})->wait();
  const pid_t child = ::fork();
  if (child == 0) {
    alarm(20);
    const auto future = module.run_async("forward", {at::ones({2})});
    future->wait();
    _exit(future->value().toTensor()[0].item<double>() == 2.0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sconce
