#include "passes/matmul/decompose_pointwise_gradients.h"

#include "analysis/known_layout.h"
#include "ir/constant_operands.h"
#include "load/compile_op_row.h"
#include "passes/matmul/inline_function.h"
#include "passes/matmul/known_matrices.h"

#include <algorithm>
#include <memory>
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

bool are_all_numbers(const Value& list, int64_t wanted) {
  const c10::IValue* constant = list.constant();
  if (constant == nullptr || !constant->isIntList()) {
    return false;
  }
  const auto numbers = constant->toIntVector();
  return std::all_of(numbers.begin(), numbers.end(), [wanted](int64_t number) { return number == wanted; });
}

bool is_pointwise(const Node& node) {
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
    return false;
  }
  return std::all_of(weight->sizes->begin() + 2, weight->sizes->end(),
                     [](const Dim& size) { return size == Dim::known(1); }) &&
         (input->contiguous || is_contiguous(&*input)) && are_all_numbers(*node.input(kStride), 1) &&
         are_all_numbers(*node.input(kPadding), 0) && constant_bool(*node.input(kIsTransposed)) == false &&
         is_constant_int(*node.input(kGroupCount), 1);
}

}  // namespace

bool decompose_pointwise_gradients(Graph& graph) {
  return decompose_pointwise_gradients(graph, [] { return true; });
}

bool decompose_pointwise_gradients(Graph& graph, c10::function_ref<bool()> gains) {
  std::vector<Node*> found;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() == aten::convolution_backward && is_pointwise(*node)) {
      found.push_back(node);
    }
  });
  if (found.empty() || !gains()) {
    return false;
  }
  for (Node* node : found) {
    inline_function(*node, pointwise_gradients());
  }
  return true;
}

}  // namespace sconce
