#include "fusion/group/group_shapes.h"

#include "fusion/program/channels.h"
#include "fusion/program/operators.h"
#include "fusion/program/reductions.h"

#include <algorithm>

namespace sconce {
namespace {

// Returns whether a node in the block writes the tensor in place. The kernel may have written the element that a view picks,
// or not yet.
bool is_written_in(const Block& block, const Value& tensor) {
  return (tensor.node()->owning_block() == &block && writes_in_place(*tensor.node())) ||
         std::ranges::any_of(tensor.uses(), [&](const Use& use) {
           return use.index == 0 && use.user->owning_block() == &block && writes_in_place(*use.user);
         });
}

DimSet first_dims(size_t count) { return ~DimSet() >> (DimSet().size() - count); }

}  // namespace

std::vector<GroupShapes::NodeKind> GroupShapes::kinds_of(const NodeGroup& group) {
  using Does = NodeKind::Does;
  std::vector<NodeKind> kinds;
  for (const Node* node : group.nodes) {
    const bool is_view = is_index_view(*node) || node->opcode() == Opcode::kListUnpack;
    const Does does = is_view                  ? Does::kView
                      : may_copy(*node)        ? Does::kCopy
                      : writes_in_place(*node) ? Does::kWrite
                                               : Does::kCompute;
    kinds.push_back({does, does == Does::kCompute ? result_form_of(node->op()) : ResultForm::kOperands});
  }
  return kinds;
}

std::optional<GroupShapes> GroupShapes::of(const NodeGroup& group, std::span<const NodeKind> kinds,
                                           const KernelArguments& arguments) {
  GroupShapes shapes;
  shapes.shapes_.reserve(group.operands.size() + group.nodes.size());
  for (size_t i = 0; i < group.operands.size(); ++i) {
    if (arguments.is_tensor(i)) {
      shapes.shapes_[group.operands[i]] = {.form = form_of(arguments.tensor(i)), .is_operand = true};
    }
  }
  const auto add = [&](const Node& node, const NodeKind& kind) {
    switch (kind.does) {
      case NodeKind::Does::kCompute: return shapes.add(node, kind.form);
      case NodeKind::Does::kWrite: return shapes.add_write(node);
      case NodeKind::Does::kView: return shapes.add_views(node);
      case NodeKind::Does::kCopy: return shapes.add_copy(node);
    }
    return false;
  };
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    if (!add(*group.nodes[i], kinds[i])) {
      return std::nullopt;
    }
  }
  return shapes;
}

// Adds the result of an operator that computes. Returns whether one kernel can.
bool GroupShapes::add(const Node& node, ResultForm form) {
  auto shape = align_channels(node) ? shape_of(node) : std::nullopt;
  if (!shape) {
    return false;
  }
  auto strides = may_reduce(node.op()) ? contiguous_form(shape->form.sizes).strides : strides_of_result(node, form);
  if (!strides) {
    return false;
  }
  shape->form.strides = std::move(*strides);
  // Loops over rows write contiguous results; dimensions of one element may have any stride.
  if (shape->space && !is_contiguous(shape->form)) {
    return false;
  }
  shapes_[node.output()] = std::move(*shape);
  return true;
}

// Adds what an operator in place returns: its target, to whose sizes the operands must broadcast.
bool GroupShapes::add_write(const Node& node) {
  const Shape& target = shapes_.at(node.input(0));
  auto shape = shape_of(node);
  if (!shape || shape->space || shape->form.sizes != target.form.sizes || !has_places_of_its_own(target.form)) {
    return false;
  }
  shape->form.strides = target.form.strides;
  shapes_[node.output()] = std::move(*shape);
  return true;
}

// Adds the views that the node returns, or unpacks. A list of views has no shape.
bool GroupShapes::add_views(const Node& node) {
  for (const Value* output : node.outputs()) {
    if (output->type()->kind() != c10::TypeKind::TensorType) {
      continue;
    }
    const Value& viewed = *viewed_by(*output);
    const Block& block = *node.owning_block();
    if (is_written_in(block, viewed) || is_written_in(block, *output)) {
      return false;
    }
    const Shape& base = shapes_.at(&viewed);
    auto view = base.space ? std::nullopt : views_.of(*output, base.form);
    if (!view) {
      return false;
    }
    shapes_[output] = {.form = std::move(view->form)};
  }
  return true;
}

// Adds a copy: its elements in their order, which may have other sizes.
bool GroupShapes::add_copy(const Node& node) {
  const Shape& base = shapes_.at(node.input(0));
  const auto sizes = base.space ? std::nullopt : copied_sizes(node, base.form);
  if (!sizes) {
    return false;
  }
  Shape copy{.form = contiguous_form(*sizes), .space = RowSpace{base.form.sizes}};
  shapes_[node.output()] = std::move(copy);
  return true;
}

c10::DimVector GroupShapes::written_strides(const Value& value) const {
  const Shape& shape = shapes_.at(&value);
  return shape.space ? contiguous_form(shape.space->sizes).strides : shape.form.strides;
}

std::optional<View> GroupShapes::viewed(const Value& value, std::span<const Value* const> views) const {
  View whole{{sizes_of(value), strides_of(value)}};
  for (const Value* each : views) {
    if (keeps_elements(*each)) {
      continue;
    }
    const c10::DimVector& sizes = sizes_of(*viewed_by(*each));
    auto view = views_.of(*each, {sizes, broadcast_strides(whole.form, sizes)});
    if (!view) {
      return std::nullopt;
    }
    view->offset += whole.offset;
    whole = std::move(*view);
  }
  return whole;
}

RowSpace GroupShapes::space_of(const Value& value) const {
  const Shape& shape = shapes_.at(&value);
  return shape.space ? *shape.space : RowSpace{shape.form.sizes};
}

// Aligns tensors with one element for each channel to the node's first operand. Returns false if they have another use that
// is aligned otherwise, or are not such tensors, or are computed in the group: of what they are computed is not aligned.
bool GroupShapes::align_channels(const Node& node) {
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const auto known = shapes_.find(node.input(i));
    if (!is_of_channels(node.op(), i) || known == shapes_.end()) {
      continue;
    }
    const c10::DimVector& input = shapes_.at(node.input(0)).form.sizes;
    c10::DimVector& sizes = known->second.form.sizes;
    if (input.size() < 2 || sizes.size() != 1 || sizes[0] != input[1] || !known->second.is_operand ||
        node.input(i)->uses().size() != 1) {
      return false;
    }
    sizes.resize(1);
    sizes.resize(input.size() - 1, 1);
    known->second.form.strides.resize(sizes.size(), 0);
  }
  return true;
}

// Returns the strides that LibTorch gives the result of a node that reduces nothing; nothing if they are not known.
std::optional<c10::DimVector> GroupShapes::strides_of_result(const Node& node, ResultForm kind) const {
  c10::SmallVector<const Form*, 4> operands;
  bool has_number = false;
  bool has_channels = false;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (const auto known = shapes_.find(node.input(i)); known == shapes_.end()) {
      has_number = has_number || is_operand_of_iterator(node.op(), i);
    } else if (is_of_channels(node.op(), i)) {
      has_channels = true;
    } else {
      operands.push_back(&known->second.form);
    }
  }
  if (kind == ResultForm::kSame) {
    return operands[0]->strides;
  }
  if (kind == ResultForm::kReversedOperands) {
    std::ranges::reverse(operands);
  }
  const auto form = pointwise_form({operands.data(), operands.size()}, has_number);
  // Norms of channels return images that are contiguous or channels-last.
  if (!form || (has_channels && !is_contiguous(*form) && !is_channels_last(*form))) {
    return std::nullopt;
  }
  return kind == ResultForm::kContiguous ? contiguous_form(form->sizes).strides : form->strides;
}

std::optional<GroupShapes::Shape> GroupShapes::shape_of(const Node& node) const {
  Shape result;
  bool has_dropped = false;
  bool has_other = false;  // than values with dropped dimensions
  for (const Value* input : node.inputs()) {
    const auto known = shapes_.find(input);
    if (known == shapes_.end()) {
      continue;
    }
    const Shape& shape = known->second;
    auto together = broadcast_sizes(result.form.sizes, shape.form.sizes);
    if (!together || (result.space && shape.space && *result.space != *shape.space)) {
      return std::nullopt;
    }
    if (needs_equal_operands(op_of_elements(node.op())) &&
        (!is_dense(shape.form) || (input != node.input(0) && result.form.sizes != shape.form.sizes))) {
      return std::nullopt;
    }
    result.form.sizes = std::move(*together);
    result.space = shape.space ? shape.space : result.space;
    has_dropped = has_dropped || shape.rows == Rows::kRowDropped;
    has_other = has_other || (shape.rows != Rows::kRowDropped && !shape.form.sizes.empty());
  }
  if (may_reduce(node.op())) {
    return reduction(node);
  }
  return result.space ? in_space(std::move(result), has_dropped, has_other) : std::optional(std::move(result));
}

// Returns how a value stands to its space; nothing if a dimension is neither one of the space nor broadcast along it.
std::optional<GroupShapes::Shape> GroupShapes::in_space(Shape result, bool has_dropped, bool has_other) {
  const RowSpace& space = *result.space;
  const c10::DimVector& whole = space.sizes;
  const size_t dropped = space.reduced_dims.count();
  // Where the first dimensions are gone, those that are left stand in their places.
  const bool are_first = space.reduced_dims == first_dims(dropped);
  if (has_dropped && (!has_other || (are_first && result.form.sizes == c10::IntArrayRef(whole).slice(dropped)))) {
    result.rows = Rows::kRowDropped;
    return result;
  }
  if ((has_dropped && !are_first) || result.form.sizes.size() != whole.size() ||
      broadcast_sizes(result.form.sizes, whole) != whole) {
    return std::nullopt;
  }
  if (result.form.sizes == whole) {
    return result;
  }
  for (size_t dim = 0; dim < whole.size(); ++dim) {
    if (result.form.sizes[dim] != (space.reduced_dims[dim] ? 1 : whole[dim])) {
      return std::nullopt;
    }
  }
  result.rows = Rows::kRowKept;
  return result;
}

std::optional<GroupShapes::Shape> GroupShapes::reduction(const Node& node) const {
  const Shape& operand = shapes_.at(node.input(0));
  const auto how = reduction_of(node, static_cast<int64_t>(operand.form.sizes.size()));
  if (!how || how->dims.none()) {
    return std::nullopt;
  }
  const RowSpace space{operand.form.sizes, how->dims};
  if (operand.rows != Rows::kWhole || (operand.space && *operand.space != space)) {
    return std::nullopt;
  }
  if (how->is_composed && is_contiguous(operand.form) &&
      operand.form.strides != contiguous_form(operand.form.sizes).strides) {
    return std::nullopt;
  }
  // Weights have one element for each that is reduced. The operator rejects others, also those that broadcast. What is
  // computed of rows has one element for each row instead.
  c10::DimVector reduced;
  c10::DimVector kept;
  c10::DimVector with_ones;
  for (size_t dim = 0; dim < space.sizes.size(); ++dim) {
    const bool is_reduced = space.reduced_dims[dim];
    (is_reduced ? reduced : kept).push_back(space.sizes[dim]);
    with_ones.push_back(is_reduced ? 1 : space.sizes[dim]);
  }
  if (how->sizes && c10::IntArrayRef(reduced) != c10::IntArrayRef(*how->sizes)) {
    return std::nullopt;
  }
  for (const Value* input : node.inputs().slice(1)) {
    const auto known = shapes_.find(input);
    if (known != shapes_.end() && (known->second.form.sizes != reduced || known->second.space)) {
      return std::nullopt;
    }
  }
  switch (how->result) {
    case Reduction::Result::kWhole: return Shape{{operand.form.sizes, {}}, space, Rows::kWhole};
    case Reduction::Result::kKept: return Shape{{std::move(with_ones), {}}, space, Rows::kRowKept};
    case Reduction::Result::kDropped: return Shape{{std::move(kept), {}}, space, Rows::kRowDropped};
  }
  return std::nullopt;
}

bool are_flat(const NodeGroup& group, const KernelArguments& arguments) {
  const at::Tensor* first = nullptr;
  for (size_t i = 0; i < group.operands.size(); ++i) {
    if (!arguments.is_tensor(i)) {
      continue;
    }
    const at::Tensor& tensor = arguments.tensor(i);
    first = first == nullptr ? &tensor : first;
    if (!tensor.is_non_overlapping_and_dense() || tensor.sizes() != first->sizes() || tensor.strides() != first->strides()) {
      return false;
    }
  }
  return group.results.empty() && first != nullptr;
}

}  // namespace sconce
