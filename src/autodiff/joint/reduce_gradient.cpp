#include "autodiff/joint/reduce_gradient.h"

#include "autodiff/joint/build_nodes.h"
#include "ir/constant_operands.h"

#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
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

// Returns whether the gradient that the row's text gives has the result's sizes: that of an operand which the operator
// broadcasts to them.
bool has_sizes_of_result(const Op& op, size_t index) {
  const bool is_factor = op.product && (index == op.product->left || index == op.product->right);
  return op.product ? !is_factor : op.has_tag(at::Tag::pointwise);
}

// Returns whether the node is a product that broadcasts neither factor. LibTorch has checked that their sizes match, so the
// text's products of the other factor have the sizes of this one.
bool is_plain_product(const Node& node, size_t index) {
  if (node.opcode() == Opcode::kBatchedProduct) {
    return true;
  }
  const auto& product = node.op().product;
  if (!product || (index != product->left && index != product->right)) {
    return false;
  }
  const Dims* left = sizes_of(*node.input(product->left));
  const Dims* right = sizes_of(*node.input(product->right));
  if (left == nullptr || right == nullptr) {
    return false;
  }
  if (right->size() <= 2) {
    return right->size() == 2 || !node.op().affine;
  }
  return left->size() == right->size() && std::equal(left->begin(), left->end() - 2, right->begin(), are_equal);
}

Value* sum_to_operand(Value* gradient, const Node& node, size_t index, Node* position) {
  Value* operand = node.input(index);
  const Dims* from = sizes_of(*node.output(0));
  const Dims* to = sizes_of(*operand);
  if (has_sizes_of_result(node.op(), index) && from != nullptr && to != nullptr) {
    if (const auto sum = dims_to_sum(*to, *from)) {
      return sum_over(gradient, *sum, position);
    }
  }
  const bool has_one_tensor =
      std::ranges::count_if(node.inputs(), [](const Value* input) { return is_tensor(*input); }) == 1;
  if (is_plain_product(node, index) || (has_one_tensor && node.op().has_tag(at::Tag::pointwise))) {
    return gradient;
  }
  static const c10::Symbol kSumToSize = c10::Symbol::fromQualString("aten::sum_to_size");
  return insert_node(kSumToSize, {gradient, insert_sizes(operand, position)}, position);
}

bool may_be_floating(const Value& value) {
  const auto dtype = known_dtype(value);
  return is_tensor(value) && (!dtype || c10::isFloatingType(*dtype));
}

// Returns the dtype of the gradients that the node's text gives. A text computes in the dtype to which its operands are
// promoted. If all have one, so have its gradients.
std::optional<c10::ScalarType> dtype_of_text(const Node& node) {
  const auto dtype = known_dtype(*node.output(0));
  const bool is_common = std::ranges::all_of(
      node.inputs(), [&](const Value* operand) { return !may_be_floating(*operand) || known_dtype(*operand) == dtype; });
  return is_common ? dtype : std::nullopt;
}

}  // namespace

Value* cast_gradient(Value* gradient, std::optional<c10::ScalarType> from, Value* operand, Node* position) {
  Graph& graph = position->graph();
  const auto to = known_dtype(*operand);
  if (to && from == to) {
    return gradient;
  }
  if (from && from == to) {
    return gradient;
  }
  Value* dtype = to ? graph.insert_constant(static_cast<int64_t>(*to), position)
                    : insert_node(prim::dtype, {operand}, position, c10::IntType::get());
  Value* no = graph.insert_constant(false, position);
  return insert_node(aten::to, {gradient, dtype, no, no, graph.insert_constant(c10::IValue(), position)}, position);
}

Value* reduce_gradient(Value* gradient, const Node& node, size_t index, Node* position) {
  Value* summed = sum_to_operand(gradient, node, index, position);
  return cast_gradient(summed, dtype_of_text(node), node.input(index), position);
}

}  // namespace sconce
