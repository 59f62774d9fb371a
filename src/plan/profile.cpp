#include "plan/profile.h"

#include "ir/source.h"
#include "ir/text/print.h"

namespace sconce {

void Profile::add_run() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++runs_;
}

void Profile::add_value(const Value& value, const c10::IValue& held) {
  if (!held.isTensor()) {
    return;
  }
  const TensorFacts seen = facts_of(held.toTensor());
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [known, is_new] = facts_.emplace(&value, seen);
  if (!is_new) {
    known->second = common_facts(known->second, seen);
  }
}

void Profile::add_branch(const Node& branch, bool taken) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Counts& counts = counts_[&branch];
  ++(taken ? counts.first : counts.second);
}

void Profile::add_loop(const Node& loop) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counts_[&loop].first;
}

void Profile::add_iteration(const Node& loop) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counts_[&loop].second;
}

std::unique_ptr<Graph> Profile::annotated_graph() const {
  auto graph = std::make_unique<Graph>();
  ValueMap copies;
  for (const Value* input : graph_->inputs()) {
    copies[input] = graph->add_input(input->name(), input->type());
  }
  for (Value* output : graph->copy_nodes(graph_->body(), graph->body().return_node(), copies)) {
    graph->add_output(output);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [value, facts] : facts_) {
    if (const auto copy = copies.find(value); copy != copies.end()) {
      copy->second->set_facts(facts);
    }
  }
  return graph;
}

ProfileExplanation Profile::explain() const {
  ProfileExplanation explanation;
  explanation.graph = print(*annotated_graph());
  const std::lock_guard<std::mutex> lock(mutex_);
  explanation.runs = runs_;
  for_each_node(graph_->body(), [&](Node* node) {
    const auto counts = counts_.find(node);
    if (counts == counts_.end()) {
      return;
    }
    const std::string source = describe_call_chain(node->location());
    if (node->kind() == prim::If) {
      explanation.branches.push_back({source, counts->second.first, counts->second.second});
    } else {
      explanation.loops.push_back({source, counts->second.first, counts->second.second});
    }
  });
  return explanation;
}

}  // namespace sconce
