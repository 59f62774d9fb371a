#include "autodiff/reduce_gradient.h"

#include "autodiff/build_nodes.h"
#include "ir/constant_operands.h"

#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace sconce {
namespace {

using Dims = std::vector<Dim>;

const Dims* sizes_of(const Value& value) {
  const TensorFacts* facts = value.facts();
  return facts != nullptr && facts->sizes ? &*facts->sizes : nullptr;
}

// Two sizes that are equal in every run. Unknown sizes are not.
bool are_equal(const Dim& a, const Dim& b) { return !a.is_unknown() && a == b; }

// The dimensions over which a gradient of the result's sizes is summed.
struct Sum {
  std::vector<int64_t> leading;  // that the operand does not have
  std::vector<int64_t> ones;     // that have one element in the operand
};

// Returns nothing if the facts do not tell.
std::optional<Sum> dims_to_sum(const Dims& operand, const Dims& result) {
  if (operand.size() > result.size()) {
    return std::nullopt;
  }
  Sum sum;
  const size_t leading = result.size() - operand.size();
  for (size_t i = 0; i < leading; ++i) {
    sum.leading.push_back(static_cast<int64_t>(i));
  }
  for (size_t i = 0; i < operand.size(); ++i) {
    if (are_equal(operand[i], result[leading + i])) {
      continue;
    }
    if (operand[i] != Dim::known(1)) {
      return std::nullopt;
    }
    sum.ones.push_back(static_cast<int64_t>(i));
  }
  return sum;
}

Value* insert_sum(Value* gradient, std::vector<int64_t> dims, bool keeps_dims, Node* position) {
  Graph& graph = position->graph();
  Value* over = graph.insert_constant(std::move(dims), position);
  Value* keepdim = graph.insert_constant(keeps_dims, position);
  Value* dtype = graph.insert_constant(c10::IValue(), position);
  return insert_node(aten::sum, {gradient, over, keepdim, dtype}, position);
}

Value* sum_over(Value* gradient, const Sum& sum, Node* position) {
  if (!sum.leading.empty()) {
    gradient = insert_sum(gradient, sum.leading, /*keeps_dims=*/false, position);
  }
  return sum.ones.empty() ? gradient : insert_sum(gradient, sum.ones, /*keeps_dims=*/true, position);
}

// Products broadcast the dimensions before the matrices.
bool product_may_broadcast(const Node& node, const Value& operand) {
  const MatrixProduct& product = *node.op().product;
  const Dims* left = sizes_of(*node.input(product.left));
  const Dims* right = sizes_of(*node.input(product.right));
  const Dims* sizes = sizes_of(operand);
  const Dims* result = sizes_of(*node.output());
  if (left == nullptr || right == nullptr || sizes == nullptr || result == nullptr) {
    return true;
  }
  if (left->size() <= 2 && right->size() <= 2) {
    return false;
  }
  return sizes->size() != result->size() ||
         !std::equal(sizes->begin(), sizes->end() - 2, result->begin(), result->end() - 2, are_equal);
}

Value* sum_to_operand(Value* gradient, const Node& node, size_t index, Node* position) {
  Value* operand = node.input(index);
  const Op& op = node.op();
  const bool is_factor = op.product && (index == op.product->left || index == op.product->right);
  const bool may_broadcast =
      is_factor ? !op.affine && product_may_broadcast(node, *operand) : op.product || op.has_tag(at::Tag::pointwise);
  if (!may_broadcast) {
    return gradient;
  }
  const Dims* from = sizes_of(*node.output());
  const Dims* to = sizes_of(*operand);
  if (!is_factor && from != nullptr && to != nullptr) {
    if (const auto sum = dims_to_sum(*to, *from)) {
      return sum_over(gradient, *sum, position);
    }
  }
  static const c10::Symbol kSumToSize = c10::Symbol::fromQualString("aten::sum_to_size");
  return insert_node(kSumToSize, {gradient, insert_sizes(operand, position)}, position);
}

std::optional<c10::ScalarType> dtype_of(const Value& value) {
  return value.facts() != nullptr ? value.facts()->dtype : std::nullopt;
}

}  // namespace

Value* cast_gradient(Value* gradient, const Value& result, Value* operand, Node* position) {
  const auto from = dtype_of(result);
  const auto to = dtype_of(*operand);
  if (from && to && *from == *to) {
    return gradient;
  }
  Graph& graph = position->graph();
  Value* dtype = to ? graph.insert_constant(static_cast<int64_t>(*to), position)
                    : insert_node(prim::dtype, {operand}, position, c10::IntType::get());
  Value* no = graph.insert_constant(false, position);
  return insert_node(aten::to, {gradient, dtype, no, no, graph.insert_constant(c10::IValue(), position)}, position);
}

Value* reduce_gradient(Value* gradient, const Node& node, size_t index, Node* position) {
  Value* summed = sum_to_operand(gradient, node, index, position);
  // The results of an operator that has several have one dtype where a gradient flows.
  return cast_gradient(summed, *node.output(), node.input(index), position);
}

}  // namespace sconce
