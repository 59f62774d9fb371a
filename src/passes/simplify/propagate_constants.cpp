#include "passes/simplify/propagate_constants.h"

#include "analysis/effects.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/invariant_tensors.h"
#include "analysis/memory/lazy_alias_sets.h"
#include "analysis/memory/object_identity.h"
#include "base/compiled_meta_kernels.h"
#include "ir/constant_operands.h"
#include "ops/libtorch_workarounds.h"
#include "passes/simplify/check_inplace.h"
#include "passes/simplify/fold_constant_branches.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <cmath>

namespace sconce {
namespace {

using Values = std::vector<c10::IValue>;

constexpr size_t kMaxBytes = size_t{64} << 20;  // the limit for a tensor that is kept with the plan

// Lists of tensors are never constants. A node that reads a list that the graph makes of constants may be one.
bool makes_list_of_tensors(const Value& value) {
  return value.node()->kind() == prim::ListConstruct && holds_memory(value.type()->containedType(0));
}

std::optional<c10::IValue> constant_of(const Value& value) {
  if (!makes_list_of_tensors(value)) {
    const c10::IValue* constant = value.constant();
    return constant != nullptr ? std::optional(*constant) : std::nullopt;
  }
  c10::impl::GenericList list(value.type()->expectRef<c10::ListType>().getElementType());
  for (const Value* element : value.node()->inputs()) {
    const c10::IValue* constant = element->constant();
    if (constant == nullptr || !(constant->isTensor() || constant->isNone())) {
      return std::nullopt;
    }
    list.push_back(*constant);
  }
  return c10::IValue(list);
}

std::optional<Values> constants_of(c10::ArrayRef<Value*> values) {
  Values constants;
  for (const Value* value : values) {
    auto constant = constant_of(*value);
    if (!constant) {
      return std::nullopt;
    }
    constants.push_back(std::move(*constant));
  }
  return constants;
}

// Computes nodes of the language itself that return numbers, strings, lists and tuples.
std::optional<Values> evaluate_language_node(const Node& node, Values operands) {
  switch (node.opcode()) {
    case Opcode::kListConstruct: {
      c10::impl::GenericList list(node.output()->type()->expectRef<c10::ListType>().getElementType());
      for (c10::IValue& operand : operands) {
        list.push_back(std::move(operand));
      }
      return Values{list};
    }
    case Opcode::kTupleConstruct:
      if (node.output()->type()->expectRef<c10::TupleType>().schema() != nullptr) {
        return std::nullopt;  // a named tuple
      }
      return Values{c10::ivalue::Tuple::create(std::move(operands))};
    case Opcode::kTupleUnpack:
      return operands[0].isTuple() ? std::optional(operands[0].toTupleRef().elements().vec()) : std::nullopt;
    case Opcode::kTupleIndex: {
      if (!operands[0].isTuple()) {
        return std::nullopt;  // an optional, under a test that it does not pass
      }
      const auto& elements = operands[0].toTupleRef().elements();
      const auto at = position_among(elements.size(), operands[1].toInt());
      return at ? std::optional(Values{elements[*at]}) : std::nullopt;
    }
    case Opcode::kUncheckedCast:
      return operands[0].isNone() && !c10::NoneType::get()->isSubtypeOf(*node.output()->type()) ? std::nullopt
                                                                                                : std::optional(operands);
    default: return std::nullopt;
  }
}

// Returns the product of all integers among the operands and in lists. Results may be longer than operands by this
// factor.
double product_of_integers(const Values& operands) {
  double product = 1;
  const auto take = [&](const c10::IValue& value) {
    product *= value.isInt() ? std::max(1.0, std::abs(static_cast<double>(value.toInt()))) : 1;
  };
  for (const c10::IValue& operand : operands) {
    take(operand);
    if (operand.isIntList()) {
      for (const int64_t number : operand.toIntVector()) {
        take(number);
      }
    }
  }
  return product;
}

size_t bytes_of(const c10::IValue& value) {
  return value.isTensor()   ? value.toTensor().nbytes()
         : value.isString() ? value.toStringRef().size()
         : value.isList()   ? value.toListRef().size() * sizeof(c10::IValue)
                            : 0;
}

size_t bytes_of_all(const Values& values) {
  size_t bytes = 0;
  for (const c10::IValue& value : values) {
    bytes += bytes_of(value);
  }
  return bytes;
}

// Returns the bytes of the results of a run on meta tensors; nothing if there is no such run.
std::optional<size_t> bytes_on_meta(torch::jit::Operation operation, Values operands) {
  for (c10::IValue& operand : operands) {
    if (operand.isTensor()) {
      const at::Tensor& tensor = operand.toTensor();
      operand = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
    }
  }
  const CompiledMetaKernels compiled;
  try {
    operation(operands);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return bytes_of_all(operands);
}

// Returns whether the results may exceed the limit. They are then not even computed, because a run may never reach
// the node.
bool may_grow_large(const Node& node, const torch::jit::Operator& op, const Values& operands) {
  const double bytes = static_cast<double>(std::max<size_t>(1, bytes_of_all(operands)));
  const bool is_bounded = bytes * product_of_integers(operands) <= static_cast<double>(kMaxBytes);
  const bool has_tensors = std::ranges::any_of(operands, [](const auto& v) { return v.isTensor(); });
  if (is_bounded || std::ranges::none_of(node.outputs(), [](const Value* result) {
        return holds_memory(result->type()) || result->type()->kind() == c10::TypeKind::StringType;
      })) {
    return false;
  }
  if (!has_tensors) {
    return node.op().grows_by_number;
  }
  const auto on_meta = bytes_on_meta(op.getOperation(), operands);
  return !on_meta || *on_meta > kMaxBytes;
}

std::optional<Values> evaluate_operator(const Node& node, Values operands) {
  const auto& op = node.op().registered;
  if (op == nullptr || operands.empty() || copies_by_reading_no_dtype(node.op(), operands) ||
      has_unknown_dtype(node.op(), operands) || division_traps(node.op(), operands) || may_grow_large(node, *op, operands)) {
    return std::nullopt;  // without operands, a result comes from the state of the thread or process
  }
  if (node.schema()->is_vararg()) {
    operands.emplace_back(static_cast<int64_t>(operands.size()));
  }
  const c10::InferenceMode normal(false);  // a constant serves runs in every mode
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  try {
    op->getOperation()(operands);
  } catch (const std::exception&) {
    return std::nullopt;  // a run raises this error if it reaches the node
  }
  return operands;
}

// Returns whether the caller's autocast would cast the operator's operands in some runs.
bool affected_by_autocast(const Node& node, const Values& operands) {
  const Autocast policy = node.op().autocast;
  return policy != Autocast::kNone && std::ranges::any_of(operands, [&](const c10::IValue& operand) {
           if (operand.isTensorList() || operand.isOptionalTensorList()) {
             return true;
           }
           const bool is_floating = operand.isTensor() && operand.toTensor().is_floating_point();
           return is_floating && operand.toTensor().scalar_type() != at::kDouble &&
                  (policy == Autocast::kReduced || operand.toTensor().scalar_type() != at::kFloat);
         });
}

bool is_foldable_tensor(const c10::IValue& value) {
  if (value.isTensorList() || value.isOptionalTensorList()) {
    return std::ranges::all_of(value.toListRef(), is_foldable_tensor);
  }
  return !value.isTensor() || (value.toTensor().defined() && !value.toTensor().requires_grad() &&
                               value.toTensor().layout() == c10::kStrided && value.toTensor().nbytes() <= kMaxBytes);
}

class ConstantPropagation {
 public:
  explicit ConstantPropagation(Graph& graph) : graph_(graph), aliases_(graph), identity_(graph) {}

  bool run() {
    bool changed = false;
    const bool took_a_branch = for_each_node_taking_branches(graph_.body(), [&](Node* node) { changed |= fold(*node); });
    return changed || took_a_branch;
  }

 private:
  bool fold(Node& node) {
    if (node.kind() == prim::Constant || node.outputs().empty() || !node.blocks().empty() ||
        (produces_tuple_or_string(node) && identity_.is_observed())) {
      return false;
    }
    // A node that reads a list of tensors and returns no tensor could observe the identity of the list.
    const auto inputs = node.inputs();
    const auto outputs = node.outputs();
    if (std::ranges::any_of(inputs, [](const Value* input) { return makes_list_of_tensors(*input); }) &&
        !std::ranges::all_of(outputs,
                             [](const Value* output) { return output->type()->kind() == c10::TypeKind::TensorType; })) {
      return false;
    }
    auto operands = constants_of(node.inputs());
    if (!operands || effects_of(node).any() || node.op().reads_state || !may_be_constants(node) ||
        reads_written_memory(node) ||
        !std::all_of(operands->begin(), operands->end(), [&](const c10::IValue& operand) { return is_fixed(operand); }) ||
        !std::all_of(operands->begin(), operands->end(), is_foldable_tensor) || affected_by_autocast(node, *operands)) {
      return false;
    }
    // The default dtype, and other state that decides how numbers become tensors, is the run's.
    const bool makes_tensors =
        std::none_of(operands->begin(), operands->end(), [](const auto& v) { return v.isTensor(); }) &&
        node.schema() != nullptr && node.output()->type()->kind() == c10::TypeKind::TensorType;
    if (makes_tensors) {
      return false;
    }
    const auto results = node.schema() == nullptr ? evaluate_language_node(node, std::move(*operands))
                                                  : evaluate_operator(node, std::move(*operands));
    if (!results || results->size() != node.outputs().size() ||
        !std::all_of(results->begin(), results->end(), is_foldable_tensor)) {
      return false;
    }
    for (size_t i = 0; i < results->size(); ++i) {
      Value* constant = graph_.insert_constant((*results)[i], &node, node.output(i)->type());
      constant->set_name(node.output(i)->name())->node()->set_location(node.location());
      if (holds_memory(constant->type())) {
        constant->node()->set_attribute(folded_attribute(), int64_t{1});
      }
      node.output(i)->replace_all_uses_with(constant);
    }
    node.erase();
    return true;
  }

  // Folds only results that a constant can hold, and for which sharing one object between runs is unobservable.
  bool may_be_constants(const Node& node) const {
    return std::ranges::all_of(node.outputs(), [&](const Value* output) {
      return can_be_constant(output->type()) &&
             (!holds_memory(output->type()) || (!may_escape(*output) && !aliases_.get().may_be_written(*output)));
    });
  }

  // A constant can also be written in place, and then differs in the next run.
  bool reads_written_memory(const Node& node) const {
    return std::ranges::any_of(node.inputs(), [&](const Value* input) {
      return holds_memory(input->type()) && (aliases_.get().may_be_written(*input) ||
                                             (makes_list_of_tensors(*input) && reads_written_memory(*input->node())));
    });
  }

  // Constants that code outside holds are excluded, too: functions of one archive may share constant tensors.
  bool is_fixed(const c10::IValue& constant) {
    if (constant.isTensor()) {
      if (!fixed_) {
        fixed_.emplace(graph_);
      }
      return !fixed_->may_change(constant.toTensor());
    }
    const auto are_fixed = [&](c10::ArrayRef<c10::IValue> elements) {
      return std::ranges::all_of(elements, [&](const c10::IValue& element) { return is_fixed(element); });
    };
    return constant.isTuple()                           ? are_fixed(constant.toTupleRef().elements())
           : constant.isList() && !constant.isIntList() ? are_fixed(constant.toListRef())
                                                        : true;
  }

  Graph& graph_;
  LazyAliasSets aliases_;
  std::optional<InvariantTensors> fixed_;  // as of its first use; folding only removes uses
  LazyIdentity identity_;
};

}  // namespace

bool propagate_constants(Graph& graph) { return ConstantPropagation(graph).run(); }

}  // namespace sconce
