#include "passes/matmul/decompose_pointwise_gradients.h"

#include "analysis/known_layout.h"
#include "ir/constant_operands.h"
#include "load/compile_op_row.h"
#include "passes/matmul/inline_function.h"
#include "passes/matmul/known_matrices.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sconce {
namespace {

const Graph& pointwise_gradients() {
  static const auto* const graph = compile_function("aten::convolution_backward", R"(
def gradients(grad: Tensor, input: Tensor, weight: Tensor, bias_sizes: Optional[List[int]], stride: List[int],
              padding: List[int], dilation: List[int], transposed: bool, output_padding: List[int], groups: int,
              needs: List[bool]):
    images = input.size(0)
    filters = weight.size(0)
    channels = weight.size(1)
    rows = grad.contiguous().flatten(2)
    columns = input.flatten(2)
    pixels = columns.size(2)
    kernel = weight.reshape([filters, channels])
    if pixels <= 64:  # of all images together, because few columns do not repay the kernel's rows
        of_input = torch.mm(kernel.t(), rows.transpose(0, 1).reshape([filters, images * pixels]))
        of_input = of_input.view([channels, images, pixels]).transpose(0, 1).contiguous()
    else:
        of_input = torch.bmm(kernel.t().unsqueeze(0).expand([images, channels, filters]), rows)
    if filters * channels <= pixels * (filters + channels):
        of_weight = torch.bmm(rows, columns.transpose(1, 2)).sum([0])
    else:
        of_weight = torch.mm(rows.transpose(0, 1).reshape([filters, images * pixels]),
                             columns.transpose(0, 1).reshape([channels, images * pixels]).t())
    return (of_input.view(input.size()), of_weight.view(weight.size()), rows.sum([0, 2]))
)")
                                       .release();
  return *graph;
}

// Returns the gradients for channels-last images: their pixels are the rows of one matrix.
const Graph& gradients_of_pixels() {
  static const auto* const graph = compile_function("aten::convolution_backward", R"(
def gradients(grad: Tensor, input: Tensor, weight: Tensor, bias_sizes: Optional[List[int]], stride: List[int],
              padding: List[int], dilation: List[int], transposed: bool, output_padding: List[int], groups: int,
              needs: List[bool]):
    filters = weight.size(0)
    channels = weight.size(1)
    rows = grad.permute([0, 2, 3, 1]).reshape([-1, filters])
    columns = input.permute([0, 2, 3, 1]).view([-1, channels])
    kernel = weight.reshape([filters, channels])
    of_input = torch.mm(rows, kernel).view([input.size(0), input.size(2), input.size(3), channels]).permute([0, 3, 1, 2])
    of_weight = torch.mm(rows.t(), columns).view([filters, 1, 1, channels]).permute([0, 3, 1, 2])
    return (of_input, of_weight, rows.sum([0]))
)")
                                       .release();
  return *graph;
}

bool are_all_numbers(const Value& list, int64_t wanted) {
  const c10::IValue* constant = list.constant();
  if (constant == nullptr || !constant->isIntList()) {
    return false;
  }
  return std::ranges::all_of(constant->toIntVector(), [wanted](int64_t number) { return number == wanted; });
}

// Returns the gradients of a convolution of single pixels; null for another one.
const Graph* decomposition_of(const Node& node) {
  // Positions of the operands.
  constexpr size_t kInput = 1;
  constexpr size_t kWeight = 2;
  constexpr size_t kStride = 4;
  constexpr size_t kPadding = 5;
  constexpr size_t kIsTransposed = 7;
  constexpr size_t kGroupCount = 9;
  const auto input = known_tensor(*node.input(kInput));
  const auto weight = known_tensor(*node.input(kWeight));
  if (!input || !weight || weight->dtype != c10::kFloat || input->dtype != c10::kFloat || !weight->device->is_cpu() ||
      input->sizes->size() != weight->sizes->size() || weight->sizes->size() < 3) {
    return nullptr;
  }
  const bool is_pointwise =
      std::all_of(weight->sizes->begin() + 2, weight->sizes->end(), [](const Dim& size) { return size == Dim::known(1); }) &&
      are_all_numbers(*node.input(kStride), 1) && are_all_numbers(*node.input(kPadding), 0) &&
      constant_bool(*node.input(kIsTransposed)) == false && is_constant_int(*node.input(kGroupCount), 1);
  if (!is_pointwise) {
    return nullptr;
  }
  // An image of one channel or one pixel lies both ways. LibTorch decides how its gradient lies.
  const bool is_contiguous_image = input->contiguous || is_contiguous(&*input);
  if (has_layout(&*input, c10::MemoryFormat::ChannelsLast) && !is_contiguous_image) {
    return &gradients_of_pixels();
  }
  return is_contiguous_image ? &pointwise_gradients() : nullptr;
}

}  // namespace

bool decompose_pointwise_gradients(Graph& graph) {
  std::vector<std::pair<Node*, const Graph*>> found;
  for_each_node(graph.body(), [&](Node* node) {
    const Graph* gradients = node->kind() == aten::convolution_backward ? decomposition_of(*node) : nullptr;
    if (gradients != nullptr) {
      found.emplace_back(node, gradients);
    }
  });
  for (const auto& [node, gradients] : found) {
    inline_function(*node, *gradients);
  }
  return !found.empty();
}

}  // namespace sconce
