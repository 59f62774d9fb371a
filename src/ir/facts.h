// What is known about a tensor value beyond "it is a Tensor".
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

// One size or stride: a number, a symbol (two dims with the same symbol are equal in every run), or unknown.
class Dim {
 public:
  static Dim unknown() { return {Kind::kUnknown, 0}; }
  static Dim known(int64_t value) { return {Kind::kKnown, value}; }
  // `symbol` is positive; the text form prints SS(-symbol), as TorchScript does.
  static Dim symbol(int64_t symbol) { return {Kind::kSymbol, symbol}; }

  bool is_known() const { return kind_ == Kind::kKnown; }
  bool is_symbol() const { return kind_ == Kind::kSymbol; }
  bool is_unknown() const { return kind_ == Kind::kUnknown; }
  // The number of a known dim or the symbol of a symbolic one.
  int64_t value() const { return value_; }

  friend bool operator==(const Dim&, const Dim&) = default;

 private:
  enum class Kind : uint8_t { kUnknown, kKnown, kSymbol };
  Dim(Kind kind, int64_t value) : kind_(kind), value_(value) {}
  Kind kind_;
  int64_t value_;
};

// Facts hold in every run of the graph that carries them; an absent field means "not known".
// `sizes` present means that the rank is known; `strides`, when present, has the same length.
struct TensorFacts {
  std::optional<bool> defined;  // false: always an undefined tensor (autograd's zero)
  std::optional<c10::ScalarType> dtype;
  std::optional<c10::Device> device;
  std::optional<c10::Layout> layout;
  std::optional<std::vector<Dim>> sizes;
  std::optional<std::vector<Dim>> strides;
  std::optional<bool> requires_grad;

  bool empty() const { return *this == TensorFacts{}; }
  friend bool operator==(const TensorFacts&, const TensorFacts&) = default;
};

// TorchScript's notation: `Float(2, *, SS(-1), strides=[6, 2, 1], requires_grad=0, device=cpu)`,
// `FloatTensor(device=cpu)` when the rank is unknown, `Tensor` when nothing is, with `[Undefined]` behind.
std::string to_string(const TensorFacts& facts);

// The facts that LibTorch's own type carries (a loaded graph may have been saved with them).
TensorFacts facts_of(const c10::TensorType& type);
// All facts of one tensor. Strides of strided ones only.
TensorFacts facts_of(const at::Tensor& tensor);

// The facts that hold for both.
TensorFacts common_facts(const TensorFacts& a, const TensorFacts& b);
// What holds of a tensor of which both do. Of a size that both know, the number.
TensorFacts all_facts(TensorFacts a, const TensorFacts& b);

}  // namespace sconce
