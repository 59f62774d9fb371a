// Equal words, equal facts: whatever changes between two calls without changing the words, the facts that a specialized plan
// assumes hold in both. Facts are compared with the live values by code of this file alone.
#include "executor/argument_spec/argument_spec.h"
#include "executor/argument_spec/facts_of_spec.h"

#include "tests/support/graphs.h"

#include "ir/text/print.h"
#include "load/function_table.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

namespace sconce {
namespace {

using Words = std::vector<uint64_t>;
using Values = std::vector<c10::IValue>;

// ---- facts as text, and against live values -------------------------------------------------------------------------

std::string text_of_value(const AbstractValue& value) {
  if (const TensorFacts* facts = value.as_tensor()) {
    return to_string(*facts);
  }
  if (const AbstractValues* elements = value.as_sequence()) {
    std::string text = "[";
    for (const AbstractValue& element : *elements) {
      text += text_of_value(element) + ", ";
    }
    return text + "]";
  }
  if (value.as_known_integer()) {
    return std::to_string(*value.as_known_integer());
  }
  return value.as_constant() != nullptr ? c10::str(*value.as_constant()) : "unknown";
}

// A graph with what the words say, and nothing of the arguments.
struct Known {
  std::unique_ptr<Graph> graph;
  InputAssumptions given;

  Known(const Graph& source, const ArgumentSpecCreator& creator, const Words& words)
      : graph(source.clone()), given(facts_of_spec(*graph, creator, words)) {}

  // Returns everything that is assumed.
  std::string text() const {
    std::string all = print(*graph) + (given.grad_mode == true ? "grad mode\n" : "no grad\n");
    for (const auto* values : {&given.values, &given.initial_attribute_values}) {
      std::map<int64_t, std::string> lines;
      for (const auto& [value, known] : *values) {
        lines[static_cast<int64_t>(value->id())] = text_of_value(known);
      }
      for (const auto& [id, line] : lines) {
        all += "%" + std::to_string(id) + " " + line + "\n";
      }
    }
    return all;
  }
};

// Compares what is assumed with the values of a call.
class LiveCheck {
 public:
  explicit LiveCheck(const Known& known) : known_(known) {}

  std::vector<std::string> contradictions(const Values& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      check(*known_.graph->inputs()[i], arguments[i]);
    }
    if (known_.given.grad_mode && *known_.given.grad_mode != c10::GradMode::is_enabled()) {
      found_.push_back("grad mode");
    }
    return found_;
  }

 private:
  void check(const Value& value, const c10::IValue& live) {
    if (value.facts() != nullptr) {
      compare(*value.facts(), live, value);
    }
    for (const auto* values : {&known_.given.values, &known_.given.initial_attribute_values}) {
      if (const auto known = values->find(&value); known != values->end()) {
        compare(known->second, live, value);
      }
    }
    for (const Use& use : value.uses()) {
      if (use.user->kind() == prim::GetAttr && live.isObject()) {
        check(*use.user->output(), live.toObjectRef().getAttr(use.user->attribute_as<std::string>(attr::kName)));
      }
    }
  }

  void compare(const AbstractValue& known, const c10::IValue& live, const Value& value) {
    if (const TensorFacts* facts = known.as_tensor()) {
      compare(*facts, live, value);
    } else if (const AbstractValues* elements = known.as_sequence()) {
      const bool fits = (live.isTuple() && live.toTupleRef().size() == elements->size()) ||
                        (live.isList() && live.toListRef().size() == elements->size());
      expect(fits, value, "length");
      for (size_t i = 0; fits && i < elements->size(); ++i) {
        compare((*elements)[i], live.isTuple() ? live.toTupleRef().elements()[i] : live.toListRef()[i], value);
      }
    } else if (known.as_known_integer()) {
      expect(live.isInt() && live.toInt() == *known.as_known_integer(), value, "number");
    } else if (const c10::IValue* constant = known.as_constant()) {
      expect(c10::str(constant->tagKind(), *constant) == c10::str(live.tagKind(), live), value, "value");
    }
  }

  void compare(const TensorFacts& facts, const c10::IValue& live, const Value& value) {
    expect(live.isTensor() && live.toTensor().defined(), value, "tensor");
    if (!live.isTensor() || !live.toTensor().defined()) {
      return;
    }
    const at::Tensor& tensor = live.toTensor();
    expect(facts.defined != false, value, "defined");
    expect(!facts.dtype || *facts.dtype == tensor.scalar_type(), value, "dtype");
    expect(!facts.device || *facts.device == tensor.device(), value, "device");
    expect(!facts.layout || *facts.layout == tensor.layout(), value, "layout");
    expect(!facts.requires_grad || *facts.requires_grad == tensor.requires_grad(), value, "requires_grad");
    expect(!facts.strides, value, "no strides");
    expect(!facts.sizes || facts.sizes->size() == static_cast<size_t>(tensor.dim()), value, "rank");
    for (size_t i = 0; facts.sizes && i < facts.sizes->size() && i < static_cast<size_t>(tensor.dim()); ++i) {
      const Dim dim = (*facts.sizes)[i];
      const int64_t size = tensor.size(static_cast<int64_t>(i));
      if (dim.is_known()) {
        expect(dim.value() == size, value, "size");
      } else if (dim.is_symbol()) {
        expect(sizes_.emplace(dim.value(), size).first->second == size, value, "symbol");
        expect(size != 1, value, "size of 1");
      }
    }
  }

  void expect(bool holds, const Value& value, const std::string& what) {
    if (!holds) {
      found_.push_back(what + " of %" + value.name());
    }
  }

  const Known& known_;
  std::map<int64_t, int64_t> sizes_;
  std::vector<std::string> found_;
};

// The calls of one graph: every new one against all that is known from those before it.
class Calls {
 public:
  explicit Calls(std::unique_ptr<Graph> graph) : graph_(std::move(graph)), creator_(*graph_) {}

  // Returns the words of the call, after checking that the facts from these words hold.
  Words add(const Values& arguments) {
    creator_.create(arguments, spec_);
    Words words(spec_.words().begin(), spec_.words().end());
    const Known known(*graph_, creator_, words);
    const std::string text = known.text();
    const auto [before, is_new] = texts_.emplace(words, text);
    EXPECT_EQ(before->second, text);
    EXPECT_THAT(LiveCheck(known).contradictions(arguments), ::testing::IsEmpty()) << text;
    // A creator that remembers nothing writes the same words.
    ArgumentSpec fresh;
    ArgumentSpecCreator(*graph_).create(arguments, fresh);
    EXPECT_TRUE(std::ranges::equal(fresh.words(), words)) << "the words are not those of a new creator";
    repeated_ += is_new ? 0 : 1;
    const std::string described = describe_spec(words);
    EXPECT_EQ(descriptions_.emplace(described, words).first->second, words) << "two specs in one description: " << described;
    return words;
  }
  std::string facts_of(const Words& words) const { return texts_.at(words); }
  size_t repeated() const { return repeated_; }
  size_t different() const { return texts_.size(); }

 private:
  std::unique_ptr<Graph> graph_;
  ArgumentSpecCreator creator_;
  ArgumentSpec spec_;  // used again, as an executor does
  std::map<Words, std::string> texts_;
  std::map<std::string, Words> descriptions_;
  size_t repeated_ = 0;
};

std::unique_ptr<Graph> graph_of_method(const torch::jit::Module& module, const std::string& name = "forward") {
  FunctionTable functions;
  return (**functions.graph_of(module.get_method(name).function())).clone();
}

// ---- one test for each way in which two calls with one key could differ ---------------------------------------------

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

TEST(Keys, TheDtypeOfAutocastIsAWord) {
  Calls calls(testing::graph_of("graph(%x : Tensor):\n  return ()\n"));
  std::set<Words> seen = {calls.add({at::ones({2})})};
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    EXPECT_TRUE(seen.insert(calls.add({at::ones({2})})).second);
  }
  at::autocast::set_autocast_dtype(at::kCPU, before);
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

// ---- anything at once -----------------------------------------------------------------------------------------------

class RandomCalls {
 public:
  explicit RandomCalls(uint64_t seed) : random_(seed) {
    inner_ = testing::module_of("def forward(self, x):\n    return x\n",
                                {{"w", at::ones({2, 3})}, {"p", at::ones({3}).requires_grad_(true)}, {"eps", 0.5}});
    outer_.register_module("inner", inner_);
    outer_.register_attribute("training", c10::BoolType::get(), true);
    outer_.register_buffer("cache", at::ones({2, 3}));
    outer_.register_buffer("log", at::ones({2}));
    outer_.register_attribute("maybe", c10::OptionalType::ofTensor(), c10::IValue());
    outer_.register_attribute("steps", c10::OptionalType::create(c10::IntType::get()), c10::IValue());
    outer_.register_attribute("history", c10::ListType::ofTensors(), c10::List<at::Tensor>());
    outer_.register_attribute("name", c10::StringType::get(), std::string("a"));
    outer_.register_attribute("depth", c10::IntType::get(), 1);
    outer_.register_attribute("count", c10::IntType::get(), 0);
    outer_.define(R"(
def forward(self, x: Tensor, y: Optional[Tensor], pair: Tuple[Tensor, Optional[Tensor]], table: Dict[str, Tensor],
            many: List[Tensor], numbers: List[int], any: Any):
    self.count += 1
    self.log = x
    total = [x, self.cache, self.inner.w, self.inner.p, self.log]
    if self.training and self.inner.eps > 0 and self.name == "a" and self.depth > 0:
        total.append(x)
    maybe = self.maybe
    if maybe is not None and self.steps is not None:
        total.append(maybe)
    x.add_(len(self.history))
    return total, y, pair, table, many, numbers, any
)");
  }

  std::unique_ptr<Graph> graph() const { return graph_of_method(outer_); }

  Values next() {
    for (int changes = pick(3); changes > 0; --changes) {
      change_an_attribute();
    }
    const at::Tensor x = chance() ? tensor() : outer_.attr("cache").toTensor().detach();
    c10::Dict<std::string, at::Tensor> table;
    for (int i = pick(3); i > 0; --i) {
      table.insert(std::string(1, static_cast<char>('a' + pick(4))), tensor());
    }
    c10::List<at::Tensor> many;
    for (int i = pick(3); i > 0; --i) {
      many.push_back(tensor());
    }
    c10::List<int64_t> numbers;
    for (int i = pick(3); i > 0; --i) {
      numbers.push_back(pick(100));
    }
    return {outer_._ivalue(),
            x,
            chance() ? c10::IValue() : c10::IValue(tensor()),
            c10::ivalue::Tuple::create(tensor(), chance() ? c10::IValue() : c10::IValue(x)),
            table,
            many,
            numbers,
            any()};
  }

 private:
  int pick(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  bool chance() { return pick(2) == 0; }

  at::Tensor tensor() {
    const c10::InferenceMode mode(pick(8) == 0);
    std::vector<int64_t> sizes;
    for (int i = pick(3); i > 0; --i) {
      sizes.push_back(pick(4));
    }
    const at::Tensor made = at::ones(sizes, chance() ? at::kFloat : at::kDouble);
    switch (pick(12)) {
      case 0: return made.to_sparse();
      case 1: return at::Tensor();
      case 2: return made.dim() == 2 ? made.t() : made;
      default: return made.is_inference() ? made : made.set_requires_grad(pick(8) == 0);
    }
  }

  c10::IValue any() {
    switch (pick(5)) {
      case 0: return {};
      case 1: return pick(3);
      case 2: return std::string("text");
      case 3: return c10::ivalue::Tuple::create(tensor(), pick(9));
      default: return tensor();
    }
  }

  void change_an_attribute() {
    const auto outer = outer_._ivalue();
    const auto inner = inner_._ivalue();
    switch (pick(14)) {
      case 0: outer_.train(chance()); break;
      case 1: inner->setAttr("eps", static_cast<double>(pick(2))); break;
      case 2: outer->setAttr("name", std::string(static_cast<size_t>(pick(3)), 'a')); break;
      case 3: outer->setAttr("depth", pick(2)); break;
      case 4: outer->setAttr("count", pick(100)); break;
      case 5: outer->setAttr("cache", at::ones({pick(3) + 1, 3})); break;
      case 6: outer->setAttr("maybe", chance() ? c10::IValue() : c10::IValue(tensor())); break;
      case 7: outer->setAttr("steps", chance() ? c10::IValue() : c10::IValue(pick(3))); break;
      case 8: outer_.attr("history").toTensorList().push_back(tensor()); break;
      case 9: outer->setAttr("history", c10::List<at::Tensor>()); break;
      case 10: outer->setAttr("log", tensor()); break;
      case 11: inner->setAttr("w", tensor()); break;
      case 12: inner_.attr("p").toTensor().set_data(at::ones({pick(4) + 1})); break;
      default: inner_.attr("p").toTensor().requires_grad_(chance()); break;
    }
  }

  std::mt19937_64 random_;
  torch::jit::Module inner_;
  torch::jit::Module outer_{"Outer"};
};

TEST(Keys, EqualWordsHaveEqualFactsThatHold) {
  size_t repeated = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomCalls random(seed);
    Calls calls(random.graph());
    for (int call = 0; call < 60 && !::testing::Test::HasFailure(); ++call) {
      const c10::AutoGradMode mode(call % 3 != 0);
      const Values arguments = random.next();
      calls.add(arguments);
      // The same key, where possible, with other sizes and values.
      Values others = arguments;
      for (c10::IValue& other : others) {
        if (other.isTensor() && other.toTensor().defined() && !other.toTensor().is_sparse() &&
            !other.toTensor().is_inference()) {
          std::vector<int64_t> sizes = other.toTensor().sizes().vec();
          std::ranges::transform(sizes, sizes.begin(), [](int64_t size) { return size > 1 ? size + 3 : size; });
          other = at::zeros(sizes, other.toTensor().options()).set_requires_grad(other.toTensor().requires_grad());
        }
      }
      calls.add(others);
    }
    repeated += calls.repeated();
  }
  EXPECT_GT(repeated, 100U) << "of calls with the words of an earlier one";
}

}  // namespace
}  // namespace sconce
