// Matrix products whose operands are known from facts. Functions return nothing if a fact they need is missing.
#pragma once

#include "analysis/known_layout.h"
#include "analysis/matrix_products.h"
#include "analysis/memory/invariant_tensors.h"
#include "ir/graph.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace sconce {

// Returns the facts of a strided tensor, constant or not, whose dtype, device and rank are known.
inline std::optional<TensorFacts> known_tensor(const Value& value) {
  if (value.type()->kind() != c10::TypeKind::TensorType) {
    return std::nullopt;
  }
  const auto* constant = value.constant();
  std::optional<TensorFacts> facts = constant && constant->isTensor() ? std::optional(facts_of(constant->toTensor()))
                                     : value.facts() != nullptr       ? std::optional(*value.facts())
                                                                      : std::nullopt;
  return facts && facts->dtype && facts->device && facts->sizes && facts->defined != false &&
                 facts->layout.value_or(c10::kStrided) == c10::kStrided
             ? facts
             : std::nullopt;
}

inline std::optional<TensorFacts> known_matrix(const Value& value) {
  auto facts = known_tensor(value);
  return facts && facts->sizes->size() == 2 ? facts : std::nullopt;
}

inline bool is_same(const Dim& a, const Dim& b) { return a == b && !a.is_unknown(); }

inline bool is_alike(const TensorFacts& a, const TensorFacts& b) { return a.dtype == b.dtype && a.device == b.device; }

// Returns whether sums of elements of this dtype may be reordered. Integers wrap around, so any order gives the same sum;
// for single and double precision the error is a few last bits; half precision has too few bits to lose.
inline bool adds_in_any_order(c10::ScalarType dtype) {
  return c10::isIntegralType(dtype, /*includeBool=*/false) || dtype == c10::kFloat || dtype == c10::kDouble ||
         dtype == c10::kComplexFloat || dtype == c10::kComplexDouble;
}

// Returns the facts of the product left · right: a new tensor of the left operand's dtype. `requires_grad` stays unknown.
inline TensorFacts product_facts(const TensorFacts& left, const Dim& columns) {
  TensorFacts facts;
  facts.dtype = left.dtype;
  facts.device = left.device;
  facts.sizes = left.sizes;
  facts.sizes->back() = columns;
  return facts;
}

// Returns whether `product + addend` has the dtype, sizes and strides of the product, which is contiguous.
inline bool leaves_as_is(const TensorFacts& addend, const TensorFacts& product) {
  return is_alike(addend, product) && broadcasts_to(&addend, &product) &&
         (addend.sizes->size() <= 1 || is_contiguous(&addend));
}

// Returns the matrix that the operand is in every run: a constant, or a transposed constant.
inline std::optional<at::Tensor> fixed_matrix(const Value& value, const InvariantTensors& constants) {
  if (!is_transposition(*value.node())) {
    return constants.find(&value);
  }
  const auto matrix = fixed_matrix(*value.node()->input(0), constants);
  return matrix ? std::optional(matrix->t()) : std::nullopt;
}

// A product of two known operands, the right one a matrix.
struct Product {
  Node* node;
  Value* left;
  Value* right;
  TensorFacts left_facts;
  TensorFacts right_facts;
  std::optional<at::Tensor> fixed_right;

  const Dim& inner() const { return (*right_facts.sizes)[0]; }
  const Dim& columns() const { return (*right_facts.sizes)[1]; }
};
using Products = std::vector<Product>;

inline std::optional<Product> known_product(Node& node, const InvariantTensors& constants) {
  const auto product = matrix_product(node);
  if (!product || product->addend || product->right_is_transposed) {
    return std::nullopt;
  }
  Value* left = node.input(product->left);
  Value* right = node.input(product->right);
  auto left_facts = known_tensor(*left);
  auto right_facts = known_matrix(*right);
  if (!left_facts || !right_facts || !is_alike(*left_facts, *right_facts) || left_facts->sizes->size() < 2 ||
      (!product->left_may_be_batch && left_facts->sizes->size() != 2)) {
    return std::nullopt;
  }
  return Product{&node, left, right, std::move(*left_facts), std::move(*right_facts), fixed_matrix(*right, constants)};
}

inline bool has_no_gradient(const TensorFacts& facts) { return facts.requires_grad == false; }

// Returns the number of elements; nothing if a size is not known, or on overflow.
inline std::optional<int64_t> elements_in(c10::ArrayRef<Dim> dims) {
  int64_t elements = 1;
  for (const Dim& dim : dims) {
    if (!dim.is_known() || __builtin_mul_overflow(elements, dim.value(), &elements)) {
      return std::nullopt;
    }
  }
  return elements;
}

}  // namespace sconce
