#include "training/step/place_reductions.h"

#include "ir/schema_match.h"
#include "training/step/step_positions.h"

#include <algorithm>

namespace sconce {
namespace {

Node& insert_operator(Graph& graph, const char* name, c10::ArrayRef<Value*> operands, Node* position) {
  Node* const node = graph.create(c10::Symbol::fromQualString(name), operands)->insert_before(position);
  SCONCE_ASSERT(resolve(*node), "LibTorch has no operator ", name);
  return *node;
}

}  // namespace

std::vector<ReductionExplanation> place_reductions(Graph& graph, const StepReductions& reductions) {
  const StepPositions positions(graph);
  // All positions are found before any node is inserted.
  std::vector<ReductionExplanation> placed;
  std::vector<Node*> of_bucket;
  std::vector<Node*> of_member;
  size_t begins = 0;
  for (const StepReductions::Bucket& bucket : reductions.buckets) {
    for (const StepReductions::Member& member : bucket.members) {
      const size_t position = positions.after_writes(*graph.outputs()[member.gradient]);
      of_member.push_back(positions.at(position));
      begins = std::max(begins, position);  // not before the bucket before it
    }
    of_bucket.push_back(positions.at(begins));
    placed.push_back({bucket.bytes, bucket.members.size(), begins, positions.end()});
  }
  Node* const first = graph.body().first() != nullptr ? graph.body().first() : graph.body().return_node();
  Value* const no = graph.insert_constant(false, first);
  Value* const sum = graph.insert_constant(std::string("sum"), first);
  Value* const group = graph.insert_constant(reductions.group, first);
  auto before = of_member.begin();
  for (const StepReductions::Bucket& bucket : reductions.buckets) {
    for (const StepReductions::Member& member : bucket.members) {
      Value* const view = graph.inputs()[member.view];
      Node& copy = insert_operator(graph, "aten::copy_", {view, graph.outputs()[member.gradient], no}, *before++);
      copy.set_attribute(attr::kHome, int64_t{1});
    }
  }
  for (size_t i = 0; i < reductions.buckets.size(); ++i) {
    Value* const tensor = graph.inputs()[reductions.buckets[i].tensor];
    insert_operator(graph, "_c10d_functional::all_reduce_", {tensor, sum, group}, of_bucket[i]);
  }
  // After all reductions, some of which may begin at the end, too.
  for (const StepReductions::Bucket& bucket : reductions.buckets) {
    insert_operator(graph, "_c10d_functional::wait_tensor", {graph.inputs()[bucket.tensor]}, graph.body().return_node());
  }
  for (const StepReductions::Bucket& bucket : reductions.buckets) {
    for (const StepReductions::Member& member : bucket.members) {
      graph.body().set_return(member.gradient, graph.inputs()[member.view]);
    }
  }
  return placed;
}

Value* insert_broadcast(Graph& graph, Value* tensor, const std::string& group, Node* position) {
  Value* const root = graph.insert_constant(0, position);
  Value* const name = graph.insert_constant(group, position);
  Value* const sent = insert_operator(graph, "_c10d_functional::broadcast_", {tensor, root, name}, position).output();
  return insert_operator(graph, "_c10d_functional::wait_tensor", {sent}, position).output();
}

}  // namespace sconce
