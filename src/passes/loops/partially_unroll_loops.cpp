#include "passes/loops/partially_unroll_loops.h"

#include "ir/constant_operands.h"
#include "ir/schema_match.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

constexpr int64_t kFactor = 8;
constexpr size_t kMaxUnrolledNodes = 32;

c10::Symbol unrolled() {
  static const c10::Symbol name = c10::Symbol::attr("unrolled");
  return name;
}

bool is_to_be_unrolled(const Node& loop) {
  if (loop.kind() != prim::Loop || loop.attribute(unrolled()) != nullptr || constant_bool(*loop.input(1)) != true ||
      constant_bool(*loop.block(0)->returns()[0]) != true) {
    return false;
  }
  const auto* trips = loop.input(0)->constant();
  size_t nodes = 0;
  for_each_node(*loop.block(0), [&](Node*) { ++nodes; });
  return nodes <= kMaxUnrolledNodes && !(trips && trips->toInt() < kFactor);
}

Value* insert_int(c10::Symbol kind, c10::ArrayRef<Value*> operands, Node* position) {
  Node* node = position->graph().create(kind, operands, 0);
  node->add_output(c10::IntType::get());
  resolve(*node);
  node->set_location(position->location())->insert_before(position);
  return node->output();
}

// Gives a new value the name and facts of `model`, which has the same type.
Value* like(Value* made, const Value& model) {
  made->set_name(model.name());
  if (model.facts() != nullptr) {
    made->set_facts(*model.facts());
  }
  return made;
}

// Makes a loop of `rounds` iterations, each of which runs eight iterations of `loop`. Its results are the new initial
// values of `loop`.
void insert_rounds(Node& loop, Value* rounds, Value* factor) {
  Graph& graph = loop.graph();
  const Block& once = *loop.block(0);
  std::vector<Value*> operands = {rounds, loop.input(1)};
  operands.insert(operands.end(), loop.inputs().begin() + 2, loop.inputs().end());
  Node* all = graph.create(prim::Loop, operands, 0);
  all->set_attribute(unrolled(), kFactor)->set_location(loop.location())->insert_before(&loop);
  Block& body = *all->add_block();
  Value* round = body.add_param(c10::IntType::get());
  std::vector<Value*> carried;
  for (size_t i = 0; i < loop.outputs().size(); ++i) {
    const Value& param = *once.params()[i + 1];
    carried.push_back(like(body.add_param(param.type()), param));
    like(all->add_output(param.type()), param);
    loop.set_input(i + 2, all->output(i));
  }
  Node* const end = body.return_node();
  const bool counts = once.params()[0]->has_uses();
  Value* first = counts ? insert_int(aten::mul, {round, factor}, end) : round;
  for (int64_t i = 0; i < kFactor; ++i) {
    std::vector<Value*> params = {first};
    if (counts && i > 0) {
      params[0] = insert_int(aten::add, {first, graph.insert_constant(i, end)}, end);
    }
    params.insert(params.end(), carried.begin(), carried.end());
    const std::vector<Value*> results = graph.repeat_nodes(once, params, end);
    carried.assign(results.begin() + 1, results.end());
  }
  body.add_return(loop.input(1));
  for (Value* value : carried) {
    body.add_return(value);
  }
}

void unroll(Node& loop) {
  Graph& graph = loop.graph();
  Value* factor = graph.insert_constant(kFactor, &loop);
  // A negative trip count means none.
  Value* trips = insert_int(prim::max, {loop.input(0), graph.insert_constant(int64_t{0}, &loop)}, &loop);
  Value* rounds = insert_int(aten::floordiv, {trips, factor}, &loop);
  insert_rounds(loop, rounds, factor);
  Value* done = insert_int(aten::mul, {rounds, factor}, &loop);
  loop.set_input(0, insert_int(aten::sub, {trips, done}, &loop));
  loop.set_attribute(unrolled(), kFactor);
  Block& body = *loop.block(0);
  Value* iteration = body.params()[0];
  if (iteration->has_uses()) {
    Value* counted = insert_int(aten::add, {iteration, done}, body.empty() ? body.return_node() : body.first());
    iteration->replace_all_uses_with(counted);
    counted->node()->set_input(0, iteration);
  }
}

bool partially_unroll_in(const Block& block) {
  bool changed = false;
  for (Node* node : block.nodes()) {
    for (const Block* nested : node->blocks()) {
      changed |= partially_unroll_in(*nested);
    }
    if (is_to_be_unrolled(*node)) {
      unroll(*node);
      changed = true;
    }
  }
  return changed;
}

}  // namespace

bool partially_unroll_loops(Graph& graph) { return partially_unroll_in(graph.body()); }

}  // namespace sconce
