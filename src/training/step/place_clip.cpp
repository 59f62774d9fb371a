#include "training/step/place_clip.h"

#include "load/compile_op_row.h"
#include "training/clipping.h"
#include "training/step/optimize_ending.h"
#include "training/step/place_reductions.h"
#include "training/step/step_positions.h"

#include <algorithm>
#include <memory>

namespace sconce {

void place_clip(Graph& graph, size_t first, double max_norm, const std::string& group, bool has_kernels,
                PassRunner& runner) {
  const std::vector<Value*> gradients = graph.outputs().slice(first).vec();
  std::unique_ptr<Graph> text = compile_function("the clipping of gradients", clip_factor_text(gradients.size(), max_norm));
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (const TensorFacts* facts = gradients[i]->facts()) {
      text->inputs()[i]->set_facts(*facts);
    }
  }
  const std::shared_ptr<Graph> factor = optimize_ending(std::move(text), has_kernels, runner);
  const StepPositions positions(graph);
  size_t position = 0;
  ValueMap values;
  for (size_t i = 0; i < gradients.size(); ++i) {
    position = std::max(position, positions.after_writes(*gradients[i]));
    values.emplace(factor->inputs()[i], gradients[i]);
  }
  Value* of_graph = graph.copy_nodes(factor->body(), positions.at(position), values).front();
  if (!group.empty()) {
    of_graph = insert_broadcast(graph, of_graph, group, positions.at(position));
  }
  graph.add_output(of_graph);
}

}  // namespace sconce
