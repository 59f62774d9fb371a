#include "fusion/group_shapes.h"

#include "fusion/channels.h"
#include "fusion/folds.h"
#include "fusion/iteration.h"

#include <algorithm>

namespace sconce {

std::optional<GroupShapes> GroupShapes::of(const NodeGroup& group, const KernelArguments& arguments) {
  GroupShapes shapes;
  for (size_t i = 0; i < group.operands.size(); ++i) {
    if (arguments.is_tensor(i)) {
      const c10::IntArrayRef sizes = arguments.tensor(i).sizes();
      shapes.shapes_[group.operands[i]] = {c10::DimVector(sizes.begin(), sizes.end()), std::nullopt, Form::kWhole};
    }
  }
  for (const Node* node : group.nodes) {
    auto shape = shapes.align_channels(*node) ? shapes.shape_of(*node) : std::nullopt;
    if (!shape) {
      return std::nullopt;
    }
    shapes.shapes_[node->output()] = std::move(*shape);
  }
  return shapes;
}

RowSpace GroupShapes::space_of(const Value& value) const {
  const Shape& shape = shapes_.at(&value);
  return shape.space ? *shape.space : RowSpace{shape.sizes, 0};
}

// Aligns tensors with one element for each channel to the node's first operand. Returns false if they have another use that
// is aligned otherwise, or are not such tensors.
bool GroupShapes::align_channels(const Node& node) {
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const auto known = shapes_.find(node.input(i));
    if (!is_of_channels(node.op(), i) || known == shapes_.end()) {
      continue;
    }
    const c10::DimVector& input = shapes_.at(node.input(0)).sizes;
    c10::DimVector& sizes = known->second.sizes;
    if (input.size() < 2 || sizes.empty() || sizes[0] != input[1] || known->second.space ||
        node.input(i)->uses().size() != 1) {
      return false;
    }
    sizes.resize(1);
    sizes.resize(input.size() - 1, 1);
  }
  return true;
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
    const auto together = broadcast_sizes(result.sizes, shape.sizes);
    if (!together || (result.space && shape.space && *result.space != *shape.space)) {
      return std::nullopt;
    }
    result.sizes = *together;
    result.space = shape.space ? shape.space : result.space;
    has_dropped = has_dropped || shape.form == Form::kRowDropped;
    has_other = has_other || (shape.form != Form::kRowDropped && !shape.sizes.empty());
  }
  if (may_fold(node.op())) {
    return fold(node);
  }
  if (!result.space) {
    return result;
  }
  if (has_dropped) {
    result.form = Form::kRowDropped;
    return has_other ? std::nullopt : std::optional(result);
  }
  // Every dimension must be one of the space, or be broadcast along it.
  const c10::DimVector& whole = result.space->sizes;
  if (result.sizes.size() != whole.size() || broadcast_sizes(result.sizes, whole) != whole) {
    return std::nullopt;
  }
  if (result.sizes == whole) {
    return result;
  }
  const auto folded = static_cast<ptrdiff_t>(result.space->folded_dims);
  const bool is_row = std::all_of(result.sizes.end() - folded, result.sizes.end(), [](int64_t size) { return size == 1; }) &&
                      std::equal(result.sizes.begin(), result.sizes.end() - folded, whole.begin());
  result.form = Form::kRowKept;
  return is_row ? std::optional(result) : std::nullopt;
}

std::optional<GroupShapes::Shape> GroupShapes::fold(const Node& node) const {
  const Shape& operand = shapes_.at(node.input(0));
  const auto how = fold_of(node, static_cast<int64_t>(operand.sizes.size()));
  if (!how || how->dims == 0) {
    return std::nullopt;
  }
  const RowSpace space{operand.sizes, how->dims};
  if (operand.form != Form::kWhole || (operand.space && *operand.space != space)) {
    return std::nullopt;
  }
  // Weights and the like must not make the operand larger.
  for (const Value* input : node.inputs()) {
    if (const auto known = shapes_.find(input);
        known != shapes_.end() && broadcast_sizes(known->second.sizes, space.sizes) != space.sizes) {
      return std::nullopt;
    }
  }
  Shape result{operand.sizes, space, Form::kWhole};
  const auto kept = operand.sizes.size() - static_cast<size_t>(how->dims);
  if (how->result == Fold::Result::kKept) {
    std::fill(result.sizes.begin() + static_cast<ptrdiff_t>(kept), result.sizes.end(), 1);
    result.form = Form::kRowKept;
  } else if (how->result == Fold::Result::kDropped) {
    result.sizes.resize(kept);
    result.form = Form::kRowDropped;
  }
  return result;
}

}  // namespace sconce
