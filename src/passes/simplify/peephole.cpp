#include "passes/simplify/peephole.h"

#include "analysis/memory/escapes.h"
#include "analysis/memory/lazy_alias_sets.h"
#include "ir/constant_operands.h"
#include "ir/schema_match.h"
#include "passes/insert_node.h"
#include "passes/simplify/fold_constant_branches.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

class Peephole {
 public:
  explicit Peephole(Graph& graph) : graph_(graph), aliases_(graph) {}

  bool run() {
    bool changed = false;
    const bool took_a_branch = for_each_node_taking_branches(graph_.body(), [&](Node* node) {
      if (node->kind() == prim::ListUnpack) {
        changed |= forward_unpacked_list(*node);
      } else if (node->outputs().size() == 1) {
        if (Value* replacement = simplified(*node)) {
          node->output()->replace_all_uses_with(replacement);
          node->erase();
          changed = true;
        }
      }
    });
    return changed || took_a_branch;
  }

 private:
  // Returns the value that can replace the node's output; null if no rule applies.
  Value* simplified(Node& node) {
    switch (static_cast<c10::unique_t>(node.kind())) {
      case aten::any: return any_of_list(node);
      case aten::len: return length_of_list(node);
      case aten::__getitem__: return element_of_list(node);
      case aten::add_: return extended_list(node);
      case aten::__is__: return identity_test(node, true);
      case aten::__isnot__: return identity_test(node, false);
      case aten::eq: return comparison_with_itself(node, true);
      case aten::ne: return comparison_with_itself(node, false);
      case aten::__not__: return negation_of_negation(node);
      case prim::unchecked_cast:
      case aten::_unwrap_optional: return cast_of_known_type(node);
      case aten::Int:
      case aten::Float:
      case aten::Bool: return number_of_its_type(node);
      case aten::IntImplicit:
      case aten::FloatImplicit: return number_in_tensor(*node.input(0), *node.output()->type(), node);
      case aten::ScalarImplicit: return operators_number(node);
      case aten::dim: return known_rank(node);
      case aten::size: return known_size(node);
      case prim::dtype: return known_dtype(node);
      case prim::device: return known_device(node);
      case aten::is_floating_point: return known_kind_of_dtype(node);
      case aten::type_as: return cast_to_known_dtype(node);
      case aten::sum_to_size: return sum_to_own_size(node);
      case aten::dropout: {
        Value* masked = dropout_on_device(node);
        return masked != nullptr ? masked : dropout_of_nothing(node);
      }
      case aten::feature_dropout:
      case aten::alpha_dropout:
      case aten::feature_alpha_dropout:
      case aten::dropout_:
      case aten::feature_dropout_:
      case aten::alpha_dropout_:
      case aten::feature_alpha_dropout_: return dropout_of_nothing(node);
      default: return nullptr;
    }
  }

  Value* constant(c10::IValue value, Node& at) {
    Value* made = graph_.insert_constant(std::move(value), &at);
    made->set_name(at.output()->name())->node()->set_location(at.location());
    return made;
  }

  // ---- lists --------------------------------------------------------------------------------------------------------

  // Returns the elements of a list that the graph builds and does not change; null for any other list.
  const Node* unchanged_list(const Value& list) const {
    return list.node()->kind() == prim::ListConstruct && !aliases_.get().may_be_written(list) ? list.node() : nullptr;
  }

  Value* length_of_list(Node& node) {
    if (const Node* unbind = unbind_of_list(*node.input(0))) {
      return insert(node, aten::size, unbind->inputs(), c10::IntType::get());
    }
    const Node* list = unchanged_list(*node.input(0));
    return list == nullptr ? nullptr : constant(static_cast<int64_t>(list->inputs().size()), node);
  }

  // One element that is true decides.
  Value* any_of_list(Node& node) {
    const Node* list = node.output()->type()->kind() == c10::TypeKind::BoolType ? unchanged_list(*node.input(0)) : nullptr;
    const auto is_true = [](const Value* element) { return constant_bool(*element) == true; };
    return list != nullptr && std::ranges::any_of(list->inputs(), is_true) ? constant(true, node) : nullptr;
  }

  Value* element_of_list(Node& node) {
    const Node* unbind = unbind_of_list(*node.input(0));
    if (unbind != nullptr && is_position(*node.input(1), *unbind) && !aliases_.get().may_be_written(*node.output())) {
      return insert(node, aten::select, {unbind->input(0), unbind->input(1), node.input(1)}, c10::TensorType::get());
    }
    const Node* list = unchanged_list(*node.input(0));
    const auto index = list == nullptr ? std::nullopt : constant_index(*node.input(1), list->inputs().size());
    return index ? list->input(*index) : nullptr;
  }

  // Returns the node that unbinds a tensor into the list, if its elements and its length are all that is read of it.
  static const Node* unbind_of_list(const Value& list) {
    const bool is_only_read =
        list.node()->opcode() == Opcode::kUnbind && std::ranges::all_of(list.uses(), [](const Use& use) {
          return use.user->opcode() == Opcode::kGetItem || use.user->opcode() == Opcode::kLength;
        });
    return is_only_read ? list.node() : nullptr;
  }

  // Returns whether the index denotes an element of the unbound list in every run. A selection of any other raises in words
  // of its own.
  bool is_position(const Value& index, const Node& unbind) {
    const TensorFacts* facts = lasting_facts(*unbind.input(0));
    const auto* dim = unbind.input(1)->constant();
    if (index.constant() != nullptr && facts != nullptr && facts->sizes && dim != nullptr) {
      const auto at = position_among(facts->sizes->size(), dim->toInt());
      const Dim size = at ? (*facts->sizes)[*at] : Dim::unknown();
      return size.is_known() && position_among(static_cast<size_t>(size.value()), index.constant()->toInt());
    }
    // The counter i of a loop over the list is a position, and so is (length - 1) - i.
    const Node& from_end = *index.node();
    const bool is_from_end = from_end.opcode() == Opcode::kSub && is_length_minus_one(*from_end.input(0), unbind);
    const Value& counter = is_from_end ? *from_end.input(1) : index;
    const Node* loop = counter.node()->owning_block() != nullptr ? counter.node()->owning_block()->owner() : nullptr;
    return loop != nullptr && loop->opcode() == Opcode::kLoop && loop->block(0)->params()[0] == &counter &&
           is_at_most_length(*loop->input(0), unbind);
  }

  static bool is_length_minus_one(const Value& value, const Node& unbind) {
    return value.node()->opcode() == Opcode::kSub && value.node()->inputs().size() == 2 &&
           is_constant_int(*value.node()->input(1), 1) && is_at_most_length(*value.node()->input(0), unbind);
  }

  // Returns whether the value is the length of the unbound list, or the least of it and others.
  static bool is_at_most_length(const Value& value, const Node& unbind) {
    const Node& node = *value.node();
    if (node.kind() == prim::min) {
      const Node& list = *node.input(0)->node();
      const auto operands = list.opcode() == Opcode::kListConstruct ? list.inputs() : node.inputs();
      return std::ranges::any_of(operands, [&](const Value* operand) { return is_at_most_length(*operand, unbind); });
    }
    return (node.opcode() == Opcode::kLength && node.input(0) == unbind.output()) ||
           (node.opcode() == Opcode::kSize && node.inputs() == unbind.inputs());
  }

  // `list += [a, b]` appends a and b to the list, and returns it.
  Value* extended_list(Node& node) {
    Value* list = node.input(0);
    const Node& others = *node.input(1)->node();
    if (list->type()->kind() != c10::TypeKind::ListType || others.kind() != prim::ListConstruct ||
        node.input(1)->uses().size() != 1) {
      return nullptr;
    }
    for (Value* element : others.inputs()) {
      insert(node, aten::append, {list, element}, list->type());
    }
    return list;
  }

  Value* insert(Node& at, c10::Symbol kind, c10::ArrayRef<Value*> inputs, const c10::TypePtr& type) {
    const TensorFacts* facts = at.output()->facts();
    Value* output = insert_operator(kind, inputs, at, facts != nullptr ? *facts : TensorFacts{}, type);
    output->set_name(at.output()->name());
    return output;
  }

  bool forward_unpacked_list(Node& node) {
    const Node* list = unchanged_list(*node.input(0));
    if (list == nullptr || list->inputs().size() != node.outputs().size()) {
      return false;
    }
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      node.output(i)->replace_all_uses_with(list->input(i));
    }
    node.erase();
    return true;
  }

  // ---- types --------------------------------------------------------------------------------------------------------

  static bool is_never_none(const Value& value) {
    const c10::TypeKind kind = value.type()->kind();
    return kind != c10::TypeKind::NoneType && kind != c10::TypeKind::OptionalType && kind != c10::TypeKind::AnyType &&
           kind != c10::TypeKind::UnionType && kind != c10::TypeKind::VarType;
  }

  Value* identity_test(Node& node, bool when_same) {
    const Value& a = *node.input(0);
    const Value& b = *node.input(1);
    if ((is_none(a) && is_none(b)) || (&a == &b && is_tensor(a))) {
      return constant(when_same, node);
    }
    return (is_none(a) && is_never_none(b)) || (is_none(b) && is_never_none(a)) ? constant(!when_same, node) : nullptr;
  }

  // Only a floating-point number can differ from itself.
  Value* comparison_with_itself(Node& node, bool when_equal) {
    const auto list = node.input(0)->type()->cast<c10::ListType>();
    const c10::TypeKind kind = list != nullptr ? list->getElementType()->kind() : node.input(0)->type()->kind();
    const bool equals_itself =
        kind == c10::TypeKind::IntType || kind == c10::TypeKind::BoolType || kind == c10::TypeKind::StringType;
    return equals_itself && node.inputs().size() == 2 && node.input(0) == node.input(1) ? constant(when_equal, node)
                                                                                        : nullptr;
  }

  static Value* negation_of_negation(Node& node) {
    const Node* inner = node.input(0)->node();
    return inner->kind() == aten::__not__ ? inner->input(0) : nullptr;
  }

  static Value* cast_of_known_type(Node& node) {
    Value* operand = node.input(0);
    return is_never_none(*operand) && operand->type()->isSubtypeOf(*node.output()->type()) ? operand : nullptr;
  }

  Value* number_of_its_type(Node& node) {
    return *node.input(0)->type() == *node.output()->type() ? node.input(0)
                                                            : number_in_tensor(*node.input(0), *node.output()->type(), node);
  }

  // The number has a type of its own, which operators accept; a block or container would change its type with it.
  Value* operators_number(Node& node) {
    const bool is_for_operators = std::ranges::all_of(node.output()->uses(), [](const Use& use) {
      return use.user->schema() != nullptr && !use.user->op().is_language();
    });
    for (const c10::TypePtr& type : {c10::TypePtr(c10::IntType::get()), c10::TypePtr(c10::FloatType::get())}) {
      Value* number = is_for_operators ? number_in_tensor(*node.input(0), *type, node) : nullptr;
      if (number != nullptr) {
        return number;
      }
    }
    return nullptr;
  }

  // Returns the number of a tensor that is made of numbers, as traces make sizes; null if it is not, or the tensor is of
  // another type. Sums and products of integers wrap alike in tensors and numbers.
  Value* number_in_tensor(const Value& tensor, const c10::Type& type, Node& at) {
    Node& made = *tensor.node();
    if (!is_tensor(tensor) || aliases_.get().may_be_written(tensor)) {
      return nullptr;
    }
    if (made.kind() == prim::NumToTensor) {
      return *made.input(0)->type() == type ? made.input(0) : nullptr;
    }
    if (type.kind() != c10::TypeKind::IntType) {
      return nullptr;
    }
    if (const c10::IValue* known = tensor.constant()) {
      const at::Tensor& value = known->toTensor();
      const bool is_number =
          value.defined() && value.dim() == 0 && value.scalar_type() == at::kLong && value.device().is_cpu();
      return is_number ? constant(value.item<int64_t>(), at) : nullptr;
    }
    const bool is_sum = made.kind() == aten::add || made.kind() == aten::sub;
    const bool is_quotient = made.kind() == aten::floor_divide;
    const bool is_known = is_quotient || made.kind() == aten::mul ||
                          (is_sum && made.inputs().size() == 3 && is_constant_int(*made.input(2), 1));
    if (!is_known || made.inputs().size() < 2) {
      return nullptr;
    }
    const auto operand = [&](size_t i) {
      return *made.input(i)->type() == type ? made.input(i) : number_in_tensor(*made.input(i), type, at);
    };
    Value* left = operand(0);
    Value* right = left == nullptr ? nullptr : operand(1);
    // The errors of a division by zero differ.
    if (right == nullptr || (is_quotient && (right->constant() == nullptr || is_constant_int(*right, 0)))) {
      return nullptr;
    }
    return insert_operator(is_quotient ? aten::floordiv : made.kind(), {left, right}, at, {}, c10::IntType::get());
  }

  // ---- facts --------------------------------------------------------------------------------------------------------

  // An in-place write may change sizes, too (`t_`, `resize_`, `set_`).
  const TensorFacts* lasting_facts(const Value& tensor) const {
    return tensor.facts() != nullptr && !aliases_.get().may_be_written(tensor) ? tensor.facts() : nullptr;
  }

  Value* known_rank(Node& node) {
    const TensorFacts* facts = lasting_facts(*node.input(0));
    return facts != nullptr && facts->sizes ? constant(static_cast<int64_t>(facts->sizes->size()), node) : nullptr;
  }

  // Answers queries of one size only: a query of all sizes returns a new list in each call.
  Value* known_size(Node& node) {
    const TensorFacts* facts = lasting_facts(*node.input(0));
    if (facts == nullptr || !facts->sizes || node.inputs().size() != 2) {
      return nullptr;
    }
    const auto index = constant_index(*node.input(1), facts->sizes->size());
    return index && (*facts->sizes)[*index].is_known() ? constant((*facts->sizes)[*index].value(), node) : nullptr;
  }

  Value* known_dtype(Node& node) {
    const TensorFacts* facts = lasting_facts(*node.input(0));
    return facts != nullptr && facts->dtype ? constant(static_cast<int64_t>(*facts->dtype), node) : nullptr;
  }

  Value* known_device(Node& node) {
    const TensorFacts* facts = lasting_facts(*node.input(0));
    return facts != nullptr && facts->device ? constant(*facts->device, node) : nullptr;
  }

  Value* known_kind_of_dtype(Node& node) {
    const TensorFacts* facts = lasting_facts(*node.input(0));
    return facts != nullptr && facts->dtype ? constant(c10::isFloatingType(*facts->dtype), node) : nullptr;
  }

  // x.type_as(y) becomes x.to(dtype), which kernels compute. Equal dtypes are left to remove_dead_copies.
  Value* cast_to_known_dtype(Node& node) {
    const TensorFacts* from = lasting_facts(*node.input(0));
    const TensorFacts* to = lasting_facts(*node.input(1));
    const bool are_strided = from != nullptr && to != nullptr && from->strides && to->strides;
    if (!are_strided || !from->dtype || !to->dtype || from->dtype == to->dtype || !from->device ||
        from->device != to->device) {
      return nullptr;
    }
    Value* dtype = graph_.insert_constant(static_cast<int64_t>(*to->dtype), &node);
    Value* no = graph_.insert_constant(false, &node);
    Value* none = graph_.insert_constant(c10::IValue(), &node);
    return insert(node, aten::to, {node.input(0), dtype, no, no, none}, c10::TensorType::get());
  }

  // Known sizes of sum and operand that are equal: it returns its operand.
  Value* sum_to_own_size(Node& node) {
    const TensorFacts* from = lasting_facts(*node.input(0));
    const TensorFacts* to = lasting_facts(*node.output());
    // sum_to_size makes a new tensor of an operand without dimensions.
    const bool are_known = from != nullptr && to != nullptr && from->sizes && to->sizes && !to->sizes->empty() &&
                           std::none_of(to->sizes->begin(), to->sizes->end(), [](Dim dim) { return dim.is_unknown(); });
    return are_known && *from->sizes == *to->sizes ? node.input(0) : nullptr;
  }

  // ---- dropout ------------------------------------------------------------------------------------------------------

  // As LibTorch does on devices other than the CPU: dropout(x, p, True) becomes the first result of native_dropout(x, p,
  // True), which captures can hold. Of no elements, dropout returns its operand itself, which is not observable if the
  // result is only read.
  Value* dropout_on_device(Node& node) {
    const TensorFacts* facts = lasting_facts(*node.input(0));
    const auto* p = node.input(1)->constant();
    const bool drops = p != nullptr && p->isDouble() && p->toDouble() > 0 && p->toDouble() < 1 &&
                       constant_bool(*node.input(2)) == true && !node.op().runs_under_autocast;
    if (!drops || facts == nullptr || !facts->device || facts->device->is_cpu() || facts->device->is_meta()) {
      return nullptr;
    }
    const bool has_elements = facts->sizes && std::all_of(facts->sizes->begin(), facts->sizes->end(),
                                                          [](Dim dim) { return dim.is_known() && dim.value() > 0; });
    if (!has_elements && !is_read_only_and_local(*node.output())) {
      return nullptr;
    }
    Value* result = insert(node, aten::native_dropout, node.inputs(), c10::TensorType::get());
    result->node()->add_output(c10::TensorType::get());
    resolve(*result->node());
    return result;
  }

  // ---- calls that do nothing ----------------------------------------------------------------------------------------

  // In evaluation mode it returns its argument, unwritten.
  static Value* dropout_of_nothing(Node& node) {
    const auto* probability = node.input(1)->constant();
    const bool is_valid =
        probability && probability->isDouble() && probability->toDouble() >= 0 && probability->toDouble() <= 1;
    return is_valid && constant_bool(*node.input(2)) == false ? node.input(0) : nullptr;
  }

  Graph& graph_;
  LazyAliasSets aliases_;
};

}  // namespace

bool peephole(Graph& graph) { return Peephole(graph).run(); }

}  // namespace sconce
