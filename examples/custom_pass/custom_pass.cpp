// Two passes for sconce: one written as a pattern, one as a function. docs/adding_a_pass.md walks through it.
#include <sconce/pass.h>
#include <sconce/pass_plugin.h>

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
    if (is_second && !sconce::may_leave(*node->output())) {
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

}  // namespace

SCONCE_PASS_PLUGIN("custom_pass", [](sconce::PassPipeline& passes) {
  passes.rewrite(sconce::Stage::kOptimise, "use_silu", kProduct, kSilu, "x * sigmoid(x) becomes silu(x)");
  passes.after(sconce::Stage::kOptimise, "drop_second_relu", drop_second_relu, "relu(relu(x)) becomes relu(x)");
})
