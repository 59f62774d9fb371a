// Facts: what is known about a tensor value beyond its type.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// One size or stride: a number, a symbol, or unknown. Two dims with one symbol are equal in every run.
class Dim {
 public:
  static Dim unknown() { return {Kind::kUnknown, 0}; }
  static Dim known(int64_t value) { return {Kind::kKnown, value}; }
  // `symbol` must be positive. The text form prints SS(-symbol), as TorchScript does.
  static Dim symbol(int64_t symbol) { return {Kind::kSymbol, symbol}; }

  bool is_known() const { return kind_ == Kind::kKnown; }
  bool is_symbol() const { return kind_ == Kind::kSymbol; }
  bool is_unknown() const { return kind_ == Kind::kUnknown; }
  // The number of a known dim, or the symbol of a symbolic one.
  int64_t value() const { return value_; }

  friend bool operator==(const Dim&, const Dim&) = default;

 private:
  enum class Kind : uint8_t { kUnknown, kKnown, kSymbol };
  Dim(Kind kind, int64_t value) : kind_(kind), value_(value) {}
  Kind kind_;
  int64_t value_;
};

// Facts hold in every run of the graph that has them. An absent field is unknown. If `sizes` is present, the rank is known;
// `strides`, if present, has the same length.
struct TensorFacts {
  std::optional<bool> defined;  // false: always an undefined tensor (autograd's zero)
  std::optional<c10::ScalarType> dtype;
  std::optional<c10::Device> device;
  std::optional<c10::Layout> layout;
  std::optional<std::vector<Dim>> sizes;
  std::optional<std::vector<Dim>> strides;
  bool contiguous = false;  // the strides are those of a new contiguous tensor, also in dims of one element
  std::optional<bool> requires_grad;
  // A wrapped number: `torch.jit.trace` records a Python number as such a tensor. Type promotion treats it as a number.
  bool is_wrapped_number = false;

  bool empty() const { return *this == TensorFacts{}; }
  void forget_strides() {
    strides.reset();
    contiguous = false;
  }
  friend bool operator==(const TensorFacts&, const TensorFacts&) = default;
};

// Returns TorchScript's notation: `Float(2, *, SS(-1), strides=[6, 2, 1], requires_grad=0, device=cpu)`, with `contiguous`
// and `number` (a wrapped one) among the fields;
// `FloatTensor(device=cpu)` if the rank is unknown, `Tensor` if nothing is known; followed by `[Undefined]` for an undefined
// tensor.
std::string to_string(const TensorFacts& facts);

// Returns the facts that a LibTorch type has; a graph may have been saved with them.
TensorFacts facts_of(const c10::TensorType& type);
// Returns all facts of a tensor; strides only if it is strided.
TensorFacts facts_of(const at::Tensor& tensor);
// Returns the same facts of a tensor that a recorded graph holds: nothing in it asks for gradients.
TensorFacts facts_without_autograd(const at::Tensor& tensor);

// Returns the facts that hold for a tensor with facts `a` and for one with facts `b` (the join).
TensorFacts common_facts(const TensorFacts& a, const TensorFacts& b);
// Returns the facts of a tensor for which both hold (the meet). A number is preferred to a symbol.
TensorFacts all_facts(TensorFacts a, const TensorFacts& b);

}  // namespace sconce
