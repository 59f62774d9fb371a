#include "passes/loops/accumulate_selections.h"

#include "analysis/counted_loop.h"
#include "passes/insert_node.h"
#include "passes/loops/carried_sums.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

const c10::Symbol& select_backward_symbol() {
  static const c10::Symbol kSelectBackward = c10::Symbol::fromQualString("aten::select_backward");
  return kSelectBackward;
}

bool is_selection(const CarriedSum& sum, const Node& loop) {
  const Node& part = *sum.part;
  if (part.kind() != select_backward_symbol()) {
    return false;
  }
  const TensorFacts* facts = part.output()->facts();
  const bool has_given_sizes = !is_made_in_body(*part.input(1), loop);
  return has_given_sizes && facts != nullptr && facts->dtype && facts->device;
}

void accumulate(const CarriedSum& sum, Node& loop) {
  Graph& graph = loop.graph();
  Node& part = *sum.part;
  const TensorFacts& facts = *part.output()->facts();
  Value* none = graph.insert_constant(c10::IValue(), &loop);
  Value* dtype = graph.insert_constant(static_cast<int64_t>(*facts.dtype), &loop);
  Value* device = graph.insert_constant(*facts.device, &loop);
  Value* all = insert_operator(aten::zeros, {part.input(1), dtype, none, device, none}, loop, facts);
  Value* at = insert_operator(aten::select, {all, part.input(2), part.input(3)}, part);
  insert_operator(aten::add_, {at, part.input(0), graph.insert_constant(1, &part)}, part);
  Block& body = *loop.block(0);
  Node* add = body.returns()[sum.position + 1]->node();
  body.set_return(sum.position + 1, body.params()[sum.position + 1]);
  add->erase();
  part.erase();
  // The loop's own output stays undefined.
  Node* either = graph.create(prim::If, {}, 1);
  either->insert_after(&loop);
  Value* zero = graph.insert_constant(0, either);
  either->add_input(insert_operator(aten::gt, {loop.input(0), zero}, *either, {}, c10::BoolType::get()));
  loop.output(sum.position)->replace_all_uses_with(either->output());
  either->add_block()->add_return(all);
  either->add_block()->add_return(loop.output(sum.position));
}

bool accumulate_in(const Block& block) {
  bool changed = false;
  for (Node* node : block.nodes()) {
    for (const Block* nested : node->blocks()) {
      changed |= accumulate_in(*nested);
    }
    if (node->kind() != prim::Loop || !is_counted_loop(*node)) {
      continue;
    }
    for (const CarriedSum& sum : carried_sums(*node)) {
      if (is_selection(sum, *node)) {
        accumulate(sum, *node);
        changed = true;
      }
    }
  }
  return changed;
}

}  // namespace

bool accumulate_selections(Graph& graph) { return accumulate_in(graph.body()); }

}  // namespace sconce
