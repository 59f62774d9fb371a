// Views that kernels read through: an element of the view is an element of the tensor, found by steps along dimensions.
#pragma once

#include "fusion/program/tensor_form.h"
#include "ir/graph.h"

#include <optional>
#include <vector>

namespace sconce {

// Returns whether the operator returns such a view of its first operand, or a list of them, and all its other arguments are
// constants. Operators that may copy do not, but for a `contiguous` of which all users compute element by element.
bool is_index_view(const Node& node);

// Returns whether the operator returns a view of its first operand, or a contiguous copy where none exists, and all its
// other arguments are constants.
bool may_copy(const Node& node);
// Returns the sizes of the copy that the operator makes of a tensor of this form; nothing where it makes none.
std::optional<c10::DimVector> copied_sizes(const Node& node, const Form& base);

// Returns the tensor of which the value is a view, by an index view or as an element of its list; null for other values.
const Value* viewed_by(const Value& value);

// Returns whether the view has all elements of its tensor, in their places.
bool keeps_elements(const Value& view);

// A view of a tensor: its form, and its first element among the tensor's, in elements of memory.
struct View {
  Form form;
  int64_t offset = 0;
};

// The views of tensors of several forms, each found once.
class Views {
 public:
  // Returns what the value, a result of an index view, is of a tensor of this form; nothing where the operator raises.
  std::optional<View> of(const Value& value, const Form& base);

 private:
  struct Known {
    const Node* op;
    Form base;
    std::vector<View> views;
  };
  std::vector<Known> known_;
};

}  // namespace sconce
