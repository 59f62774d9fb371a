#include "passes/loops/unroll_loops.h"

#include "analysis/counted_loop.h"

namespace sconce {
namespace {

constexpr int64_t kMaxNodes = 1024;

int64_t node_count(const Block& block) {
  int64_t count = 0;
  for_each_node(block, [&](Node*) { ++count; });
  return count;
}

// Returns the trip count if it is constant and the loop has no early exit.
std::optional<int64_t> known_iterations(const Node& loop) {
  const auto* trips = loop.input(0)->constant();
  if (!trips || !trips->isInt() || !is_counted_loop(loop)) {
    return std::nullopt;
  }
  return std::max<int64_t>(trips->toInt(), 0);
}

void write_out(Node& loop, int64_t iterations) {
  Graph& graph = loop.graph();
  std::vector<Value*> carried(loop.inputs().begin() + 2, loop.inputs().end());
  for (int64_t i = 0; i < iterations; ++i) {
    std::vector<Value*> params = {graph.insert_constant(i, &loop)};
    params.insert(params.end(), carried.begin(), carried.end());
    const std::vector<Value*> results = graph.repeat_nodes(*loop.block(0), params, &loop);
    carried.assign(results.begin() + 1, results.end());
  }
  for (size_t i = 0; i < loop.outputs().size(); ++i) {
    loop.output(i)->replace_all_uses_with(carried[i]);
  }
  loop.erase();
}

bool unroll_in(const Block& block) {
  bool changed = false;
  for (Node* node : block.nodes()) {
    for (const Block* nested : node->blocks()) {
      changed |= unroll_in(*nested);
    }
    const auto iterations = node->kind() == prim::Loop ? known_iterations(*node) : std::nullopt;
    if (iterations && *iterations <= kMaxNodes / std::max<int64_t>(node_count(*node->block(0)), 1)) {
      write_out(*node, *iterations);
      changed = true;
    }
  }
  return changed;
}

}  // namespace

bool unroll_loops(Graph& graph) { return unroll_in(graph.body()); }

}  // namespace sconce
