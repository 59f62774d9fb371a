#include "passes/matmul/decompose_convolution_gradients.h"

#include "ir/constant_operands.h"
#include "load/compile_op_row.h"
#include "passes/matmul/inline_function.h"
#include "passes/matmul/known_matrices.h"

#include <vector>

namespace sconce {
namespace {

constexpr size_t kTransposed = 7;
constexpr size_t kGroups = 9;
constexpr size_t kNeeds = 10;  // which gradients are asked for
constexpr size_t kOfWeight = 1;

const Graph& body() {
  static const auto* const graph = compile_function("aten::convolution_backward", R"(
def gradients(grad: Tensor, input: Tensor, weight: Tensor, bias_sizes: Optional[List[int]], stride: List[int],
              padding: List[int], dilation: List[int], transposed: bool, output_padding: List[int], groups: int,
              needs: List[bool]):
    return convolution_gradients(
        grad, input, weight, stride, padding, dilation, transposed, output_padding, groups, needs, False)
)")
                                       .release();
  return *graph;
}

bool is_image(const Value& value) {
  const auto facts = known_tensor(value);
  return facts && facts->sizes->size() == 4 && facts->device->is_cpu();
}

bool is_legal(const Node& node) {
  const auto* needs = node.input(kNeeds)->constant();
  return constant_bool(*node.input(kTransposed)) == false && is_constant_int(*node.input(kGroups), 1) && needs != nullptr &&
         needs->toBoolList().get(kOfWeight) && is_image(*node.input(0)) && is_image(*node.input(1)) &&
         is_image(*node.input(2));
}

}  // namespace

bool decompose_convolution_gradients(Graph& graph) {
  std::vector<Node*> found;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() == aten::convolution_backward && is_legal(*node) && !is_alternative_to_products(*node)) {
      found.push_back(node);
    }
  });
  for (Node* node : found) {
    inline_function(*node, body());
  }
  return !found.empty();
}

}  // namespace sconce
