#include "training/backward/backward_programs.h"

#include "training/backward/engine.h"

#include <ATen/ThreadLocalState.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <utility>

namespace sconce {
namespace {

using torch::autograd::GraphTask;
using AutogradNode = torch::autograd::Node;
using torch::autograd::variable_list;

// Adds a gradient to a leaf's: what the engine does with an AccumulateGrad and its hooks.
void accumulate(AutogradNode& leaf, at::Tensor gradient) {
  variable_list gradients;
  gradients.push_back(std::move(gradient));
  for (const auto& hook : leaf.tensor_pre_hooks()) {
    gradients = (*hook)(std::move(gradients));
  }
  for (const auto& [index, hook] : leaf.retains_grad_hooks()) {
    gradients = (*hook)(std::move(gradients));
  }
  for (const auto& hook : leaf.pre_hooks()) {
    gradients = (*hook)(std::move(gradients));
  }
  if (leaf.post_hooks().empty()) {
    leaf(std::move(gradients));
    return;
  }
  const variable_list given = gradients;
  variable_list none = leaf(std::move(gradients));
  for (const auto& hook : leaf.post_hooks()) {
    none = (*hook)(std::move(none), given);
  }
}

// Calls what hooks have queued, which may queue more.
void run_final_callbacks(GraphTask& task) {
  std::unique_lock<std::mutex> lock(task.final_callbacks_lock_);
  for (size_t i = 0; i < task.final_callbacks_.size(); ++i) {
    const std::function<void()> callback = task.final_callbacks_[i];
    lock.unlock();
    callback();
    lock.lock();
  }
}

}  // namespace

variable_list BackwardPrograms::run(const std::shared_ptr<AutogradNode>& root, const GraphTask& task,
                                       const torch::autograd::edge_list& outputs) {
  // What the engine sets for each node.
  const at::ThreadLocalStateGuard state(task.thread_locals_);
  if (c10::GradMode::is_enabled()) {
    return run_by_engine(root, task, "create_graph is on");
  }
  BackwardWalk walk(root, task);
  if (!walk.why_not().empty()) {
    return run_by_engine(root, task, walk.why_not());
  }
  const EntryPtr entry = find(walk.key());
  if (entry != nullptr && !entry->why_not.empty()) {
    return run_by_engine(root, task, entry->why_not);
  }
  if (entry != nullptr && !entry->is_ready()) {
    return run_by_engine(root, task, "its plan is being compiled, or could not be");
  }
  std::vector<at::Tensor> gradients;
  std::vector<GradientTarget> targets;
  if (entry != nullptr) {
    by_plan_.add();
    gradients = run_plan(*entry, walk);
    targets = entry->targets;
  } else {
    recorded_.add();
    RecordedBackward recorded = record_backward(walk);
    gradients = std::move(recorded.gradients);
    targets = recorded.targets;
    insert(walk.key(), entry_of(recorded));
  }
  if (!task.keep_graph_) {
    for (const BackwardCall& call : walk.calls()) {
      if (call.is_needed && !call.is_leaf) {
        call.node->release_variables();
      }
    }
  }
  variable_list results(outputs.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].is_leaf) {
      accumulate(*walk.calls()[targets[i].index].node, std::move(gradients[i]));
    } else {
      results[targets[i].index] = std::move(gradients[i]);
    }
  }
  run_final_callbacks(const_cast<GraphTask&>(task));
  return results;
}

std::vector<at::Tensor> BackwardPrograms::run_plan(const Entry& entry, const BackwardWalk& walk) const {
  torch::jit::Stack stack(walk.tensors().begin(), walk.tensors().end());
  if (entry.plan != nullptr) {
    entry.plan->run(stack);
  } else {
    entry.compiled(stack);
    TORCH_CHECK(stack.size() == entry.targets.size(), "the compiled backward returned ", stack.size(), " values, and its graph ",
                entry.targets.size());
  }
  std::vector<at::Tensor> gradients;
  gradients.reserve(stack.size());
  for (c10::IValue& value : stack) {
    gradients.push_back(std::move(value).toTensor());
  }
  return gradients;
}

BackwardPrograms::EntryPtr BackwardPrograms::entry_of(RecordedBackward& recorded) const {
  const auto entry = std::make_shared<Entry>();
  entry->targets = std::move(recorded.targets);
  if (recorded.refusal) {
    entry->why_not = recorded.refusal->reason;
  } else if (compiler_ != nullptr) {
    entry->compiled = compiler_(std::move(recorded.graph));
    TORCH_CHECK(entry->compiled != nullptr, "the compiler of backward returned nothing");
  } else {
    entry->plan = CapturedGraph::make(std::move(recorded.graph), "backward", options_);
  }
  return entry;
}

// The walk has changed nothing, so the engine can begin.
variable_list BackwardPrograms::run_by_engine(const std::shared_ptr<AutogradNode>& root, const GraphTask& task,
                                                 const std::string& reason) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++reasons_[reason];
  }
  return run_backward_by_engine(root, task);
}

BackwardPrograms::EntryPtr BackwardPrograms::find(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return nullptr;
  }
  order_.splice(order_.begin(), order_, found->second.second);
  return found->second.first;
}

// Of two threads that recorded one kind at once, the first keeps its entry.
void BackwardPrograms::insert(const std::string& key, EntryPtr entry) {
  EntryPtr dropped;  // destroyed outside of the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  if (entries_.count(key) != 0) {
    return;
  }
  if (entries_.size() >= options_.plan_cache_capacity()) {
    const auto oldest = entries_.find(order_.back());
    dropped = std::move(oldest->second.first);
    entries_.erase(oldest);
    order_.pop_back();
  }
  order_.push_front(key);
  entries_.emplace(key, std::pair(std::move(entry), order_.begin()));
}

BackwardExplanation BackwardPrograms::explain() const {
  BackwardExplanation explanation;
  explanation.by_plan = by_plan_.value();
  explanation.recorded = recorded_.value();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [reason, times] : reasons_) {
    explanation.by_engine += times;
    explanation.reasons.emplace_back(reason, times);
  }
  for (const auto& [key, entry] : entries_) {
    if (entry.first->plan != nullptr) {
      explanation.plans.push_back(entry.first->plan->explain());
    }
  }
  return explanation;
}

void BackwardPrograms::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_.clear();
  order_.clear();
  reasons_.clear();
  by_plan_.reset();
  recorded_.reset();
}

void BackwardPrograms::wait_for_compiles() const {
  std::vector<std::shared_ptr<CapturedGraph>> plans;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      if (entry.first->plan != nullptr) {
        plans.push_back(entry.first->plan);
      }
    }
  }
  for (const auto& plan : plans) {
    plan->wait_for_compile();
  }
}

}  // namespace sconce
