// Operators on numbers and lists, for AbstractEvaluator.
#include "analysis/effects.h"
#include "base/assert.h"
#include "ir/memory_types.h"
#include "shapes/abstract_evaluator.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>

namespace sconce {
namespace {

// Returns the facts that cover every tensor among the elements. Nothing if another element is not a tensor.
AbstractValue any_of(const AbstractValues& elements) {
  std::optional<TensorFacts> common;
  for (const AbstractValue& element : elements) {
    const TensorFacts* facts = element.as_tensor();
    if (facts == nullptr) {
      return {};
    }
    common = common ? common_facts(*common, *facts) : *facts;
  }
  return common ? AbstractValue::tensor(std::move(*common)) : AbstractValue();
}

}  // namespace

void AbstractEvaluator::run_operator(const Node& node) {
  if (node.outputs().size() == 1) {
    if (AbstractValue result = integer_result(node); !result.is_unknown()) {
      set(node.output(), std::move(result));
      return;
    }
  }
  if (run_list_operator(node) || run_dict_operator(node) || run_unbind(node)) {
    return;
  }
  AbstractValues operands;
  for (const Value* input : node.inputs()) {
    operands.push_back(with(path_constraints_, heap_.snapshot(at(*input))));
  }
  if ((node.opcode() == Opcode::kEqual || node.opcode() == Opcode::kNotEqual) && operands.size() == 2 &&
      operands[0].as_sequence() != nullptr) {
    compared_.insert_or_assign(&node, std::pair(operands[0], operands[1]));
  }
  auto results = constant_results(node);
  if (!results) {
    results = rules_.results ? rules_.results(node, operands) : AbstractValues(node.outputs().size());
  }
  // An operator may keep a reference to a list operand, or return it, and so modify it later. Treat operands as
  // escaped unless the schema rules this out.
  const auto& arguments = node.schema()->arguments();
  const Effects effects = effects_of(node);
  const bool may_keep_lists = effects.unknown || effects.external || effects.state;
  const bool produces_containers = std::ranges::any_of(node.outputs(), [](const Value* output) {
    return holds_memory(output->type()) && output->type()->kind() != c10::TypeKind::TensorType;
  });
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (may_keep_lists || i >= arguments.size() || arguments[i].alias_info() != nullptr) {
      heap_.escape(at(*node.input(i)));
    } else if (produces_containers) {
      heap_.escape_contents(at(*node.input(i)));
    }
  }
  SCONCE_ASSERT(results->size() == node.outputs().size(), *node.schema());
  for (size_t i = 0; i < results->size(); ++i) {
    const bool is_list = node.output(i)->type()->kind() == c10::TypeKind::ListType;
    if (is_list && (*results)[i].as_sequence() != nullptr && node.outputs().size() == 1) {
      make_list(*node.output(), {.elements = *(*results)[i].as_sequence()});
    } else {
      set(node.output(i), is_list ? AbstractValue() : (*results)[i]);
    }
  }
}

// Evaluates an operation on integers, or one that returns an integer.
AbstractValue AbstractEvaluator::integer_result(const Node& node) const {
  const auto& inputs = node.inputs();
  const auto operand = [&](size_t i) { return now(*inputs[i]).as_integer(); };
  if (inputs.size() == 1 && node.opcode() == Opcode::kLength) {
    const AbstractValue row = heap_.snapshot(at(*inputs[0]));
    const AbstractValues* elements = row.as_mapping() == nullptr ? row.as_sequence() : &row.as_mapping()->keys;
    return elements == nullptr ? AbstractValue() : AbstractValue::integer(static_cast<int64_t>(elements->size()));
  }
  // By the values, not by their types: a `Scalar` may be an integer.
  if (inputs.empty() || !std::ranges::all_of(inputs, [&](const Value* input) { return at(*input).is_integer(); })) {
    return {};
  }
  const auto negated = [](std::optional<bool> value) { return value ? std::optional(!*value) : std::nullopt; };
  if (inputs.size() == 1) {
    switch (node.opcode()) {
      case Opcode::kNeg: return AbstractValue::integer(arithmetic_.subtract(Dim::known(0), operand(0)));
      case Opcode::kInt:
      case Opcode::kCeil:
      case Opcode::kFloor: return at(*inputs[0]);
      default: return {};
    }
  }
  if (inputs.size() != 2) {
    return {};
  }
  const Dim a = operand(0);
  const Dim b = operand(1);
  switch (node.opcode()) {
    case Opcode::kAdd: return AbstractValue::integer(arithmetic_.add(a, b));
    case Opcode::kSub: return AbstractValue::integer(arithmetic_.subtract(a, b));
    case Opcode::kMul: return AbstractValue::integer(arithmetic_.multiply(a, b));
    case Opcode::kFloorDivideNumbers: return AbstractValue::integer(arithmetic_.floor_divide(a, b));
    case Opcode::kRemainder: return AbstractValue::integer(arithmetic_.remainder(a, b));
    case Opcode::kMax: return AbstractValue::integer(arithmetic_.maximum(a, b));
    case Opcode::kMin: return AbstractValue::integer(arithmetic_.minimum(a, b));
    case Opcode::kEqual: return AbstractValue::boolean(arithmetic_.equal(a, b));
    case Opcode::kNotEqual: return AbstractValue::boolean(negated(arithmetic_.equal(a, b)));
    case Opcode::kLess: return AbstractValue::boolean(arithmetic_.less(a, b));
    case Opcode::kGreaterEqual: return AbstractValue::boolean(negated(arithmetic_.less(a, b)));
    case Opcode::kGreater: return AbstractValue::boolean(arithmetic_.less(b, a));
    case Opcode::kLessEqual: return AbstractValue::boolean(negated(arithmetic_.less(b, a)));
    default: return {};
  }
}

namespace {

// Returns what is known of the cat or stack of an unknown number of tensors, each of which has the facts `every`.
AbstractValue joined_tensors(const AbstractValue& every, std::optional<int64_t> dim, bool stacks) {
  if (every.as_tensor() == nullptr) {
    return {};
  }
  TensorFacts facts = *every.as_tensor();
  facts.forget_strides();
  const int64_t rank = facts.sizes ? static_cast<int64_t>(facts.sizes->size()) + (stacks ? 1 : 0) : 0;
  if (!dim || *dim < -rank || *dim >= rank) {
    facts.sizes.reset();
  } else if (const auto position = facts.sizes->begin() + (*dim < 0 ? *dim + rank : *dim); stacks) {
    facts.sizes->insert(position, Dim::unknown());
  } else {
    *position = Dim::unknown();
  }
  facts.defined.reset();
  facts.requires_grad = facts.requires_grad == false ? facts.requires_grad : std::nullopt;
  return AbstractValue::tensor(std::move(facts));
}

}  // namespace

// Evaluates an unbind of a tensor whose size in the dim is not known: a list of equal tensors.
bool AbstractEvaluator::run_unbind(const Node& node) {
  const TensorFacts* tensor = node.opcode() == Opcode::kUnbind ? at(*node.input(0)).as_tensor() : nullptr;
  auto dim = tensor == nullptr ? std::nullopt : at(*node.input(1)).as_known_integer();
  const auto rank = tensor == nullptr || !tensor->sizes ? int64_t{0} : static_cast<int64_t>(tensor->sizes->size());
  if (!dim || *dim < -rank || *dim >= rank) {
    return false;
  }
  const auto position = static_cast<std::ptrdiff_t>(*dim < 0 ? *dim + rank : *dim);
  TensorFacts part = *tensor;
  if ((part.sizes->begin() + position)->is_known()) {
    return false;
  }
  part.sizes->erase(part.sizes->begin() + position);
  if (part.strides) {
    part.strides->erase(part.strides->begin() + position);
  }
  part.contiguous = false;
  part.requires_grad = part.requires_grad == false ? part.requires_grad : std::nullopt;
  make_list(*node.output(), {.every = AbstractValue::tensor(std::move(part))});
  return true;
}

// Evaluates operators on lists and optionals, whose operands need not be constants.
bool AbstractEvaluator::run_list_operator(const Node& node) {
  const Opcode opcode = node.opcode();
  if (opcode == Opcode::kIs || opcode == Opcode::kIsNot) {
    const auto is_none = [](const AbstractValue& value) -> std::optional<bool> {
      return value.is_unknown() ? std::nullopt
                                : std::optional(value.as_constant() != nullptr && value.as_constant()->isNone());
    };
    if (node.input(0) == node.input(1) && node.input(0)->type()->kind() == c10::TypeKind::TensorType) {
      set(node.output(), AbstractValue::boolean(opcode == Opcode::kIs));
      return true;
    }
    const auto a = is_none(at(*node.input(0)));
    const auto b = is_none(at(*node.input(1)));
    const bool decided = a && b && (*a || *b);  // if neither is None, their identities decide
    set(node.output(), decided ? AbstractValue::boolean((*a && *b) == (opcode == Opcode::kIs)) : AbstractValue());
    return true;
  }
  if (node.inputs().empty() || node.input(0)->type()->kind() != c10::TypeKind::ListType) {
    return false;
  }
  const ListId* id = at(*node.input(0)).as_list();
  const AbstractValue row = at(*node.input(0));
  const AbstractValues* elements = heap_.elements_of(row);
  const auto change = [&](AbstractValues changed) {
    const ListId list = *id;
    for (const AbstractValue& element : changed) {
      put_into_container(element);
    }
    heap_.set(list, {.elements = std::move(changed)});
    if (!node.outputs().empty()) {
      set(node.output(), row);
    }
  };
  switch (opcode) {
    case Opcode::kGetItem: {
      if (elements != nullptr) {
        const auto index = index_into(*elements, *node.input(1));
        set(node.output(), index ? (*elements)[*index] : any_of(*elements));
      } else {
        set(node.output(), id != nullptr ? heap_.at(*id).every : AbstractValue());
      }
      return true;
    }
    case Opcode::kAppend: {
      if (id == nullptr) {
        return false;
      }
      if (elements != nullptr) {
        AbstractValues longer = *elements;
        longer.push_back(at(*node.input(1)));
        change(std::move(longer));
      } else {
        put_into_container(at(*node.input(1)));
        heap_.set(*id, heap_.join(AbstractList(heap_.at(*id)), {.elements = AbstractValues{at(*node.input(1))}}));
        set(node.output(), row);
      }
      return true;
    }
    case Opcode::kStack:
    case Opcode::kCat: {
      if (elements != nullptr || id == nullptr) {
        return false;
      }
      set(node.output(),
          joined_tensors(heap_.at(*id).every, at(*node.input(1)).as_known_integer(), opcode == Opcode::kStack));
      return true;
    }
    case Opcode::kSetItem: {
      const auto index = elements == nullptr || id == nullptr ? std::nullopt : index_into(*elements, *node.input(1));
      if (!index) {
        return false;
      }
      AbstractValues changed = *elements;
      changed[*index] = at(*node.input(2));
      change(std::move(changed));
      return true;
    }
    case Opcode::kExtend:
    case Opcode::kAdd: {
      const AbstractValues* others = heap_.elements_of(at(*node.input(1)));
      if (elements == nullptr || others == nullptr || (opcode != Opcode::kAdd && id == nullptr)) {
        return false;
      }
      AbstractValues all = *elements;
      all.insert(all.end(), others->begin(), others->end());
      if (opcode == Opcode::kAdd) {
        make_list(*node.output(), {.elements = std::move(all)});
      } else {
        change(std::move(all));
      }
      return true;
    }
    case Opcode::kInsert: {
      const auto index = at(*node.input(1)).as_known_integer();
      if (elements == nullptr || id == nullptr || !index) {
        return false;
      }
      // As in Python, a position beyond an end means that end.
      const auto size = static_cast<int64_t>(elements->size());
      AbstractValues longer = *elements;
      longer.insert(longer.begin() + std::clamp<int64_t>(*index + (*index < 0 ? size : 0), 0, size), at(*node.input(2)));
      change(std::move(longer));
      return true;
    }
    case Opcode::kCopyContainer:
    case Opcode::kMakeList: {
      if (elements == nullptr || node.inputs().size() != 1) {
        return false;
      }
      make_list(*node.output(), {.elements = *elements});
      return true;
    }
    case Opcode::kSlice: {
      const auto bound = [&](size_t input, int64_t otherwise) -> std::optional<int64_t> {
        const AbstractValue& value = at(*node.input(input));
        return value.as_constant() != nullptr && value.as_constant()->isNone() ? otherwise : value.as_known_integer();
      };
      const auto size = elements == nullptr ? int64_t{0} : static_cast<int64_t>(elements->size());
      auto begin = bound(1, 0);
      auto end = bound(2, size);
      if (elements == nullptr || !begin || !end || at(*node.input(3)).as_known_integer() != 1) {
        return false;
      }
      for (int64_t* position : {&*begin, &*end}) {
        *position = std::clamp<int64_t>(*position + (*position < 0 ? size : 0), 0, size);
      }
      make_list(*node.output(),
                {.elements = *begin < *end ? AbstractValues(elements->begin() + *begin, elements->begin() + *end)
                                           : AbstractValues()});
      return true;
    }
    default: return false;
  }
}

namespace {

// Returns the value if it is known. Requires a snapshot. Excludes dicts, whose order of insertion is observable.
std::optional<c10::IValue> known_value(const AbstractValue& value, const c10::TypePtr& type) {
  if (const auto number = value.as_known_integer()) {
    return c10::IValue(*number);
  }
  if (value.as_constant() != nullptr) {
    return *value.as_constant();
  }
  const AbstractValues* elements = value.as_sequence();
  if (elements == nullptr || type->kind() != c10::TypeKind::ListType) {
    return std::nullopt;
  }
  c10::impl::GenericList list(type->expectRef<c10::ListType>().getElementType());
  for (const AbstractValue& element : *elements) {
    auto known = known_value(element, list.elementType());
    if (!known) {
      return std::nullopt;
    }
    list.push_back(std::move(*known));
  }
  return list;
}

}  // namespace

// Evaluates an operator on known numbers and strings.
std::optional<AbstractValues> AbstractEvaluator::constant_results(const Node& node) const {
  if (node.inputs().empty() || effects_of(node).any() || node.op().reads_state || node.schema()->is_vararg() ||
      std::ranges::any_of(node.outputs(),
                          [](const Value* output) { return output->type()->kind() == c10::TypeKind::TensorType; })) {
    return std::nullopt;
  }
  std::vector<c10::IValue> stack;
  for (const Value* input : node.inputs()) {
    auto known = known_value(heap_.snapshot(at(*input)), input->type());
    if (!known) {
      return std::nullopt;
    }
    stack.push_back(std::move(*known));
  }
  const auto& op = node.op().registered;
  if (op == nullptr) {
    return std::nullopt;
  }
  try {
    op->getOperation()(stack);
  } catch (const std::exception&) {
    return AbstractValues(node.outputs().size());  // a run raises this error if it reaches the node
  }
  AbstractValues results;
  for (const c10::IValue& value : stack) {
    results.push_back(AbstractValue::constant(value));
  }
  return results.size() == node.outputs().size() ? std::optional(std::move(results)) : std::nullopt;
}

}  // namespace sconce
