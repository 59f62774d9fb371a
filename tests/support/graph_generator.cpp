#include "tests/support/graph_generator.h"

#include "tests/support/generator/generator.h"

#include <ATen/ATen.h>

namespace sconce::testing {

GeneratedGraph generate_graph(uint64_t seed, const GeneratorSettings& settings) {
  return generator::Generator(seed, settings).run();
}

namespace {

at::Tensor reversed_dims(const at::Tensor& tensor) {
  std::vector<int64_t> order(static_cast<size_t>(tensor.dim()));
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = tensor.dim() - 1 - static_cast<int64_t>(i);
  }
  return tensor.permute(order);
}

at::Tensor make_floats(const GeneratedInput& input, bool strided) {
  return strided ? reversed_dims(at::randn(std::vector<int64_t>(input.sizes.rbegin(), input.sizes.rend()))).detach()
                 : at::randn(input.sizes);
}

}  // namespace

std::vector<c10::IValue> make_arguments(const GeneratedGraph& graph, int call, bool requires_grad) {
  at::manual_seed(graph.seed * 8 + static_cast<uint64_t>(call));
  std::vector<c10::IValue> arguments;
  for (const GeneratedInput& input : graph.inputs) {
    switch (input.kind) {
      case GeneratedInput::Kind::kTensor: {
        at::Tensor tensor;
        if (input.alias_of >= 0) {
          tensor = arguments[static_cast<size_t>(input.alias_of)].toTensor();
          tensor = input.alias_is_transposed ? reversed_dims(tensor) : tensor;
        } else {
          tensor = make_floats(input, /*strided=*/call == 3);
        }
        arguments.emplace_back(tensor.set_requires_grad(requires_grad && input.differentiable));
        break;
      }
      case GeneratedInput::Kind::kIndices: arguments.emplace_back(at::randint(0, 2, input.sizes, at::kLong)); break;
      case GeneratedInput::Kind::kInt: arguments.emplace_back(static_cast<int64_t>(graph.seed % 7) + call); break;
      case GeneratedInput::Kind::kBool: arguments.emplace_back((graph.seed + static_cast<uint64_t>(call)) % 2 == 0); break;
      case GeneratedInput::Kind::kOptional:
        arguments.push_back(call == 2 ? c10::IValue() : c10::IValue(at::randn(input.sizes)));
        break;
    }
  }
  return arguments;
}

}  // namespace sconce::testing
