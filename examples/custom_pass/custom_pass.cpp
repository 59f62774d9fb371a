// Three passes for sconce: a pattern, a function, and a backend that computes subgraphs by a kernel of its own.
// docs/adding_a_pass.md walks through it.
#include <sconce/pass.h>
#include <sconce/pass_plugin.h>

#include <ATen/ATen.h>

#include <cmath>

namespace {

// A pattern: x * sigmoid(x) has an operator of its own.
constexpr const char* kProduct = R"(
graph(%x : Tensor):
  %s : Tensor = aten::sigmoid(%x)
  %r : Tensor = aten::mul(%x, %s)
  return (%r))";
constexpr const char* kSilu = R"(
graph(%x : Tensor):
  %r : Tensor = aten::silu(%x)
  return (%r))";

// A function: of two `relu` in a row the second changes nothing.
bool drop_second_relu(sconce::Graph& graph) {
  bool changed = false;
  sconce::for_each_node(graph.body(), [&](sconce::Node* node) {
    const bool is_second = node->kind() == sconce::aten::relu && node->input(0)->node()->kind() == sconce::aten::relu;
    // The two results are equal, but two objects: nobody may hold or change them.
    if (is_second && !sconce::may_escape(*node->output())) {
      const sconce::AliasSets aliases(graph);
      if (!aliases.may_be_written(*node->output()) && !aliases.may_be_written(*node->input(0))) {
        node->output()->replace_all_uses_with(node->input(0));
        node->erase();
        changed = true;
      }
    }
  });
  return changed;
}

// A backend: chains of pointwise operators, in one pass over memory.
using Scalar = float (*)(float);

Scalar scalar_function(const sconce::Node& node) {
  if (node.kind() == sconce::aten::relu) {
    return [](float x) { return x < 0 ? 0.f : x; };  // NaN stays
  }
  if (node.kind() == sconce::aten::neg) {
    return [](float x) { return -x; };
  }
  return node.kind() == sconce::aten::abs ? [](float x) { return std::fabs(x); } : Scalar();
}

sconce::SubgraphKernel compile_chain(const std::shared_ptr<const sconce::Graph>& subgraph) {
  if (subgraph->inputs().size() != 1 || subgraph->outputs().size() != 1) {
    return {};  // no chain: leave these operators as they are
  }
  std::vector<Scalar> chain;
  const sconce::Value* last = subgraph->inputs()[0];
  for (const sconce::Node* node : subgraph->body().nodes()) {
    if (node->input(0) != last) {
      return {};
    }
    chain.push_back(scalar_function(*node));
    last = node->output();
  }
  if (subgraph->outputs()[0] != last) {
    return {};
  }
  return [chain](c10::ArrayRef<c10::IValue> operands) -> std::vector<c10::IValue> {
    const at::Tensor x = operands[0].toTensor();
    if (x.scalar_type() != at::kFloat || !x.device().is_cpu() || !x.is_contiguous()) {
      return {};  // not this time: the operators run
    }
    at::Tensor result = at::empty_like(x);
    const float* from = x.const_data_ptr<float>();
    float* to = result.mutable_data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      float value = from[i];
      for (const Scalar function : chain) {
        value = function(value);
      }
      to[i] = value;
    }
    return {result};
  };
}

}  // namespace

SCONCE_PASS_PLUGIN("custom_pass", [](sconce::PassPipeline& passes) {
  passes.rewrite(sconce::Stage::kOptimize, "use_silu", kProduct, kSilu, "x * sigmoid(x) becomes silu(x)");
  passes.after(sconce::Stage::kOptimize, "drop_second_relu", drop_second_relu, "relu(relu(x)) becomes relu(x)");
  passes.after(
      sconce::Stage::kOptimize, "pointwise_chains",
      sconce::partition_for_backend("pointwise_chains", {.supports = [](const auto& node) { return scalar_function(node); },
                                                         .compile = compile_chain}),
      "relu, neg and abs one after the other run as one");
})
