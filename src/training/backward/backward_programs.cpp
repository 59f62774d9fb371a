#include "training/backward/backward_programs.h"

#include "training/backward/engine.h"

#include <ATen/ThreadLocalState.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

using torch::autograd::GraphTask;
using AutogradNode = torch::autograd::Node;
using torch::autograd::variable_list;

// A graph that a compiler of the user's has compiled.
class CompiledByUser final : public Program {
 public:
  explicit CompiledByUser(BackwardCache::Compiled compiled) : compiled_(std::move(compiled)) {}
  void run(torch::jit::Stack& stack) override { compiled_(stack); }

 private:
  const BackwardCache::Compiled compiled_;
};

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
  if (torch::autograd::AnomalyMode::is_enabled()) {
    return run_by_engine(root, task, "anomaly mode is on");
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
  if (entry == nullptr && !should_record(walk.key())) {
    return run_by_engine(root, task, "its kind came for the first time");
  }
  variable_list results(outputs.size());
  if (entry != nullptr) {
    by_plan_.add();
    results = sconce::run(entry->program, walk, outputs.size(), task.keep_graph_);
  } else {
    recorded_.add();
    insert(walk.key(), record(walk, task.keep_graph_, results));
  }
  run_final_callbacks(const_cast<GraphTask&>(task));
  return results;
}

BackwardPrograms::EntryPtr BackwardPrograms::record(BackwardWalk& walk, bool keeps_graph, variable_list& results) const {
  const auto entry = std::make_shared<Entry>();
  const auto compile = [&](std::unique_ptr<Graph> graph) -> std::shared_ptr<Program> {
    if (compiler_ == nullptr) {
      entry->plans.push_back(CapturedGraph::make(std::move(graph), "backward", options_));
      return entry->plans.back();
    }
    Compiled compiled = compiler_(std::move(graph));
    TORCH_CHECK(compiled != nullptr, "the compiler of backward returned nothing");
    return std::make_shared<CompiledByUser>(std::move(compiled));
  };
  RecordedBackward recorded = record_backward(walk, results.size(), keeps_graph, compile);
  results = std::move(recorded.results);
  if (recorded.refusal) {
    entry->why_not = recorded.refusal->reason;
    entry->plans.clear();
  } else {
    entry->program = std::move(recorded.program);
  }
  return entry;
}

bool BackwardPrograms::Entry::is_ready() const {
  return std::all_of(plans.begin(), plans.end(), [](const auto& plan) { return plan->is_ready(); });
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

bool BackwardPrograms::should_record(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return seen_.should_record(std::hash<std::string>()(key));
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
    for (const auto& plan : entry.first->plans) {
      explanation.plans.push_back(plan->explain());
    }
  }
  return explanation;
}

void BackwardPrograms::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_.clear();
  order_.clear();
  reasons_.clear();
  seen_ = {};
  by_plan_.reset();
  recorded_.reset();
}

void BackwardPrograms::wait_for_compiles() const {
  std::vector<std::shared_ptr<CapturedGraph>> plans;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      plans.insert(plans.end(), entry.first->plans.begin(), entry.first->plans.end());
    }
  }
  for (const auto& plan : plans) {
    plan->wait_for_compile();
  }
}

}  // namespace sconce
