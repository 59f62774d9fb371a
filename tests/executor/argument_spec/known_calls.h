// Calls of one graph whose keys are compared: facts from the words of a spec, against live values. The comparison shares no
// code with the derivation of facts.
#pragma once

#include "executor/argument_spec/argument_spec.h"
#include "executor/argument_spec/facts_of_spec.h"

#include "ir/text/print.h"
#include "load/function_table.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/api/module.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sconce::testing {

using Words = std::vector<uint64_t>;

inline std::string text_of_value(const AbstractValue& value) {
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

  std::vector<std::string> contradictions(const std::vector<c10::IValue>& arguments) {
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
  Words add(const std::vector<c10::IValue>& arguments) {
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

inline std::unique_ptr<Graph> graph_of_method(const torch::jit::Module& module, const std::string& name = "forward") {
  FunctionTable functions;
  return (**functions.graph_of(module.get_method(name).function())).clone();
}

}  // namespace sconce::testing
