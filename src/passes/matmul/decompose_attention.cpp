#include "passes/matmul/decompose_attention.h"

#include "ir/constant_operands.h"
#include "load/compile_op_row.h"
#include "passes/matmul/inline_function.h"
#include "passes/matmul/known_matrices.h"

#include <algorithm>
#include <string>
#include <vector>

namespace sconce {
namespace {

// The conditions on the projections, for both operators.
constexpr const char* kFits = R"(
    fits = heads > 0 and x.size(2) == width and x.numel() > 0
    fits = fits and qkv_weight.size(0) == 3 * width and qkv_weight.size(1) == width and qkv_bias.size(0) == 3 * width
    fits = fits and proj_weight.size(0) == width and proj_weight.size(1) == width and proj_bias.size(0) == width
    if fits:
        fits = width % heads == 0
    kind = mask_type if mask_type is not None else -1
    if mask is not None:
        if kind == 0:
            fits = fits and mask.size() == [x.size(1), x.size(1)]
        elif kind == 1:
            fits = fits and mask.size() == [x.size(0), x.size(1)]
        else:
            fits = fits and kind == 2 and mask.size() == [x.size(0), heads, x.size(1), x.size(1)]
)";
// Replaces `x` by its attention. Up to 64 time steps, products and a softmax are faster than LibTorch's attention. A mask of
// any dtype hides where it is not zero. Its type says what it has elements for: pairs of steps, the steps of each sequence,
// or all scores.
constexpr const char* kAttend = R"(
        parts = torch.linear(x, qkv_weight, qkv_bias).view([x.size(0), x.size(1), 3, heads, width // heads])
        qkv = parts.permute([2, 0, 3, 1, 4])
        if mask is not None:
            hidden = mask.ne(0)
            if kind == 1:
                hidden = hidden.view([x.size(0), 1, 1, x.size(1)])
            scores = torch.matmul(qkv[0] / (float(width // heads) ** 0.5), qkv[1].transpose(2, 3))
            context = torch.matmul(torch.softmax(scores.masked_fill(hidden, float("-inf")), -1), qkv[2])
        elif x.size(1) <= 64:
            scores = torch.matmul(qkv[0] / (float(width // heads) ** 0.5), qkv[1].transpose(2, 3))
            context = torch.matmul(torch.softmax(scores, -1), qkv[2])
        else:
            context = torch.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = torch.linear(context.transpose(1, 2).reshape(x.size()), proj_weight, proj_bias)
)";

// A fast path, its rank-1 and rank-2 weights, and its text.
struct FastPath {
  c10::Symbol kind;
  size_t mask;
  std::vector<size_t> matrices;
  std::vector<size_t> vectors;
  const Graph& (*graph)();  // compiled when first needed
};

const Graph& attention() {
  const std::string text = std::string(R"(
def attention(x: Tensor, key: Tensor, value: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
              proj_weight: Tensor, proj_bias: Tensor, mask: Optional[Tensor], need_weights: bool, average_weights: bool,
              mask_type: Optional[int]):
)") + kFits + "    if fits:\n        weights = x\n" +
                           kAttend + R"(
    else:
        x, weights = torch._native_multi_head_attention(
            x, key, value, width, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, need_weights, average_weights,
            mask_type)
    return x, weights
)";
  static const auto* const graph = compile_function("aten::_native_multi_head_attention", text).release();
  return *graph;
}

const Graph& encoder_layer() {
  const std::string text = std::string(R"(
def layer(x: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor,
          use_gelu: bool, norm_first: bool, eps: float, norm_weight: Tensor, norm_bias: Tensor, second_norm_weight: Tensor,
          second_norm_bias: Tensor, up_weight: Tensor, up_bias: Tensor, down_weight: Tensor, down_bias: Tensor,
          mask: Optional[Tensor], mask_type: Optional[int]):
)") + kFits + R"(
    fits = fits and norm_weight.size(0) == width and norm_bias.size(0) == width
    fits = fits and second_norm_weight.size(0) == width and second_norm_bias.size(0) == width
    fits = fits and up_weight.size(1) == width and up_bias.size(0) == up_weight.size(0)
    fits = fits and down_weight.size(0) == width and down_weight.size(1) == up_weight.size(0) and down_bias.size(0) == width
    if fits:
        residual = x
        if norm_first:
            x = torch.layer_norm(x, [width], norm_weight, norm_bias, eps)
)" + kAttend + R"(
        x = x + residual
        if not norm_first:
            x = torch.layer_norm(x, [width], norm_weight, norm_bias, eps)
        residual = x
        if norm_first:
            x = torch.layer_norm(x, [width], second_norm_weight, second_norm_bias, eps)
        x = torch.linear(x, up_weight, up_bias)
        if use_gelu:
            x = torch.gelu(x)
        else:
            x = torch.relu(x)
        x = torch.linear(x, down_weight, down_bias) + residual
        if not norm_first:
            x = torch.layer_norm(x, [width], second_norm_weight, second_norm_bias, eps)
    else:
        x = torch._transformer_encoder_layer_fwd(
            x, width, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps, norm_weight, norm_bias,
            second_norm_weight, second_norm_bias, up_weight, up_bias, down_weight, down_bias, mask, mask_type)
    return x
)";
  static const auto* const graph = compile_function("aten::_transformer_encoder_layer_fwd", text).release();
  return *graph;
}

const std::vector<FastPath>& fast_paths() {
  static const auto* const paths = new std::vector<FastPath>{
      {c10::Symbol::fromQualString("aten::_native_multi_head_attention"), 9, {5, 7}, {6, 8}, attention},
      {c10::Symbol::fromQualString("aten::_transformer_encoder_layer_fwd"),
       18,
       {3, 5, 14, 16},
       {4, 6, 10, 11, 12, 13, 15, 17},
       encoder_layer}};
  return *paths;
}

bool is_float(const Value& value, size_t rank) {
  const auto facts = known_tensor(value);
  return facts && facts->layout == c10::kStrided && facts->dtype == c10::kFloat && facts->device->is_cpu() &&
         facts->sizes->size() == rank;
}

bool is_legal(const Node& node, const FastPath& path) {
  const auto all_are = [&](const std::vector<size_t>& positions, size_t rank) {
    return std::ranges::all_of(positions, [&](size_t position) { return is_float(*node.input(position), rank); });
  };
  const bool is_attention = node.outputs().size() == 2;
  const Value& mask = *node.input(path.mask);
  const auto facts = known_tensor(mask);
  const bool has_mask = facts && facts->layout == c10::kStrided && facts->device->is_cpu();
  const bool is_of_itself = !is_attention || (node.input(1) == node.input(0) && node.input(2) == node.input(0));
  return is_of_itself && (!is_attention || node.output(1)->uses().empty()) && (has_mask || is_none(mask)) &&
         is_float(*node.input(0), 3) && all_are(path.matrices, 2) && all_are(path.vectors, 1);
}

}  // namespace

bool decompose_attention(Graph& graph) {
  std::vector<std::pair<Node*, const FastPath*>> found;
  for_each_node(graph.body(), [&](Node* node) {
    for (const FastPath& path : fast_paths()) {
      if (node->kind() == path.kind && is_legal(*node, path) && !is_alternative_to_products(*node)) {
        found.emplace_back(node, &path);
      }
    }
  });
  for (const auto& [node, path] : found) {
    inline_function(*node, path->graph());
  }
  return !found.empty();
}

}  // namespace sconce
