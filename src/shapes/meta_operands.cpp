#include "shapes/meta_operands.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>

namespace sconce {
namespace {

// The example of an unknown size: one that fits most others.
std::vector<int64_t> examples_of(const std::vector<Dim>& dims, SizeArithmetic& arithmetic) {
  std::vector<int64_t> numbers;
  for (const Dim dim : dims) {
    numbers.push_back(arithmetic.example(dim).value_or(1));
  }
  return numbers;
}

bool all_known(const std::optional<std::vector<Dim>>& dims) {
  return dims && std::all_of(dims->begin(), dims->end(), [](const Dim dim) { return dim.is_known(); });
}

}  // namespace

std::optional<c10::IValue> MetaOperands::make(const AbstractValue& value, const c10::Type& type) {
  if (const TensorFacts* facts = value.as_tensor()) {
    return meta_tensor(*facts);
  }
  if (value.is_integer()) {
    const int64_t number = arithmetic_.example(value.as_integer()).value_or(1);
    sizes_are_exact_ = sizes_are_exact_ && value.as_integer().is_known();
    numbers_are_exact_ = numbers_are_exact_ && value.as_integer().is_known();
    return number;
  }
  if (value.as_constant() != nullptr) {
    return *value.as_constant();
  }
  if (value.is_unknown()) {
    return stand_in(type);
  }
  const AbstractValues* elements = value.as_sequence();
  if (elements == nullptr || type.kind() != c10::TypeKind::ListType) {
    return std::nullopt;
  }
  const c10::TypePtr element_type = type.expectRef<c10::ListType>().getElementType();
  c10::impl::GenericList list(element_type);
  for (const AbstractValue& element : *elements) {
    auto made = make(element, *element_type);
    if (!made) {
      return std::nullopt;
    }
    list.push_back(std::move(*made));
  }
  return list;
}

// For a number of the run, any other of its kind serves: dtypes do not depend on the value.
std::optional<c10::IValue> MetaOperands::stand_in(const c10::Type& type) {
  sizes_are_exact_ = numbers_are_exact_ = false;
  booleans_are_exact_ =
      booleans_are_exact_ && (type.kind() == c10::TypeKind::IntType || type.kind() == c10::TypeKind::FloatType);
  switch (type.kind()) {
    case c10::TypeKind::IntType: return c10::IValue(int64_t{1});
    case c10::TypeKind::FloatType: return c10::IValue(0.5);
    case c10::TypeKind::BoolType: return c10::IValue(true);
    case c10::TypeKind::ListType:
      lists_are_exact_ = false;
      return type.expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::IntType
                 ? std::optional(c10::IValue(std::vector<int64_t>{1}))
                 : std::nullopt;
    default: return std::nullopt;
  }
}

std::optional<c10::IValue> MetaOperands::meta_tensor(const TensorFacts& facts) {
  const std::optional<at::Tensor> made = tensor_like(facts);
  if (!made) {
    return std::nullopt;  // an IValue made of `made` would be None
  }
  if (facts.is_wrapped_number) {
    made->unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return *made;
}

std::optional<at::Tensor> MetaOperands::tensor_like(const TensorFacts& facts) {
  const bool is_meta = device_ == at::kMeta;
  static const std::array emptied = {c10::kStrided, c10::kSparse, c10::kSparseCsr};
  const bool has_rank = facts.sizes || ranks_used_ < ranks_.size();
  if (!facts.dtype || !has_rank || !facts.layout || facts.defined == false ||
      (is_meta ? facts.layout != c10::kStrided : std::ranges::find(emptied, *facts.layout) == emptied.end())) {
    return std::nullopt;
  }
  const std::vector<int64_t> sizes = facts.sizes ? examples_of(*facts.sizes, arithmetic_)
                                                 : std::vector<int64_t>(static_cast<size_t>(ranks_[ranks_used_++]), 1);
  if (std::ranges::any_of(sizes, [](int64_t size) { return size < 0; })) {
    return std::nullopt;  // the examples do not fit together
  }
  const auto options = at::TensorOptions().dtype(*facts.dtype).device(device_).layout(*facts.layout);
  if (facts.layout == c10::kSparseCsr && sizes.size() < 2) {
    return std::nullopt;  // there are no such tensors
  }
  if (!is_meta) {
    sizes_are_exact_ = strides_are_exact_ = false;
    return at::empty(std::vector<int64_t>(sizes.size(), 0), options);
  }
  if (has_equal_sizes_) {
    sizes_are_exact_ = strides_are_exact_ = false;
    return at::empty(std::vector<int64_t>(sizes.size(), 2), options);
  }
  sizes_are_exact_ = sizes_are_exact_ && all_known(facts.sizes);  // false without sizes
  if (sizes_are_exact_ && facts.strides && all_known(facts.strides)) {
    return at::empty_strided(sizes, examples_of(*facts.strides, arithmetic_), options);
  }
  strides_are_exact_ = strides_are_exact_ && facts.sizes && sizes.empty();
  return at::empty(sizes, options);
}

}  // namespace sconce
