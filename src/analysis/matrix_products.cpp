#include "analysis/matrix_products.h"

#include "analysis/in_place.h"
#include "ops/per_schema.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace sconce {
namespace {

struct ProductRow {
  std::string_view op;  // the overload without a name
  MatrixProduct product;
};
constexpr std::array kProductRows = {
    ProductRow{"aten::mm", {.left = 0, .right = 1, .left_may_be_batch = false}},
    ProductRow{"aten::matmul", {.left = 0, .right = 1}},
    ProductRow{"aten::linear", {.left = 0, .right = 1, .right_is_transposed = true, .addend = 2}},
    ProductRow{"aten::addmm", {.left = 1, .right = 2, .left_may_be_batch = false, .addend = 0}},
};

const ProductRow* find_row(const c10::FunctionSchema& schema) {
  const auto* row = std::find_if(kProductRows.begin(), kProductRows.end(),
                                 [&](const ProductRow& each) { return each.op == schema.name(); });
  return row != kProductRows.end() && schema.overload_name().empty() ? &*row : nullptr;
}

bool is_number(const Value& value, int64_t number) {
  const auto constant = value.constant();
  return constant && ((constant->isInt() && constant->toInt() == number) ||
                      (constant->isDouble() && constant->toDouble() == static_cast<double>(number)));
}

// A constant that is a factor like any other; nothing if it is none.
std::optional<Value*> plain_factor(Value* value, bool elements_are_integers) {
  if (value == nullptr || is_number(*value, 1)) {
    return nullptr;
  }
  const auto constant = value->constant();
  const bool is_of_kind = constant && (constant->isInt() || (constant->isDouble() && !elements_are_integers));
  return is_of_kind && !is_number(*value, 0) ? std::optional(value) : std::nullopt;
}

bool produces_new_pointwise(const Node& node) {
  static thread_local PerSchema<bool> known;
  return produces_new_tensor(node) && known.get(*node.schema(), [](const c10::FunctionSchema& schema) {
    const auto op = c10::Dispatcher::singleton().findSchema(schema.operator_name());
    return op && op->hasTag(at::Tag::pointwise);
  });
}

// Views that exist of every tensor, whatever its strides, and keep the order of those of the dimensions they keep.
bool keeps_order_of_strides(const Node& node) {
  static const std::array kinds = {aten::slice,      aten::select, aten::chunk, aten::split, aten::split_with_sizes,
                                   prim::ListUnpack, aten::t};
  return std::find(kinds.begin(), kinds.end(), node.kind()) != kinds.end();
}

}  // namespace

std::optional<MatrixProduct> matrix_product(const Node& node) {
  const ProductRow* row = node.schema() == nullptr ? nullptr : find_row(*node.schema());
  return row != nullptr ? std::optional(row->product) : std::nullopt;
}

std::optional<ProductFactors> constant_factors(const Node& product, bool elements_are_integers) {
  const auto of_product = plain_factor(product.named_input("alpha"), elements_are_integers);
  const auto of_addend = plain_factor(product.named_input("beta"), elements_are_integers);
  return of_product && of_addend ? std::optional(ProductFactors{*of_product, *of_addend}) : std::nullopt;
}

bool is_plain_sum(const Node& node) {
  return node.kind() == aten::add && node.schema() != nullptr && node.schema()->overload_name() == "Tensor" &&
         (node.inputs().size() < 3 || is_number(*node.input(2), 1));
}

bool is_transposition(const Node& node) { return node.kind() == aten::t; }

bool produces_contiguous_product(const Node& node) {
  if (node.kind() == aten::bmm) {
    return true;
  }
  const auto product = matrix_product(node);
  // With a bias aten::linear takes other ways, with other checks, for batches that are contiguous.
  return product &&
         (!product->right_is_transposed || node.input(*product->addend)->type()->kind() == c10::TypeKind::NoneType);
}

bool may_have_rows_apart(const Value& result) {
  return std::all_of(result.uses().begin(), result.uses().end(), [](const Use& use) {
    const Node& user = *use.user;
    if (reads_sizes_or_dtype(user) || produces_new_pointwise(user) || produces_contiguous_product(user)) {
      return true;
    }
    return keeps_order_of_strides(user) && std::all_of(user.outputs().begin(), user.outputs().end(),
                                                       [](const Value* output) { return may_have_rows_apart(*output); });
  });
}

}  // namespace sconce
