// Effects, aliases, escapes of memory to the outside, and the schema corrections they read (rules R1, R5).
#include "tests/support/graphs.h"

#include "analysis/dot.h"
#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "base/environment.h"
#include "ir/dump.h"
#include "ir/schema_match.h"
#include "ir/text/parse.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>

namespace sconce {
namespace {

using testing::find_node;
using testing::find_value;
using testing::graph_of;
using ::testing::HasSubstr;
using ::testing::Not;

const c10::FunctionSchema& schema_of(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).schema();
}

// ---- effects --------------------------------------------------------------------------------------------------------

Effects effects_in(const std::string& body, const char* kind) {
  const auto graph =
      graph_of("graph(%a : Tensor, %b : Tensor, %p : float, %flag : bool, %s : str, %none : NoneType, %n : int):\n" + body +
               "  return ()\n");
  return effects_of(*find_node(*graph, kind));
}

TEST(Effects, OfAPureOperatorAreNone) {
  EXPECT_FALSE(effects_in("  %x : Tensor = aten::mul(%a, %b)\n", "aten::mul").any());
  EXPECT_FALSE(effects_in("  %x : Tensor[] = prim::ListConstruct(%a, %b)\n", "prim::ListConstruct").any());
  EXPECT_FALSE(effects_in("  %x : int = aten::size(%a, %n)\n", "aten::size").any());
}

TEST(Effects, OfAnInPlaceOperatorAreWrites) {
  const Effects effects = effects_in("  %x : Tensor = aten::mul_(%a, %b)\n", "aten::mul_");
  EXPECT_TRUE(effects.writes);
  EXPECT_FALSE(effects.random || effects.external || effects.unknown);
}

TEST(Effects, OfBatchNormAreWritesThoughItsSchemaDoesNotSaySo) {
  EXPECT_FALSE(schema_of("aten::batch_norm").is_mutable()) << "LibTorch's schema tells the truth now: drop the correction";
  EXPECT_TRUE(
      effects_in("  %x : Tensor = aten::batch_norm(%a, %none, %none, %a, %b, %flag, %p, %p, %flag)\n", "aten::batch_norm")
          .writes);
}

// `training` is the constant False.
TEST(Effects, OfBatchNormThatDoesNotTrainAreNone) {
  const std::string constants = "  %no : bool = prim::Constant[value=0]()\n";
  EXPECT_FALSE(effects_in(constants + "  %x : Tensor = aten::batch_norm(%a, %none, %none, %a, %b, %no, %p, %p, %flag)\n",
                          "aten::batch_norm")
                   .any());
  EXPECT_FALSE(effects_in(constants + "  %x : Tensor = aten::instance_norm(%a, %none, %none, %a, %b, %no, %p, %p, %flag)\n",
                          "aten::instance_norm")
                   .any());
  at::Tensor mean = at::ones({2});
  at::Tensor variance = at::ones({2});
  const int64_t version = mean._version();
  at::batch_norm(at::randn({4, 2}), {}, {}, mean, variance, /*training=*/false, 0.5, 1e-5, true);
  at::instance_norm(at::randn({4, 2, 3}), {}, {}, mean, variance, /*use_input_stats=*/false, 0.5, 1e-5, true);
  EXPECT_TRUE(mean.equal(at::ones({2})) && variance.equal(at::ones({2})));
  EXPECT_EQ(mean._version(), version);
}

TEST(Effects, OfRandomOperatorsAreRandomAlsoOfComposites) {
  EXPECT_TRUE(effects_in("  %x : Tensor = aten::bernoulli(%a, %none)\n", "aten::bernoulli").random);
  EXPECT_TRUE(effects_in("  %x : Tensor = aten::dropout(%a, %p, %flag)\n", "aten::dropout").random);
  EXPECT_TRUE(
      effects_in("  %x : Tensor = aten::randn_like(%a, %none, %none, %none, %none, %none)\n", "aten::randn_like").random);
  EXPECT_TRUE(effects_in("  %x : Tensor = aten::uniform_(%a, %p, %p, %none)\n", "aten::uniform_").random);
  EXPECT_TRUE(effects_in("  %x : Tensor = aten::rrelu(%a, %n, %n, %flag, %none)\n", "aten::rrelu").random);
}

// What LibTorch says itself about its random operators: all of them, and not only those above.
TEST(Effects, OfEveryOperatorThatTakesAGeneratorOrIsTaggedSeededAreRandom) {
  size_t seen = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !name.name.starts_with("aten::") || !op->hasTag(at::Tag::nondeterministic_seeded)) {
      continue;
    }
    Graph graph;
    Node* node = graph.create(c10::Symbol::fromQualString(name.name), {}, 1);
    node->set_op(op_of(op->schema()));
    const Effects effects = effects_of(*node);
    EXPECT_TRUE(effects.random || effects.unknown) << name;
    ++seen;
  }
  EXPECT_GT(seen, 50);
}

TEST(Effects, OfPrintRaiseAndAttributeWritesKeepTheNode) {
  EXPECT_TRUE(effects_in("  prim::Print(%s)\n", "prim::Print").external);
  EXPECT_TRUE(effects_in("  prim::RaiseException(%s, %none)\n", "prim::RaiseException").external);
  EXPECT_TRUE(effects_in("  aten::manual_seed(%n)\n", "aten::manual_seed").any());
  const auto graph =
      graph_of("graph(%self : __torch__.M, %a : Tensor):\n   = prim::SetAttr[name=\"x\"](%self, %a)\n  return ()\n");
  EXPECT_TRUE(effects_of(*find_node(*graph, "prim::SetAttr")).writes);
}

TEST(Effects, OfWhatIsUnknownAreUnknown) {
  const auto graph =
      parse("graph(%a : Tensor):\n  %x : Tensor = mine::thing(%a)\n  return ()\n", {.require_schemas = false});
  EXPECT_TRUE(effects_of(*find_node(*graph, "mine::thing")).unknown);
}

TEST(Effects, OfABlockCountForTheNodeAroundIt) {
  const auto graph = graph_of(
      "graph(%a : Tensor, %flag : bool):\n"
      "  prim::If(%flag)\n"
      "    block0():\n"
      "      prim::If(%flag)\n"
      "        block0():\n"
      "          %x : Tensor = aten::neg_(%a)\n"
      "          -> ()\n"
      "        block1():\n"
      "          -> ()\n"
      "      -> ()\n"
      "    block1():\n"
      "      -> ()\n"
      "  return ()\n");
  EXPECT_FALSE(effects_of(*find_node(*graph, "prim::If")).any());
  EXPECT_TRUE(has_effects(*find_node(*graph, "prim::If")));
}

// ---- corrections ----------------------------------------------------------------------------------------------------

TEST(SchemaCorrections, DropoutMayHandItsArgumentBack) {
  EXPECT_TRUE(op_of(schema_of("aten::dropout")).results_may_share_memory);
  const at::Tensor x = at::ones({2});
  EXPECT_TRUE(at::dropout(x, 0.5, false).is_same(x)) << "LibTorch's dropout copies now";
}

// Operators that the list vouches for, called with the arguments most likely to make them hand something back.
TEST(SchemaCorrections, OperatorsVouchedForGiveMemoryOfTheirOwn) {
  const at::Tensor x = at::ones({2, 2});
  const at::Tensor eye = at::eye(2);
  const at::Tensor image = at::ones({1, 1, 2, 2});
  const std::vector<std::tuple<const char*, at::Tensor, at::Tensor>> results = {
      {"linear", at::linear(x, eye), x},
      {"matmul", at::matmul(x, eye), x},
      {"softmax", at::softmax(at::ones({1, 1}), 1), x},
      {"max_pool2d", at::max_pool2d(image, {1, 1}), image},
      {"avg_pool1d", at::avg_pool1d(at::ones({1, 1, 3}), {1}), image},
      {"adaptive_avg_pool2d", at::adaptive_avg_pool2d(image, {2, 2}), image},
      {"adaptive_avg_pool1d", at::adaptive_avg_pool1d(at::ones({1, 1, 2}), {2}), image},
      {"conv2d", at::conv2d(image, at::ones({1, 1, 1, 1})), image},
      {"layer_norm", at::layer_norm(x, {2}), x},
      {"group_norm", at::group_norm(image, 1), image},
      {"batch_norm", at::batch_norm(image, {}, {}, at::zeros({1}), at::ones({1}), false, 0.1, 1e-5, true), image},
      {"instance_norm", at::instance_norm(image, {}, {}, {}, {}, true, 0.1, 1e-5, true), image},
      {"relu6", at::relu6(x), x},
      {"selu", at::selu(x), x},
      {"prelu", at::prelu(x, at::ones({1})), x},
      {"special_ndtr", at::special_ndtr(x), x},
      {"square", at::square(x), x},
      {"multiply", at::multiply(x, 1), x},
      {"divide", at::divide(x, 1), x},
      {"subtract", at::subtract(x, 0), x},
      {"stack", at::stack({x}), x},
      {"scaled_dot_product_attention", at::scaled_dot_product_attention(image, at::ones({1, 1, 1, 2}), image), image},
      {"one_hot", at::one_hot(at::zeros({1}, at::kLong), 1), x},
      {"linalg_inv", at::linalg_inv(eye), eye},
      {"linalg_cholesky", at::linalg_cholesky(eye), eye},
  };
  for (const auto& [name, result, argument] : results) {
    EXPECT_FALSE(result.is_alias_of(argument)) << name;
    EXPECT_FALSE(
        op_of(schema_of((std::string("aten::") + name).c_str(),
                        std::string(name) == "softmax" ? "int"
                        : std::string(name) == "multiply" || std::string(name) == "divide" || std::string(name) == "subtract"
                            ? "Tensor"
                            : ""))
            .results_may_share_memory)
        << name;
  }
}

TEST(SchemaCorrections, RecurrentOperatorsGiveMemoryOfTheirOwn) {
  const at::Tensor x = at::ones({1, 1, 2});  // one step: the last state is the only one
  const at::Tensor h = at::zeros({1, 1, 2});
  const auto weights = [](int64_t gates) {
    return std::vector<at::Tensor>{at::ones({2 * gates, 2}), at::ones({2 * gates, 2})};
  };
  const auto [lstm, lstm_h, lstm_c] = at::lstm(x, {h, h}, weights(4), false, 1, 0, false, false, false);
  const auto [gru, gru_h] = at::gru(x, h, weights(3), false, 1, 0, false, false, false);
  const auto [rnn, rnn_h] = at::rnn_tanh(x, h, weights(1), false, 1, 0, false, false, false);
  const at::Tensor lengths = at::ones({1}, at::kLong);
  const auto [packed, packed_h] = at::rnn_relu(x[0], lengths, h, weights(1), false, 1, 0, false, false);
  for (const at::Tensor& result : {lstm, lstm_h, lstm_c, gru, gru_h, rnn, rnn_h, packed, packed_h}) {
    EXPECT_FALSE(result.is_alias_of(x) || result.is_alias_of(h));
  }
  for (const char* name : {"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"}) {
    EXPECT_FALSE(op_of(schema_of(name, "input")).results_may_share_memory ||
                 op_of(schema_of(name, "data")).results_may_share_memory);
  }
}

// ---- alias sets -----------------------------------------------------------------------------------------------------

struct Aliases {
  explicit Aliases(const std::string& text) : graph(graph_of(text)), sets(*graph) {}
  bool may_alias(const char* a, const char* b) const {
    return sets.may_alias(*find_value(*graph, a), *find_value(*graph, b));
  }
  bool written(const char* a) const { return sets.may_be_written(*find_value(*graph, a)); }
  bool wildcard(const char* a) const { return sets.is_wildcard(*find_value(*graph, a)); }
  std::unique_ptr<Graph> graph;
  AliasSets sets;
};

TEST(AliasSets, KnowNothingOfAValueMadeAfterTheAnalysis) {
  const auto graph = graph_of(
      "graph(%a : Tensor):\n"
      "  %x : Tensor = aten::neg_(%a)\n"
      "  return (%x)\n");
  const AliasSets sets(*graph);
  Node* late = graph->create(aten::relu, {find_value(*graph, "a")});
  EXPECT_TRUE(sets.is_wildcard(*late->output()));
  EXPECT_TRUE(sets.may_be_written(*late->output())) << "the write to %a may be one to it";
  EXPECT_TRUE(sets.may_alias(*late->output(), *find_value(*graph, "a")));
  Node* number = graph->create(prim::Constant, {}, 0);
  EXPECT_EQ(sets.set_of(*number->add_output(c10::IntType::get())), AliasSets::kNone);
}

TEST(AliasSets, ViewsShareWithTheirBaseAndFreshResultsWithNothing) {
  const Aliases aliases(
      "graph(%in : Tensor, %n : int):\n"
      "  %base : Tensor = aten::relu(%in)\n"
      "  %other : Tensor = aten::tanh(%in)\n"
      "  %view : Tensor = aten::select(%base, %n, %n)\n"
      "  %t : Tensor = aten::t(%view)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("view", "base"));
  EXPECT_TRUE(aliases.may_alias("t", "base"));
  EXPECT_FALSE(aliases.may_alias("base", "in"));
  EXPECT_FALSE(aliases.may_alias("other", "base"));
  EXPECT_FALSE(aliases.may_alias("n", "n")) << "numbers hold no memory";
}

TEST(AliasSets, AWriteToACopyOfAListLeavesTheList) {
  const Aliases aliases(
      "graph(%list : int[], %n : int):\n"
      "  %copy : int[] = aten::copy(%list)\n"
      "  %same : int[] = aten::_set_item(%copy, %n, %n)\n"
      "  return (%copy)\n");
  EXPECT_TRUE(aliases.written("copy"));
  EXPECT_TRUE(aliases.may_alias("copy", "same"));
  EXPECT_FALSE(aliases.written("list"));
}

TEST(AliasSets, AWriteThroughAViewIsAWriteToItsBase) {
  const Aliases aliases(
      "graph(%in : Tensor, %n : int):\n"
      "  %base : Tensor = aten::relu(%in)\n"
      "  %other : Tensor = aten::tanh(%in)\n"
      "  %view : Tensor = aten::select(%base, %n, %n)\n"
      "  %w : Tensor = aten::neg_(%view)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.written("base"));
  EXPECT_TRUE(aliases.may_alias("w", "base"));
  EXPECT_FALSE(aliases.written("other"));
  EXPECT_FALSE(aliases.written("in"));
}

TEST(AliasSets, InputsMayShareWithEachOtherAndWithConstants) {
  const Aliases aliases("graph(%a : Tensor, %b : Tensor, %l : Tensor[]):\n  %w : Tensor = aten::neg_(%a)\n  return ()\n");
  EXPECT_TRUE(aliases.may_alias("a", "b"));
  EXPECT_TRUE(aliases.wildcard("a"));
  EXPECT_TRUE(aliases.written("b"));
}

TEST(AliasSets, ObjectsOfDifferentTypesAreTwo) {
  const Aliases aliases(
      "graph(%t : Tensor, %o : Tensor?, %l : Tensor[], %lo : Tensor?[], %n : int[], %p : (Tensor, NoneType),\n"
      "      %q : (Tensor, Tensor?), %m : __torch__.M, %k : __torch__.K, %d : Dict(str, Tensor), %any : Any):\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("t", "o"));
  EXPECT_TRUE(aliases.may_alias("l", "lo"));
  EXPECT_TRUE(aliases.may_alias("p", "q")) << "a tuple with None is of both types";
  EXPECT_TRUE(aliases.may_alias("any", "t"));
  EXPECT_TRUE(aliases.may_alias("any", "l"));
  EXPECT_TRUE(aliases.may_alias("m", "m"));
  EXPECT_FALSE(aliases.may_alias("t", "l"));
  EXPECT_FALSE(aliases.may_alias("l", "n"));
  EXPECT_FALSE(aliases.may_alias("l", "d"));
  EXPECT_FALSE(aliases.may_alias("m", "k"));
}

TEST(AliasSets, AWriteToOneKindOfMemoryLeavesTheOthers) {
  const std::string inputs =
      "graph(%t : Tensor, %l : Tensor[], %d : Dict(str, Tensor), %m : __torch__.M, %p : (Tensor, int[]), %any : Any,\n"
      "      %s : str, %n : int):\n";
  const auto written_by = [&](const std::string& node) {
    const Aliases aliases(inputs + "  " + node + "\n  return ()\n");
    std::string all;
    for (const char* const name : {"t", "l", "d", "m", "p", "any", "s"}) {
      all += aliases.written(name) ? name + std::string(" ") : "";
    }
    return all;
  };
  EXPECT_EQ(written_by("%w : Tensor = aten::neg_(%t)"), "t p any ");
  EXPECT_EQ(written_by("%w : Tensor[] = aten::append(%l, %t)"), "l p any ");
  EXPECT_EQ(written_by("aten::_set_item(%d, %s, %t)"), "d any ");
  EXPECT_EQ(written_by("prim::SetAttr[name=\"a\"](%m, %t)"), "m any ");
  EXPECT_EQ(written_by("aten::_foreach_neg_(%l)"), "t l p any ");
  EXPECT_EQ(written_by("%w : Tensor = prim::CallMethod[name=\"f\"](%m)"), "t l d m p any ");
}

TEST(AliasSets, DropoutAndReshapeMayShareWithTheirArgument) {
  const Aliases aliases(
      "graph(%in : Tensor, %p : float, %train : bool, %size : int[]):\n"
      "  %x : Tensor = aten::relu(%in)\n"
      "  %d : Tensor = aten::dropout(%x, %p, %train)\n"
      "  %r : Tensor = aten::reshape(%x, %size)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("d", "x"));
  EXPECT_TRUE(aliases.may_alias("r", "x"));
}

TEST(AliasSets, BatchNormWritesItsStatistics) {
  const Aliases aliases(
      "graph(%in : Tensor, %p : float, %flag : bool, %none : NoneType):\n"
      "  %x : Tensor = aten::relu(%in)\n"
      "  %mean : Tensor = aten::relu(%in)\n"
      "  %var : Tensor = aten::relu(%in)\n"
      "  %y : Tensor = aten::batch_norm(%x, %none, %none, %mean, %var, %flag, %p, %p, %flag)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.written("mean"));
  EXPECT_TRUE(aliases.written("var"));
  EXPECT_FALSE(aliases.written("x"));
  EXPECT_FALSE(aliases.may_alias("y", "x"));
}

TEST(AliasSets, WhatComesOutOfAListMayBeWhatWentIn) {
  const Aliases aliases(
      "graph(%in : Tensor, %n : int):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::tanh(%in)\n"
      "  %c : Tensor = aten::neg(%in)\n"
      "  %l : Tensor[] = prim::ListConstruct(%a)\n"
      "  %l2 : Tensor[] = aten::append(%l, %b)\n"
      "  %out : Tensor = aten::__getitem__(%l, %n)\n"
      "  %u : Tensor, %v : Tensor = prim::ListUnpack(%l)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("out", "a"));
  EXPECT_TRUE(aliases.may_alias("out", "b")) << "appended";
  EXPECT_TRUE(aliases.may_alias("u", "a"));
  EXPECT_FALSE(aliases.may_alias("out", "c"));
  EXPECT_FALSE(aliases.may_alias("l", "a")) << "a list is not its element";
  EXPECT_TRUE(aliases.written("l"));
  EXPECT_FALSE(aliases.written("b")) << "what is appended stays as it is";
}

TEST(AliasSets, TuplesDictsAndNestedListsCarryTheirElements) {
  const Aliases aliases(
      "graph(%in : Tensor, %k : str, %n : int):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::relu(%in)\n"
      "  %t : (Tensor, int) = prim::TupleConstruct(%a, %n)\n"
      "  %x : Tensor, %m : int = prim::TupleUnpack(%t)\n"
      "  %d : Dict(str, Tensor) = prim::DictConstruct(%k, %x)\n"
      "  %y : Tensor = aten::__getitem__(%d, %k)\n"
      "  %inner : Tensor[] = prim::ListConstruct(%b)\n"
      "  %outer : Tensor[][] = prim::ListConstruct(%inner)\n"
      "  %again : Tensor[] = aten::__getitem__(%outer, %n)\n"
      "  %z : Tensor = aten::__getitem__(%again, %n)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("x", "a"));
  EXPECT_TRUE(aliases.may_alias("y", "a"));
  EXPECT_TRUE(aliases.may_alias("again", "inner"));
  EXPECT_TRUE(aliases.may_alias("z", "b"));
  EXPECT_FALSE(aliases.may_alias("z", "a"));
}

TEST(AliasSets, ChunksAndSplitsShareWithTheirTensor) {
  const Aliases aliases(
      "graph(%in : Tensor, %n : int):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %chunks : Tensor[] = aten::chunk(%a, %n, %n)\n"
      "  %c : Tensor = aten::__getitem__(%chunks, %n)\n"
      "  %w : Tensor = aten::neg_(%c)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("c", "a"));
  EXPECT_TRUE(aliases.written("a"));
}

TEST(AliasSets, BranchesAndLoopsMayHandOnWhatTheyGet) {
  const Aliases aliases(
      "graph(%in : Tensor, %flag : bool, %n : int):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::relu(%in)\n"
      "  %c : Tensor = aten::relu(%in)\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      -> (%a)\n"
      "    block1():\n"
      "      -> (%b)\n"
      "  %l : Tensor, %m : Tensor = prim::Loop(%n, %flag, %r, %c)\n"
      "    block0(%i : int, %v : Tensor, %w : Tensor):\n"
      "      -> (%flag, %w, %v)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("r", "a"));
  EXPECT_TRUE(aliases.may_alias("r", "b"));
  EXPECT_TRUE(aliases.may_alias("l", "c")) << "the loop swaps them";
  EXPECT_TRUE(aliases.may_alias("m", "a"));
}

TEST(AliasSets, AttributesAreTheOutside) {
  const Aliases aliases(
      "graph(%self : __torch__.M, %in : Tensor):\n"
      "  %w : Tensor = prim::GetAttr[name=\"w\"](%self)\n"
      "  %kept : Tensor = aten::relu(%in)\n"
      "  %free : Tensor = aten::relu(%in)\n"
      "  prim::SetAttr[name=\"w\"](%self, %kept)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.wildcard("w"));
  EXPECT_TRUE(aliases.wildcard("kept"));
  EXPECT_FALSE(aliases.wildcard("free"));
}

TEST(AliasSets, WhatIsStoredIntoAListFromOutsideIsOutside) {
  const Aliases aliases(
      "graph(%list : Tensor[], %in : Tensor):\n"
      "  %kept : Tensor = aten::relu(%in)\n"
      "  %l2 : Tensor[] = aten::append(%list, %kept)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.wildcard("kept"));
}

TEST(AliasSets, UnknownOperatorsMayKeepAndWriteEverything) {
  const auto graph =
      parse("graph(%in : Tensor):\n  %a : Tensor = aten::relu(%in)\n  %x : Tensor = mine::thing(%a)\n  return ()\n",
            {.require_schemas = false});
  const AliasSets sets(*graph);
  EXPECT_TRUE(sets.is_wildcard(*find_value(*graph, "a")));
  EXPECT_TRUE(sets.may_be_written(*find_value(*graph, "a")));
  EXPECT_TRUE(sets.is_wildcard(*find_value(*graph, "x")));
}

TEST(AliasSets, AnOptionalThatIsUncheckedCastIsTheSameTensor) {
  const Aliases aliases(
      "graph(%in : Tensor):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %l : Tensor?[] = prim::ListConstruct(%a)\n"
      "  %n : int = prim::Constant[value=0]()\n"
      "  %o : Tensor? = aten::__getitem__(%l, %n)\n"
      "  %c : Tensor = prim::unchecked_cast(%o)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("c", "a"));
}

TEST(AliasSets, ExtendedListsHoldWhatTheOtherListHolds) {
  const Aliases aliases(
      "graph(%in : Tensor, %n : int):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::relu(%in)\n"
      "  %l : Tensor[] = prim::ListConstruct(%a)\n"
      "  %m : Tensor[] = prim::ListConstruct(%b)\n"
      "  aten::extend(%l, %m)\n"
      "  %out : Tensor = aten::__getitem__(%l, %n)\n"
      "  %inner : Tensor[] = prim::ListConstruct(%in)\n"
      "  %outer : Tensor[][] = prim::ListConstruct()\n"
      "  %same : Tensor[][] = aten::append(%outer, %inner)\n"
      "  %again : Tensor[] = aten::__getitem__(%outer, %n)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("out", "a"));
  EXPECT_TRUE(aliases.may_alias("out", "b"));
  EXPECT_FALSE(aliases.may_alias("l", "m")) << "the lists stay two";
  EXPECT_TRUE(aliases.may_alias("again", "inner"));
}

TEST(AliasSets, ItemsOfADictArePairsOfWhatLiesInIt) {
  const Aliases aliases(
      "graph(%in : Tensor, %k : str, %n : int):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %d : Dict(str, Tensor) = prim::DictConstruct(%k, %a)\n"
      "  %items : (str, Tensor)[] = aten::items(%d)\n"
      "  %pair : (str, Tensor) = aten::__getitem__(%items, %n)\n"
      "  %key : str, %v : Tensor = prim::TupleUnpack(%pair)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("v", "a"));
  EXPECT_FALSE(aliases.wildcard("v"));
}

TEST(AliasSets, SetAndUnsafeViewShareMemoryThoughTheirSchemasDoNotSaySo) {
  const Aliases aliases(
      "graph(%in : Tensor, %size : int[]):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::relu(%in)\n"
      "  %c : Tensor = aten::relu(%in)\n"
      "  %s : Tensor = aten::set_(%a, %b)\n"
      "  %v : Tensor = aten::_unsafe_view(%c, %size)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("s", "b"));
  EXPECT_TRUE(aliases.may_alias("a", "b"));
  EXPECT_TRUE(aliases.written("b"));
  EXPECT_TRUE(aliases.may_alias("v", "c"));
  EXPECT_FALSE(aliases.may_alias("v", "a"));
}

TEST(AliasSets, AnUndefinedSummandGivesTheOtherBack) {
  const Aliases aliases(
      "graph(%in : Tensor):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %zero : Tensor = prim::AutogradZero()\n"
      "  %sum : Tensor = prim::AutogradAdd(%a, %zero)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("sum", "a"));
  EXPECT_FALSE(aliases.wildcard("sum"));
}

TEST(AliasSets, NoneIsNothingThatOthersCouldHold) {
  const Aliases aliases(
      "graph(%in : Tensor, %flag : bool):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %none : Tensor? = prim::Constant()\n"
      "  %r : Tensor? = prim::If(%flag)\n"
      "    block0():\n"
      "      -> (%a)\n"
      "    block1():\n"
      "      -> (%none)\n"
      "  return ()\n");
  EXPECT_TRUE(aliases.may_alias("r", "a"));
  EXPECT_FALSE(aliases.wildcard("a"));
}

// ---- schema matching, synonyms --------------------------------------------------------------------------------------

TEST(SchemaMatch, ChoosesTheOverloadByTheTypes) {
  const auto graph = graph_of(
      "graph(%a : Tensor, %n : int, %x : float, %l : Tensor[]):\n"
      "  %p : Tensor = aten::mul(%a, %a)\n"
      "  %q : Tensor = aten::mul(%a, %x)\n"
      "  %r : int = aten::mul(%n, %n)\n"
      "  %e : Tensor = aten::__getitem__(%l, %n)\n"
      "  return ()\n");
  EXPECT_EQ(find_value(*graph, "p")->node()->schema()->overload_name(), "Tensor");
  EXPECT_EQ(find_value(*graph, "q")->node()->schema()->overload_name(), "Scalar");
  EXPECT_EQ(find_value(*graph, "r")->node()->schema()->overload_name(), "int");
  EXPECT_EQ(find_value(*graph, "q")->node()->named_input("other"), find_value(*graph, "x"));
  EXPECT_EQ(find_value(*graph, "q")->node()->named_input("nothing"), nullptr);
}

TEST(SchemaMatch, ExplainsWhatWasGivenAndWhatExists) {
  const std::string message =
      testing::message_of([] { parse("graph(%s : str, %a : Float(2)):\n  %x : Tensor = aten::relu(%s)\n  return ()\n"); });
  EXPECT_THAT(message, HasSubstr("no overload of aten::relu takes (str)"));
  EXPECT_THAT(message, HasSubstr("aten::relu(Tensor self) -> Tensor"));
}

// ---- dumps, pictures, environment -----------------------------------------------------------------------------------

TEST(Dump, FiltersByPointAndSubject) {
  EXPECT_TRUE(dump_wanted("after:fuse", DumpPoint::kAfter, "fuse"));
  EXPECT_FALSE(dump_wanted("after:fuse", DumpPoint::kAfter, "fuse_more"));
  EXPECT_FALSE(dump_wanted("after:fuse", DumpPoint::kBefore, "fuse"));
  EXPECT_TRUE(dump_wanted("load,after", DumpPoint::kAfter, "anything"));
  EXPECT_TRUE(dump_wanted("load,plan:forward", DumpPoint::kPlan, "forward"));
  EXPECT_FALSE(dump_wanted("load,plan:forward", DumpPoint::kPlan, "backward"));
  EXPECT_TRUE(dump_wanted("all", DumpPoint::kLoad, "x"));
  EXPECT_FALSE(dump_wanted("", DumpPoint::kLoad, "x"));
  EXPECT_FALSE(dump_wanted("loads,,aft", DumpPoint::kLoad, "x"));
}

TEST(Dump, EveryPointHasANameAndHelp) {
  EXPECT_EQ(dump_choices().size(), 4);
  for (const DumpChoice& choice : dump_choices()) {
    EXPECT_TRUE(dump_wanted(choice.name, choice.point, "x")) << choice.name;
    EXPECT_FALSE(choice.help.empty());
  }
}

TEST(Environment, IsReadOnce) { EXPECT_EQ(&environment(), &environment()); }

TEST(Dot, ShowsNodesEdgesBlocksAndConstantsInsideTheirUsers) {
  const auto graph = graph_of(
      "graph(%x : Float(2), %flag : bool):\n"
      "  %one : int = prim::Constant[value=17]()\n"
      "  %r : Tensor = prim::If(%flag) # model.py:1:2\n"
      "    block0():\n"
      "      %y : Tensor = aten::add(%x, %x, %one)\n"
      "      -> (%y)\n"
      "    block1():\n"
      "      %z : Tensor = aten::neg_(%x)\n"
      "      -> (%z)\n"
      "  return (%r)\n");
  const std::string dot = to_dot(*graph, "a \"title\"");
  EXPECT_THAT(dot, ::testing::StartsWith("digraph \"a \\\"title\\\"\" {"));
  for (const char* part :
       {"aten::add", "alpha=17", "aten::neg_", "prim::If", "cluster_", "%x : Float(2)", "return", "model.py:1:2"}) {
    EXPECT_THAT(dot, HasSubstr(part));
  }
  EXPECT_THAT(dot, Not(HasSubstr("prim::Constant"))) << "constants are drawn inside their users";
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
  EXPECT_EQ(count_if(dot.begin(), dot.end(), [](char c) { return c == '>'; }) > 4, true);
}

}  // namespace
}  // namespace sconce
