// PromotedDtype: the dtype to which LibTorch promotes the operands of an operator. Facts and kernels have no other rule.
#pragma once

#include <ATen/core/jit_type_base.h>
#include <ATen/native/TypeProperties.h>

#include <optional>
#include <span>
#include <vector>

namespace sconce {

class PromotedDtype {
 public:
  // Adds a tensor. A dtype counts less if the tensor has no dimensions; nothing: whether it has any is not known.
  void add_tensor(c10::ScalarType dtype, std::optional<bool> is_zero_dim);
  // Adds a number of this type: bool, int64, float64 or complex128.
  void add_number(c10::ScalarType type);
  // The same for a number of a type of TorchScript. Of a `Scalar` it is not known which it is.
  void add_number(const c10::Type& type);

  // Returns the dtype; nothing without operands, if it depends on what is not known, or for dtypes that LibTorch does not
  // promote.
  std::optional<c10::ScalarType> dtype() const;
  // Returns whether the dtype may be the default one, because a number is floating and no tensor is.
  bool may_be_default() const;

 private:
  using State = at::native::ResultTypeState;
  struct Operand {
    c10::ScalarType State::* category;
    c10::ScalarType type;
  };
  void add(std::span<const Operand> possibilities);

  std::vector<State> states_{1};  // one for each possibility of what is not known
  bool is_promotable_ = true;
};

}  // namespace sconce
