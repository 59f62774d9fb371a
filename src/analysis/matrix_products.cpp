#include "analysis/matrix_products.h"

#include "analysis/effects.h"
#include "ir/constant_operands.h"

#include <algorithm>

namespace sconce {
namespace {

bool is_number(const Value& value, int64_t number) {
  const auto* constant = value.constant();
  return constant && ((constant->isInt() && constant->toInt() == number) ||
                      (constant->isDouble() && constant->toDouble() == static_cast<double>(number)));
}

// A constant that is a factor like any other; nothing if it is none.
std::optional<Value*> plain_factor(Value* value, bool elements_are_integers) {
  if (value == nullptr || is_number(*value, 1)) {
    return nullptr;
  }
  const auto* constant = value->constant();
  const bool is_of_kind = constant && (constant->isInt() || (constant->isDouble() && !elements_are_integers));
  return is_of_kind && !is_number(*value, 0) ? std::optional(value) : std::nullopt;
}

bool produces_new_pointwise(const Node& node) { return produces_new_tensor(node) && node.op().has_tag(at::Tag::pointwise); }

bool is_matrix(const Value& value) {
  return value.facts() != nullptr && value.facts()->sizes && value.facts()->sizes->size() == 2;
}

}  // namespace

std::optional<MatrixProduct> matrix_product(const Node& node) {
  return node.schema() != nullptr && node.schema()->overload_name().empty() ? node.op().product : std::nullopt;
}

std::optional<ProductFactors> constant_factors(const Node& product, bool elements_are_integers) {
  const auto of_product = plain_factor(product.named_input("alpha"), elements_are_integers);
  const auto of_addend = plain_factor(product.named_input("beta"), elements_are_integers);
  return of_product && of_addend ? std::optional(ProductFactors{*of_product, *of_addend}) : std::nullopt;
}

bool is_plain_sum(const Node& node) {
  return node.opcode() == Opcode::kAdd && node.schema() != nullptr && node.schema()->overload_name() == "Tensor" &&
         (node.inputs().size() < 3 || is_number(*node.input(2), 1));
}

bool is_transposition(const Node& node) { return node.opcode() == Opcode::kTransposeMatrix; }

bool produces_contiguous_product(const Node& node) {
  if (node.opcode() == Opcode::kBatchedProduct) {
    return true;
  }
  const auto product = matrix_product(node);
  // With a bias aten::linear takes other ways, with other checks, for batches that are contiguous.
  return product && (!product->right_is_transposed || is_none(*node.input(*product->addend)) || is_matrix(*node.input(0)));
}

bool may_have_rows_apart(const Value& result) {
  return std::all_of(result.uses().begin(), result.uses().end(), [](const Use& use) {
    const Node& user = *use.user;
    if (user.op().reads == Reads::kMetadata || produces_new_pointwise(user) || produces_contiguous_product(user)) {
      return true;
    }
    return user.op().keeps_stride_order && std::all_of(user.outputs().begin(), user.outputs().end(),
                                                       [](const Value* output) { return may_have_rows_apart(*output); });
  });
}

}  // namespace sconce
