// GroupShapes: sizes and strides of a group's values, and over which rows reductions run.
#pragma once

#include "fusion/group/views.h"
#include "fusion/program/iteration.h"
#include "fusion/program/operators.h"
#include "fusion/program/tensor_form.h"
#include "plan/prepared/group.h"

#include <c10/util/DimVector.h>

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace sconce {

// The space in which a value is computed: the sizes of what is reduced, and which dimensions are.
struct RowSpace {
  c10::DimVector sizes;
  DimSet reduced_dims = {};

  bool operator==(const RowSpace&) const = default;
};

class GroupShapes {
 public:
  // The part of a node's analysis that does not depend on sizes. A kernel computes it once.
  struct NodeKind {
    enum class Does : uint8_t { kCompute, kWrite, kView, kCopy } does;
    ResultForm form;
  };
  static std::vector<NodeKind> kinds_of(const NodeGroup& group);

  // Returns nothing if operands do not broadcast, or if one kernel cannot compute the reductions: they run over different
  // rows, or dimensions stand against each other that are not the same.
  // `kinds`: of the group's nodes.
  static std::optional<GroupShapes> of(const NodeGroup& group, std::span<const NodeKind> kinds,
                                       const KernelArguments& arguments);

  // The sizes as which the kernel sees the value: a tensor of one element for each channel has dimensions of size 1 after
  // that of the channels.
  const c10::DimVector& sizes_of(const Value& value) const { return shapes_.at(&value).form.sizes; }
  // The strides that LibTorch gives a tensor of these sizes. Values that are computed of reductions are contiguous.
  const c10::DimVector& strides_of(const Value& value) const { return shapes_.at(&value).form.strides; }
  // Returns the strides of a tensor with the sizes of the value's space, into which the kernel writes the value.
  c10::DimVector written_strides(const Value& value) const;
  // Returns the value as the views, one of the other, read it; nothing where one of them raises.
  std::optional<View> viewed(const Value& value, std::span<const Value* const> views) const;
  // Returns whether the value has one element for each row of its space.
  bool is_of_row(const Value& value) const { return shapes_.at(&value).rows != Rows::kWhole; }
  // Returns the space in which the value must be computed; a space without reductions for a value that needs none.
  RowSpace space_of(const Value& value) const;

 private:
  // How a value stands to its space.
  enum class Rows : uint8_t {
    kWhole,       // it has all dimensions
    kRowKept,     // the reduced dimensions have size 1
    kRowDropped,  // the reduced dimensions are gone
  };
  struct Shape {
    Form form;
    std::optional<RowSpace> space = std::nullopt;
    Rows rows = Rows::kWhole;
    bool is_operand = false;  // of the group
  };
  bool add(const Node& node, ResultForm form);
  bool add_write(const Node& node);
  bool add_views(const Node& node);
  bool add_copy(const Node& node);
  bool align_channels(const Node& node);
  std::optional<Shape> shape_of(const Node& node) const;
  static std::optional<Shape> in_space(Shape result, bool has_dropped, bool has_other);
  std::optional<c10::DimVector> strides_of_result(const Node& node, ResultForm kind) const;
  std::optional<Shape> reduction(const Node& node) const;

  std::unordered_map<const Value*, Shape> shapes_;
  mutable Views views_;
};

// Returns whether all tensors among the operands are dense and lie alike in memory, and the group makes no tensors: then it
// does to each element what it does to the others of the same number.
bool are_flat(const NodeGroup& group, const KernelArguments& arguments);

}  // namespace sconce
