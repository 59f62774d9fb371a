// Words of attributes are kept from call to call: every change between two calls must be seen.
#include "executor/argument_spec/attribute_memo.h"
#include "executor/argument_spec/argument_spec.h"
#include "executor/argument_spec/fields.h"

#include "tests/support/graphs.h"
#include "tests/support/spec_facts.h"

#include "ir/text/parse.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

namespace sconce {
namespace {

using Values = std::vector<c10::IValue>;

struct ScriptedObject {
  torch::jit::Module inner =
      testing::module_of("def forward(self, x):\n    return x\n", {{"w", at::ones({2, 3})},
                                                                   {"b", at::ones({3})},
                                                                   {"state", at::empty_strided({3, 2}, {1, 3}).fill_(1)},
                                                                   {"dims", c10::List<int64_t>({1, 0})}});
  torch::jit::Module outer{"Outer"};
  std::unique_ptr<Graph> graph;

  ScriptedObject() {
    inner.register_parameter("p", at::ones({4, 1}), /*is_buffer=*/false);
    outer.register_module("inner", inner);
    const ParseOptions options{.resolve_type = [&](const std::string& name) -> c10::TypePtr {
      return name == "__torch__.I" ? inner.type() : outer.type();
    }};
    graph = parse(
        "graph(%self : __torch__.O, %x : Tensor):\n"
        "  %i : __torch__.I = prim::GetAttr[name=\"inner\"](%self)\n"
        "  %w : Tensor = prim::GetAttr[name=\"w\"](%i)\n"
        "  %b : Tensor = prim::GetAttr[name=\"b\"](%i)\n"
        "  %s : Tensor = prim::GetAttr[name=\"state\"](%i)\n"
        "  %p : Tensor = prim::GetAttr[name=\"p\"](%i)\n"
        "  %d : int[] = prim::GetAttr[name=\"dims\"](%i)\n"
        "  %t : Tensor = aten::permute(%w, %d)\n"
        "  return (%t, %b, %s, %p, %w)\n",
        options);
  }
  Values arguments() const { return {outer._ivalue(), at::ones({2})}; }
  at::Tensor get(const char* name) { return inner.attr(name).toTensor(); }
  void set(const char* name, const at::Tensor& tensor) { inner._ivalue()->setAttr(name, tensor); }
};

// A creator that has never been used has nothing to remember.
std::vector<uint64_t> fresh_words(const ScriptedObject& program) {
  ArgumentSpec spec;
  ArgumentSpecCreator(*program.graph).create(program.arguments(), spec);
  return {spec.words().begin(), spec.words().end()};
}

struct Change {
  const char* what;
  std::function<void(ScriptedObject&)> make;
  bool changes_words = true;
};

std::vector<Change> changes() {
  return {
      {"set_data", [](ScriptedObject& p) { p.get("w").set_data(at::ones({2, 3}, at::kDouble)); }},
      {"set_data of another shape", [](ScriptedObject& p) { p.get("w").set_data(at::ones({1, 6})); }},
      {"requires_grad", [](ScriptedObject& p) { p.get("w").requires_grad_(true); }},
      {"resize_", [](ScriptedObject& p) { p.get("w").resize_({1, 6}); }},
      {"resize_ to a high rank", [](ScriptedObject& p) { p.get("w").resize_({1, 1, 1, 1, 1, 6}); }},
      {"t_", [](ScriptedObject& p) { p.get("w").t_(); }},
      {"another tensor", [](ScriptedObject& p) { p.set("b", at::ones({3}, at::kLong)); }},
      {"an undefined tensor", [](ScriptedObject& p) { p.set("b", at::Tensor()); }},
      {"a sparse tensor", [](ScriptedObject& p) { p.set("b", at::ones({3}).to_sparse()); }},
      {"a computed tensor", [](ScriptedObject& p) { p.set("b", at::ones({3}).requires_grad_(true) * 2); }},
      {"another rank", [](ScriptedObject& p) { p.set("b", at::ones({3, 3})); }},
      {"a parameter of other sizes", [](ScriptedObject& p) { p.set("p", at::ones({5, 1})); }},
      {"a parameter resized", [](ScriptedObject& p) { p.get("p").resize_({3, 1}); }},
      {"other strides in a dim of one element", [](ScriptedObject& p) { p.get("p").as_strided_({4, 1}, {1, 3}); }},
      {"an undefined parameter", [](ScriptedObject& p) { p.set("p", at::Tensor()); }},
      {"a parameter like it", [](ScriptedObject& p) { p.set("p", at::zeros({4, 1})); }, false},
      {"an element of a list",
       [](ScriptedObject& p) {
         c10::List<int64_t> dims = p.inner.attr("dims").toIntList();
         dims.set(0, 0);
         dims.set(1, 1);
       }},
      {"a longer list", [](ScriptedObject& p) { p.inner.attr("dims").toIntList().push_back(2); }},
      {"a list like it", [](ScriptedObject& p) { p.inner._ivalue()->setAttr("dims", c10::List<int64_t>({1, 0})); }, false},
      {"another object",
       [](ScriptedObject& p) {
         const auto copy = p.inner.clone();
         copy._ivalue()->setAttr("w", at::ones({2, 3}, at::kDouble));
         p.outer._ivalue()->setAttr("inner", copy._ivalue());
         p.inner = copy;
       }},
      {"other values", [](ScriptedObject& p) { p.get("w").fill_(3); }, false},
      {"a tensor like it", [](ScriptedObject& p) { p.set("b", at::zeros({5})); }, false},
  };
}

TEST(AttributeMemo, EveryChangeOfAnAttributeIsSeen) {
  for (const Change& change : changes()) {
    SCOPED_TRACE(change.what);
    ScriptedObject program;
    const ArgumentSpecCreator creator(*program.graph);
    ArgumentSpec spec;
    const auto words_now = [&] {
      creator.create(program.arguments(), spec);
      return std::vector<uint64_t>(spec.words().begin(), spec.words().end());
    };
    const auto before = words_now();
    const uint64_t hash_before = spec.hash();
    EXPECT_EQ(words_now(), before) << "from memory";
    EXPECT_EQ(spec.hash(), hash_before) << "from memory";
    change.make(program);
    const auto after = words_now();
    EXPECT_EQ(after, fresh_words(program));
    EXPECT_EQ(after != before, change.changes_words);
    EXPECT_EQ(spec.requires_grad(),
              std::ranges::any_of(
                  Values{program.inner.attr("w"), program.inner.attr("b"), program.inner.attr("p")},
                  [](const c10::IValue& value) { return value.toTensor().defined() && value.toTensor().requires_grad(); }));
    EXPECT_EQ(words_now(), after) << "from memory";
  }
}

// Returns a memo of all attributes that the graph reads; null if one of them cannot be remembered.
std::unique_ptr<const AttributeMemo> memo_of(const ScriptedObject& program) {
  const auto slot_of = [](const torch::jit::Module& module, const char* name) {
    return &module._ivalue()->slots()[module._ivalue()->type()->getAttributeSlot(name)];
  };
  const std::vector<FoundObject> objects = {
      {.slot = nullptr, .argument = 0, .object = program.outer._ivalue().get()},
      {.slot = slot_of(program.outer, "inner"), .argument = 0, .object = program.inner._ivalue().get()}};
  const std::vector<const c10::IValue*> attributes = {slot_of(program.inner, "w"), slot_of(program.inner, "b"),
                                                      slot_of(program.inner, "state"), slot_of(program.inner, "p")};
  const std::vector<const c10::IValue*> constants = {slot_of(program.inner, "dims")};
  const std::vector<uint64_t> words = fresh_words(program);
  return AttributeMemo::make(objects, attributes, constants,
                             std::span(words).subspan(spec_words::kStateWords, attributes.size()));
}

TEST(AttributeMemo, HoldsUntilAnAttributeChanges) {
  for (const Change& change : changes()) {
    SCOPED_TRACE(change.what);
    ScriptedObject program;
    const auto memo = memo_of(program);
    ASSERT_NE(memo, nullptr);
    EXPECT_TRUE(memo->holds(program.arguments()));
    change.make(program);
    EXPECT_FALSE(change.changes_words && memo->holds(program.arguments()));
  }
}

TEST(AttributeMemo, SizesOfParametersAreFacts) {
  const ScriptedObject program;
  const std::unique_ptr<Graph> known = program.graph->clone();
  testing::facts_of_call(*known, program.arguments(), testing::Sizes::kSymbols);
  const auto sizes_of = [&](size_t output) { return *known->outputs()[output]->facts()->sizes; };
  EXPECT_EQ(sizes_of(3), (std::vector{Dim::known(4), Dim::known(1)})) << "a parameter";
  EXPECT_TRUE(sizes_of(4)[0].is_symbol()) << "a buffer";
  EXPECT_NE(sizes_of(4)[1], sizes_of(1)[0]) << "two buffers";
}

TEST(AttributeMemo, IntegersOfListsAreFacts) {
  const ScriptedObject program;
  const std::unique_ptr<Graph> known = program.graph->clone();
  propagate_facts(*known, testing::facts_of_call(*known, program.arguments(), testing::Sizes::kSymbols));
  const auto sizes_of = [&](size_t output) { return *known->outputs()[output]->facts()->sizes; };
  EXPECT_EQ(sizes_of(0), (std::vector{sizes_of(4)[1], sizes_of(4)[0]})) << "permuted";
}

// The words of these change without a change of the tensor itself.
TEST(AttributeMemo, IsNotMadeOfTensorsThatAutogradComputed) {
  const at::Tensor base = at::ones({2, 3});
  for (const at::Tensor& tensor : {base.slice(1, 0, 2), base * at::ones({3}).requires_grad_(true)}) {
    ScriptedObject program;
    ASSERT_NE(memo_of(program), nullptr);
    program.set("b", tensor);
    EXPECT_EQ(memo_of(program), nullptr);
  }
}

TEST(AttributeMemo, ABaseThatRequiresAGradientChangesTheWordsOfItsView) {
  ScriptedObject program;
  const at::Tensor base = at::ones({2, 3});
  program.set("b", base.slice(1, 0, 2));
  const ArgumentSpecCreator creator(*program.graph);
  ArgumentSpec spec;
  for (const bool requires_grad : {false, true, false}) {
    base.requires_grad_(requires_grad);
    for (int i = 0; i < 3; ++i) {
      creator.create(program.arguments(), spec);
      EXPECT_EQ(spec.requires_grad(), requires_grad);
      EXPECT_THAT(fresh_words(program), ::testing::ElementsAreArray(spec.words().begin(), spec.words().end()));
    }
  }
}

TEST(AttributeMemo, AttributesThatKeepChangingAreSeenEveryTime) {
  ScriptedObject program;
  const ArgumentSpecCreator creator(*program.graph);
  ArgumentSpec spec;
  for (int i = 0; i < 200; ++i) {
    program.set("b", i % 3 == 0 ? at::ones({3}, at::kDouble) : at::ones({3}, at::kLong));
    creator.create(program.arguments(), spec);
    EXPECT_THAT(fresh_words(program), ::testing::ElementsAreArray(spec.words().begin(), spec.words().end())) << i;
  }
}

// The words of one graph's attributes must not be taken for another's.
TEST(AttributeMemo, OneSpecServesTwoGraphs) {
  ScriptedObject first;
  ScriptedObject second;
  second.set("b", at::ones({3}, at::kDouble));
  const ArgumentSpecCreator of_first(*first.graph);
  const ArgumentSpecCreator of_second(*second.graph);
  const ArgumentSpecCreator without_attributes(*testing::graph_of("graph(%x : Tensor[]):\n  return ()\n"));
  ArgumentSpec spec;
  for (int i = 0; i < 3; ++i) {
    of_first.create(first.arguments(), spec);
    EXPECT_THAT(fresh_words(first), ::testing::ElementsAreArray(spec.words().begin(), spec.words().end()));
    of_second.create(second.arguments(), spec);
    EXPECT_THAT(fresh_words(second), ::testing::ElementsAreArray(spec.words().begin(), spec.words().end()));
    without_attributes.create(Values{c10::List<at::Tensor>(std::vector<at::Tensor>(20, at::ones({2})))}, spec);
    of_first.create(first.arguments(), spec);
    EXPECT_THAT(fresh_words(first), ::testing::ElementsAreArray(spec.words().begin(), spec.words().end()));
  }
}

}  // namespace
}  // namespace sconce
