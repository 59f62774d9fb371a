#include "passes/loops/peel_last_iteration.h"

#include "analysis/counted_loop.h"
#include "passes/insert_node.h"

#include <ATen/core/jit_type.h>

namespace sconce {

bool peel_last_iteration(Node& loop) {
  if (!is_counted_loop(loop)) {
    return false;
  }
  Graph& graph = loop.graph();
  Value* const trips = loop.input(0);
  Value* const one = graph.insert_constant(1, &loop);
  Value* const last = insert_operator(aten::sub, {trips, one}, loop, {}, c10::IntType::get());
  Value* const any = insert_operator(aten::gt, {trips, graph.insert_constant(0, &loop)}, loop, {}, c10::BoolType::get());
  loop.set_input(0, last);

  Node* const peeled = graph.create(prim::If, {any}, 0);
  peeled->set_location(loop.location());
  peeled->insert_after(&loop);
  for (Value* output : loop.outputs()) {
    Value* result = peeled->add_output(output->type());
    result->set_name(output->name());
    if (output->facts() != nullptr) {
      result->set_facts(*output->facts());
    }
    output->replace_all_uses_with(result);
  }
  Block* const iteration = peeled->add_block();
  std::vector<Value*> params = {last};
  params.insert(params.end(), loop.outputs().begin(), loop.outputs().end());
  const std::vector<Value*> results = graph.repeat_nodes(*loop.block(0), params, iteration->return_node());
  Block* const none = peeled->add_block();
  for (size_t i = 0; i < loop.outputs().size(); ++i) {
    iteration->add_return(results[i + 1]);
    none->add_return(loop.input(i + 2));
  }
  return true;
}

}  // namespace sconce
