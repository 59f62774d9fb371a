// Equal words, equal facts: one test for each way in which two calls with one key could differ.
#include "tests/executor/argument_spec/known_calls.h"
#include "tests/support/graphs.h"

#include <sconce/sconce.h>

#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>

#include <set>

namespace sconce {
namespace {

using testing::Calls;
using testing::graph_of_method;
using testing::Words;
using Values = std::vector<c10::IValue>;

TEST(Keys, ATensorThatGrowsInAnAttributeHasNoKnownSize) {
  const auto module = testing::module_of(
      "def forward(self, x):\n    self.cache = torch.cat([self.cache, x], 0)\n    return self.cache\n"
      "def read(self, x):\n    return self.cache + x\n",
      {{"cache", at::ones({2, 3})}});
  Calls forward(graph_of_method(module));
  Calls read(graph_of_method(module, "read"));
  const Values arguments = {module._ivalue(), at::ones({2, 3})};
  const Words first = forward.add(arguments);
  const Words first_read = read.add(arguments);
  module._ivalue()->setAttr("cache", at::ones({5, 3}));
  EXPECT_EQ(forward.add(arguments), first);
  EXPECT_EQ(read.add(arguments), first_read);
  module._ivalue()->setAttr("cache", at::ones({1, 3}));
  EXPECT_NE(forward.add(arguments), first) << "a size of 1 is known";
}

TEST(Keys, AParameterOfAnotherSizeHasNoKnownSizeOrOtherWords) {
  auto module = testing::module_of("def forward(self, x):\n    return x @ self.weight\n",
                                   {{"weight", at::ones({3, 4}).requires_grad_(true)}});
  Calls calls(graph_of_method(module));
  const Values arguments = {module._ivalue(), at::ones({2, 3})};
  calls.add(arguments);
  module.attr("weight").toTensor().set_data(at::ones({3, 7}));
  calls.add(arguments);
  module.setattr("weight", at::ones({3, 9}).requires_grad_(true));
  calls.add(arguments);
  module.attr("weight").toTensor().set_data(at::ones({3, 9}, at::kDouble));
  calls.add({module._ivalue(), at::ones({2, 3}, at::kDouble)});
}

TEST(Keys, ValuesOfAttributesAreWords) {
  auto module = testing::module_of(
      "def forward(self, x):\n"
      "    if self.training:\n        x = x * self.scale\n"
      "    if self.mode == 'deep':\n        x = x + self.count\n"
      "    return x\n"
      "def set_scale(self, scale: float):\n    self.scale = scale\n",
      {{"scale", 2.0}, {"mode", "deep"}, {"count", 3}, {"training", true}});
  Calls calls(graph_of_method(module));
  const Values arguments = {module._ivalue(), at::ones({2, 3})};
  std::set<Words> seen = {calls.add(arguments)};
  const auto expect_new = [&](const char* what) { EXPECT_TRUE(seen.insert(calls.add(arguments)).second) << what; };
  module.eval();
  expect_new("eval()");
  module.run_method("set_scale", 0.5);
  expect_new("a float");
  module.setattr("count", 4);
  expect_new("an integer");
  module.setattr("mode", "flat");
  expect_new("a string");
  module.setattr("mode", "another text of more than eight bytes");
  expect_new("a longer string");
  module.setattr("mode", "another text of more than eight bites");
  expect_new("a string of the same length");
  module.setattr("mode", "deep");
  module.setattr("count", 3);
  module.run_method("set_scale", 2.0);
  module.train();
  EXPECT_FALSE(seen.insert(calls.add(arguments)).second) << "as in the first call";
}

// A text that is freed and another one at its address, with the same length.
TEST(Keys, AStringThatReplacesAnotherIsSeen) {
  auto module = testing::module_of("def forward(self, x):\n    return x if self.mode == 'a' else -x\n", {{"mode", "a"}});
  Calls calls(graph_of_method(module));
  const Values arguments = {module._ivalue(), at::ones({2, 3})};
  const Words a = calls.add(arguments);
  for (int i = 0; i < 20; ++i) {
    module.setattr("mode", std::string("b"));
    const Words b = calls.add(arguments);
    EXPECT_NE(a, b);
    module.setattr("mode", std::string("a"));
    EXPECT_EQ(calls.add(arguments), a);
  }
}

TEST(Keys, ValuesThatTheGraphAssignsAreNotKnown) {
  auto module = testing::module_of(
      "def forward(self, x):\n    self.count += 1\n    if self.count > 2:\n        x = -x\n    return x\n", {{"count", 0}});
  Calls calls(graph_of_method(module));
  const Values arguments = {module._ivalue(), at::ones({2, 3})};
  const Words words = calls.add(arguments);
  module.setattr("count", 7);
  EXPECT_EQ(calls.add(arguments), words);
}

TEST(Keys, ElementsOfListsAndDictsOfNumbersAreNotKnown) {
  c10::Dict<std::string, int64_t> dict;
  dict.insert("a", 1);
  auto module = testing::module_of(
      "def forward(self, x):\n    if 'a' in self.table:\n        x = x + self.sizes[0]\n    return x.view(self.sizes)\n",
      {{"table", dict}, {"sizes", c10::List<int64_t>({2, 3})}});
  Calls calls(graph_of_method(module));
  const Values arguments = {module._ivalue(), at::ones({2, 3})};
  calls.add(arguments);
  EXPECT_EQ(dict.erase("a"), 1);
  dict.insert("b", 2);
  calls.add(arguments);
  module.setattr("sizes", c10::List<int64_t>({3, 2}));
  calls.add(arguments);
}

TEST(Keys, TuplesHaveTheirArity) {
  const at::Tensor t = at::ones({2});
  const auto tuple = [](std::vector<c10::IValue> elements) { return c10::ivalue::Tuple::create(std::move(elements)); };
  Calls optional(testing::graph_of("graph(%t : (Tensor?)?):\n  return ()\n"));
  EXPECT_NE(optional.add({c10::IValue()}), optional.add({tuple({c10::IValue()})}));
  Calls any(testing::graph_of("graph(%x : Any, %y : Any):\n  return ()\n"));
  EXPECT_NE(any.add({tuple({t, t}), 5}), any.add({t, tuple({t, 5})}));
  EXPECT_NE(any.add({tuple({t, t}), 5}), any.add({c10::List<at::Tensor>({t, t}), 5}));
}

TEST(Keys, InferenceTensorsHaveTheirOwnWord) {
  Calls calls(testing::graph_of("graph(%x : Tensor):\n  return ()\n"));
  at::Tensor inference;
  {
    const c10::InferenceMode mode;
    inference = at::ones({2});
  }
  EXPECT_NE(calls.add({inference}), calls.add({at::ones({2})}));
}

TEST(Keys, TensorsOfHighRankHaveNoFacts) {
  Calls calls(testing::graph_of("graph(%x : Tensor):\n  return ()\n"));
  const Words plain = calls.add({at::ones(std::vector<int64_t>(16, 1))});
  EXPECT_THAT(calls.facts_of(plain), ::testing::HasSubstr("Float("));
  const Words exotic = calls.add({at::ones(std::vector<int64_t>(17, 1))});
  EXPECT_THAT(calls.facts_of(exotic), ::testing::Not(::testing::HasSubstr("Float")));
}

TEST(Keys, AnArgumentInTheStorageOfAnAttributeIsSeenWhereItIsWritten) {
  auto module =
      testing::module_of("def forward(self, x):\n    x.add_(1)\n    return x + self.state\n", {{"state", at::ones({2})}});
  Calls calls(graph_of_method(module));
  const at::Tensor state = module.attr("state").toTensor();
  EXPECT_NE(calls.add({module._ivalue(), state}), calls.add({module._ivalue(), at::ones({2})}));

  const Module ours = accelerate(module, Options().compile(CompileMode::kBlocking));
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor before = state.clone();
    EXPECT_TRUE(at::equal(ours.forward({state}).toTensor(), 2 * (before + 1)));
  }
}

TEST(Keys, TheStateOfAutocastIsAWord) {
  Calls calls(testing::graph_of("graph(%x : Tensor):\n  return ()\n"));
  std::set<Words> seen = {calls.add({at::ones({2})})};
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    for (const bool keeps_casts : {true, false}) {
      at::autocast::set_autocast_cache_enabled(keeps_casts);
      EXPECT_TRUE(seen.insert(calls.add({at::ones({2})})).second);
    }
  }
  at::autocast::set_autocast_cache_enabled(true);
  at::autocast::set_autocast_dtype(at::kCPU, before);
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

}  // namespace
}  // namespace sconce
