#include "passes/simplify/propagate_facts.h"

#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "analysis/memory/assigned_attributes.h"
#include "ir/constant_operands.h"
#include "ir/memory_types.h"
#include "load/compile_op_row.h"
#include "shapes/abstract_evaluator.h"
#include "shapes/metadata_mutations.h"
#include "shapes/operator_facts.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <functional>
#include <unordered_set>

namespace sconce {
namespace {

constexpr int64_t kExampleWithoutOne = 8;

// Returns whether a list or dict is one that the graph itself makes.
bool is_made_here(const Value& value) {
  const Node& node = *value.node();
  if (node.opcode() == Opcode::kIf) {
    const auto output = std::find(node.outputs().begin(), node.outputs().end(), &value) - node.outputs().begin();
    return is_made_here(*node.block(0)->returns()[static_cast<size_t>(output)]) &&
           is_made_here(*node.block(1)->returns()[static_cast<size_t>(output)]);
  }
  return node.op().makes_container;
}

class FactPropagation {
 public:
  FactPropagation(Graph& graph, const InputAssumptions& given)
      : graph_(graph), aliases_(graph), mutations_(graph), assigned_(graph), given_(given), arithmetic_(last_given(graph)) {
    find_what_changes();
    for (const int64_t symbol : given_symbols_) {
      const auto example = given.examples.find(symbol);
      arithmetic_.set_example(Dim::symbol(symbol), example == given.examples.end() ? kExampleWithoutOne : example->second);
      if (given.no_symbol_is_one) {
        arithmetic_.set_not_one(Dim::symbol(symbol));
      }
    }
  }

  bool run(KnownNumbers numbers) {
    AbstractEvaluator::Rules rules;
    rules.results = [this](const Node& node, const AbstractValues& operands) {
      if (auto state = state_read_by(node)) {
        return AbstractValues{*state};
      }
      AbstractValues results = operator_facts(node, operands, arithmetic_);
      // Only autocast's casts ask: backward of backward records gradients in graphs compiled without.
      const bool is_silent = given_.autocast && given_.grad_mode == false && !state_changes_ && produces_new_tensor(node);
      if (!results.empty() && (requires_gradient(node, operands) || (is_silent && !introduces_grad(node)))) {
        results[0] = with_requires_grad(results[0], given_.grad_mode == true);
      }
      return results;
    };
    rules.refined = [this](const Value& value, AbstractValue found) {
      if (is_tensor(value)) {
        return with_facts_of(value, is_part_with_gradient(value) ? with_requires_grad(found, true) : found);
      }
      if (value.type()->kind() == c10::TypeKind::NoneType) {
        return AbstractValue::constant(c10::IValue());
      }
      const auto known = given_.values.find(&value);
      return known != given_.values.end() && !may_be_changed(value.type()) ? known->second : found;
    };
    rules.initial_attribute_values = [this](const Node& get) {
      const auto held = given_.initial_attribute_values.find(get.output());
      return held == given_.initial_attribute_values.end() ? AbstractValue() : held->second;
    };
    AbstractEvaluator evaluator(graph_, arithmetic_, AbstractEvaluator::Loops::kFixpoint, std::move(rules));
    evaluator_ = &evaluator;
    evaluator.run(AbstractValues(graph_.inputs().size()));
    bool changed = write_facts(graph_.body().params(), evaluator);
    for_each_node(graph_.body(), [&](Node* node) {
      changed |= write_facts(node->outputs(), evaluator);
      for (const Block* block : node->blocks()) {
        changed |= write_facts(block->params(), evaluator);
      }
    });
    return (numbers == KnownNumbers::kFold && fold_known_numbers(evaluator)) || changed;
  }

 private:
  // Returns whether the value is, or is read from, a value that the graph does not compute.
  bool is_given(const Value& value) const {
    return is_from_outside(value, [this](const Node& get) { return assigned_.contains(get); });
  }

  // The same, but the graph may have stored the value there itself.
  static bool may_be_given(const Value& value) {
    return is_from_outside(value, [](const Node&) { return false; });
  }

  static bool is_from_outside(const Value& value, const std::function<bool(const Node& get)>& is_assigned) {
    const Node* node = value.node();
    while (node->op().is_language() && node->op().returns_existing) {
      if (node->opcode() == Opcode::kGetAttr && is_assigned(*node)) {
        return false;
      }
      node = node->input(0)->node();
    }
    return node->opcode() == Opcode::kParam && node->owning_block()->owner() == nullptr;
  }

  int64_t last_given(const Graph& graph) {
    const auto collect = [&](const Value& value) {
      if (value.facts() != nullptr && is_given(value)) {
        for (const auto* dims : {&value.facts()->sizes, &value.facts()->strides}) {
          for (const Dim dim : dims->value_or(std::vector<Dim>())) {
            if (dim.is_symbol()) {
              given_symbols_.insert(dim.value());
            }
          }
        }
      }
    };
    for (const auto& [symbol, example] : given_.examples) {
      given_symbols_.insert(symbol);
    }
    for (const Value* input : graph.inputs()) {
      collect(*input);
    }
    for_each_node(graph.body(), [&](const Node* node) {
      for (const Value* output : node->outputs()) {
        collect(*output);
      }
    });
    return given_symbols_.empty() ? 0 : *std::max_element(given_symbols_.begin(), given_symbols_.end());
  }

  // Notes the types of lists and dicts from outside that the node may change.
  void find_changed_containers(const Node& node) {
    if (node.schema() == nullptr || effects_of(node).unknown) {
      everything_changes_ |= effects_of(node).unknown;
      return;
    }
    const auto& arguments = node.schema()->arguments();
    for (size_t i = 0; i < arguments.size() && i < node.inputs().size(); ++i) {
      const bool is_written = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
      if (is_written && !is_tensor(*node.input(i)) && !is_made_here(*node.input(i))) {
        changed_types_.push_back(node.input(i)->type());
      }
    }
  }

  // Returns whether a list or dict of the type, or one that it may contain, may be changed.
  bool may_be_changed(const c10::TypePtr& type) const {
    if (!holds_memory(type) || everything_changes_) {
      return holds_memory(type);
    }
    const bool is_changed = std::any_of(changed_types_.begin(), changed_types_.end(),
                                        [&](const c10::TypePtr& changed) { return may_be_of_both_types(changed, type); });
    const auto contained = type->containedTypes();
    return is_changed || std::any_of(contained.begin(), contained.end(),
                                     [this](const c10::TypePtr& inner) { return may_be_changed(inner); });
  }

  // Returns the result of an operator that queries the thread's state, if no operator of the graph changes that state.
  std::optional<AbstractValue> state_read_by(const Node& node) const {
    switch (node.opcode()) {
      case Opcode::kIsGradEnabled: return AbstractValue::boolean(state_changes_ ? std::nullopt : given_.grad_mode);
      case Opcode::kIsAutocastEnabled: return AbstractValue::boolean(state_changes_ ? std::nullopt : std::optional(false));
      case Opcode::kIsAutocastCpuEnabled:
        return AbstractValue::boolean(state_changes_ ? std::nullopt : std::optional(given_.autocast.has_value()));
      default: return std::nullopt;
    }
  }

  // Returns whether autograd records the operator, whose only result then requires a gradient if it is a floating-point
  // tensor or a list of them: an operand requires one that the row's backward text has a gradient for.
  bool requires_gradient(const Node& node, const AbstractValues& operands) const {
    if (given_.grad_mode != true || state_changes_ || node.outputs().size() != 1 ||
        std::none_of(operands.begin(), operands.end(), is_known_to_require_gradient)) {
      return false;
    }
    if (node.opcode() == Opcode::kCat || node.opcode() == Opcode::kStack || node.opcode() == Opcode::kUnbind ||
        node.opcode() == Opcode::kAutocastCast || node.op().cuts) {
      return true;
    }
    const OpGradient* gradient = gradient_of(node.op());
    for (size_t i = 0; gradient != nullptr && i < operands.size(); ++i) {
      if (is_known_to_require_gradient(operands[i]) && has_gradient_for(*gradient, i)) {
        return true;
      }
    }
    return false;
  }

  // Returns whether the value is a part of a tensor that requires a gradient. Their number need not be known.
  bool is_part_with_gradient(const Value& value) const {
    if (value.node()->opcode() != Opcode::kListUnpack) {
      return false;
    }
    const Node& cut = *value.node()->input(0)->node();
    return (cut.op().cuts || cut.opcode() == Opcode::kUnbind) && requires_gradient(cut, {evaluator_->at(*cut.input(0))});
  }

  static bool is_known_to_require_gradient(const AbstractValue& value) {
    if (const AbstractValues* elements = value.as_sequence()) {
      return std::any_of(elements->begin(), elements->end(), is_known_to_require_gradient);
    }
    return value.as_tensor() != nullptr && value.as_tensor()->requires_grad == true;
  }

  static AbstractValue with_requires_grad(const AbstractValue& result, bool required) {
    if (const AbstractValues* elements = result.as_sequence()) {
      AbstractValues known;
      std::transform(elements->begin(), elements->end(), std::back_inserter(known),
                     [&](const AbstractValue& each) { return with_requires_grad(each, required); });
      return AbstractValue::sequence(std::move(known));
    }
    if (result.as_tensor() == nullptr || !result.as_tensor()->dtype || !c10::isFloatingType(*result.as_tensor()->dtype)) {
      return result;
    }
    TensorFacts facts = *result.as_tensor();
    facts.requires_grad = required;
    return AbstractValue::tensor(std::move(facts));
  }

  void find_what_changes() {
    something_requires_grad_ = mutations_.any();
    for (const Value* input : graph_.inputs()) {
      something_requires_grad_ |= may_require_grad(*input);
    }
    for_each_node(graph_.body(), [&](const Node* node) {
      find_changed_containers(*node);
      const Effects effects = effects_of(*node);
      state_changes_ |= effects.state || effects.unknown;
      writes_carry_gradients_ |= effects.unknown || may_write_gradient(*node);
      for (const Value* output : node->outputs()) {
        something_requires_grad_ |=
            (may_be_given(*output) || node->opcode() == Opcode::kConstant) && may_require_grad(*output);
      }
      if (const Value* asks = node->schema() == nullptr ? nullptr : node->named_input("requires_grad")) {
        something_requires_grad_ |= constant_bool(*asks) != false;
        writes_carry_gradients_ |= constant_bool(*asks) != false;  // `requires_grad_`
      }
    });
  }

  // Returns whether autograd may record that the node writes a value that requires a gradient: an operand of it does. It
  // does not record what only the row says, such as a norm's writes of its statistics.
  static bool may_write_gradient(const Node& node) {
    const auto inputs = node.inputs();
    return node.schema() != nullptr && node.schema()->is_mutable() &&
           std::any_of(inputs.begin(), inputs.end(), [](const Value* input) { return may_require_grad(*input); });
  }

  static bool may_require_grad(const Value& value) {
    if (!holds_memory(value.type()) || value.type()->kind() == c10::TypeKind::ClassType) {
      return false;  // reads of an object are handled at the read
    }
    const auto* constant = value.constant();
    if (constant && constant->isTensor()) {
      return constant->toTensor().defined() && constant->toTensor().requires_grad();
    }
    return value.facts() == nullptr || value.facts()->requires_grad != false;
  }

  // A tensor may come to require a gradient because of a value written into it, or into its base.
  TensorFacts lasting(const Value& value, TensorFacts facts) const {
    if (something_requires_grad_ && writes_carry_gradients_ && facts.requires_grad == false &&
        aliases_.may_be_written(value)) {
      facts.requires_grad.reset();
    }
    if (facts.requires_grad == true && !is_given(value) && aliases_.may_be_written(value)) {
      facts.requires_grad.reset();  // by `detach_`
    }
    return facts;
  }

  // Combines the derived facts with those that the value has already.
  AbstractValue with_facts_of(const Value& value, const AbstractValue& found) const {
    if (mutations_.contains(value)) {
      return {};
    }
    TensorFacts facts = found.as_tensor() == nullptr ? TensorFacts{} : *found.as_tensor();
    if (value.facts() != nullptr) {
      facts = all_facts(facts, is_given(value) ? *value.facts() : lasting_facts(*value.facts()));
    }
    // Sparse arguments have no facts, and the text form names every layout but the strided one.
    if (is_given(value) && facts.dtype && !facts.layout) {
      facts.layout = c10::kStrided;
    }
    return AbstractValue::tensor(lasting(value, std::move(facts)));
  }

  // A symbol in the sizes of an argument keeps its meaning. Every propagation makes the other symbols anew.
  TensorFacts lasting_facts(TensorFacts facts) const {
    const auto forget = [](std::optional<std::vector<Dim>>& dims, const auto& lasts) {
      for (size_t i = 0; dims && i < dims->size(); ++i) {
        (*dims)[i] = (*dims)[i].is_symbol() && !lasts((*dims)[i].value()) ? Dim::unknown() : (*dims)[i];
      }
    };
    forget(facts.sizes, [this](int64_t symbol) { return given_symbols_.count(symbol) != 0; });
    forget(facts.strides, [](int64_t) { return false; });
    facts.contiguous = false;  // passes may have changed the strides since
    return facts;
  }

  bool write_facts(c10::ArrayRef<Value*> values, const AbstractEvaluator& evaluator) const {
    bool changed = false;
    for (Value* value : values) {
      const TensorFacts* found = is_tensor(*value) ? evaluator.at(*value).as_tensor() : nullptr;
      if (found == nullptr) {
        continue;
      }
      TensorFacts facts = *found;
      facts.defined = facts.defined == true ? std::nullopt : facts.defined;  // has no text form
      const std::string before = value->facts() == nullptr ? to_string(TensorFacts{}) : to_string(*value->facts());
      if (to_string(facts) != before) {
        value->set_facts(std::move(facts));
        changed = true;
      }
    }
    return changed;
  }

  // Returns what every run computes for the value, if that is None or a number of the value's type.
  static std::optional<c10::IValue> known_number(const Value& value, const AbstractValue& found) {
    switch (value.type()->kind()) {
      case c10::TypeKind::IntType: {
        const auto number = found.as_known_integer();
        return number ? std::optional(c10::IValue(*number)) : std::nullopt;
      }
      case c10::TypeKind::BoolType: {
        const auto boolean = found.as_boolean();
        return boolean ? std::optional(c10::IValue(*boolean)) : std::nullopt;
      }
      case c10::TypeKind::FloatType: {
        const c10::IValue* number = found.as_constant();
        return number != nullptr && number->isDouble() ? std::optional(*number) : std::nullopt;
      }
      case c10::TypeKind::OptionalType: {
        const c10::IValue* none = found.as_constant();
        return none != nullptr && none->isNone() ? std::optional(*none) : std::nullopt;
      }
      default: return std::nullopt;
    }
  }

  bool fold_known_numbers(const AbstractEvaluator& evaluator) {
    bool changed = false;
    const auto fold = [&](Value& value, Node* position) {
      const auto number =
          value.uses().empty() || position == nullptr ? std::nullopt : known_number(value, evaluator.at(value));
      if (number) {
        Value* constant = graph_.insert_constant(*number, position, value.type());
        constant->set_name(value.name());
        value.replace_all_uses_with(constant);
        changed = true;
      }
    };
    std::vector<Node*> nodes;
    for_each_node(graph_.body(), [&](Node* node) { nodes.push_back(node); });
    for (Node* node : nodes) {
      for (Value* output : node->outputs()) {
        if (node->kind() != prim::Constant) {
          fold(*output, node);
        }
      }
    }
    for (Value* input : graph_.inputs()) {
      fold(*input, nodes.empty() ? nullptr : nodes.front());
    }
    return changed;
  }

  Graph& graph_;
  AliasSets aliases_;
  MetadataMutations mutations_;
  AssignedAttributes assigned_;
  const InputAssumptions& given_;
  const AbstractEvaluator* evaluator_ = nullptr;  // while it runs
  std::unordered_set<int64_t> given_symbols_;
  bool something_requires_grad_ = false;
  bool writes_carry_gradients_ = false;
  std::vector<c10::TypePtr> changed_types_;  // types of lists and dicts from outside
  bool everything_changes_ = false;
  bool state_changes_ = false;
  SizeArithmetic arithmetic_;
};

}  // namespace

bool propagate_facts(Graph& graph, const InputAssumptions& given, KnownNumbers numbers) {
  return FactPropagation(graph, given).run(numbers);
}

bool propagate_facts(Graph& graph) { return propagate_facts(graph, {}); }

}  // namespace sconce
