#include "training/backward/backward_programs.h"

#include "training/backward/engine.h"

#include <ATen/ThreadLocalState.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>
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

// Returns why the entry is of one size in spite of its pattern; empty if it is not.
std::string why_pinned(const SizePattern& pattern, const BackwardProgram& program) {
  for (size_t i = 0; i < pattern.values().size(); ++i) {
    if (program.symbols->is_pinned(i)) {
      return "code reads a size as a plain number, which is " + std::to_string(pattern.values()[i]);
    }
  }
  return {};
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
  const Found found = find(walk);
  if (found.entry != nullptr && !found.entry->why_not.empty()) {
    return run_by_engine(root, task, found.entry->why_not);
  }
  if (found.entry != nullptr && !found.entry->is_ready()) {
    return run_by_engine(root, task, found.entry->why_no_plan());
  }
  const auto pattern = found.entry == nullptr ? pattern_to_record(walk) : std::nullopt;
  if (found.entry == nullptr && !pattern) {
    return run_by_engine(root, task, "its kind came for the first time");
  }
  variable_list results(outputs.size());
  if (found.entry != nullptr) {
    by_plan_.add();
    results = sconce::run(found.entry->program, walk, found.symbols, outputs.size(), task.keep_graph_);
  } else {
    recorded_.add();
    insert(walk, record(walk, *pattern, task.keep_graph_, results));
  }
  run_final_callbacks(const_cast<GraphTask&>(task));
  return results;
}

BackwardPrograms::EntryPtr BackwardPrograms::record(BackwardWalk& walk, const SizePattern& pattern, bool keeps_graph,
                                                    variable_list& results) const {
  const auto entry = std::make_shared<Entry>();
  entry->pattern = pattern;
  const auto compile = [&](std::unique_ptr<Graph> graph, const CapturedSizes& sizes) -> std::shared_ptr<Program> {
    if (compiler_ == nullptr) {
      entry->plans.push_back(CapturedGraph::make(std::move(graph), "backward", options_, sizes));
      return entry->plans.back();
    }
    Compiled compiled = compiler_(std::move(graph));
    TORCH_CHECK(compiled != nullptr, "the compiler of backward returned nothing");
    return std::make_shared<CompiledByUser>(std::move(compiled));
  };
  RecordedBackward recorded = record_backward(walk, pattern, results.size(), keeps_graph, compile);
  results = std::move(recorded.results);
  if (recorded.refusal) {
    entry->why_not = recorded.refusal->reason;
    entry->plans.clear();
  } else {
    entry->program = std::move(recorded.program);
  }
  return entry;
}

std::string BackwardPrograms::Entry::why_no_plan() const {
  const auto found = std::find_if(plans.begin(), plans.end(), [](const auto& plan) { return !plan->is_ready(); });
  return found == plans.end() ? "its plan is being compiled" : (*found)->why_no_plan();
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

BackwardPrograms::Found BackwardPrograms::find(const BackwardWalk& walk) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto structure = structures_.find(walk.structure());
  if (structure == structures_.end()) {
    return {};
  }
  for (const Uses::iterator use : structure->second->entries) {
    auto symbols = use->entry->pattern.match(walk.sizes());
    const SymbolicSizes* guards = use->entry->program.symbols.get();
    if (symbols && (guards == nullptr || guards->hold(*symbols))) {
      uses_.splice(uses_.begin(), uses_, use);
      return {use->entry, std::move(*symbols)};
    }
  }
  return {};
}

std::optional<SizePattern> BackwardPrograms::pattern_to_record(const BackwardWalk& walk) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = structures_.find(walk.structure());
  if (found != structures_.end() && !found->second->keeps_sizes) {
    const Structure& structure = *found->second;
    SizePattern general(walk.sizes(), structure.first_sizes, structure.symbolic);
    if (general.has_symbols()) {
      return general;
    }
  }
  const std::string_view sizes(reinterpret_cast<const char*>(walk.sizes().data()), walk.sizes().size() * sizeof(int64_t));
  const size_t hash = std::hash<std::string>()(walk.structure()) * 31 + std::hash<std::string_view>()(sizes);
  return seen_.should_record(hash) ? std::optional(SizePattern(walk.sizes())) : std::nullopt;
}

// Of two threads that recorded one kind at once, the first keeps its entry.
void BackwardPrograms::insert(const BackwardWalk& walk, EntryPtr entry) {
  constexpr size_t kMostGeneralEntries = 4;  // more would follow sizes that have no pattern
  Uses dropped;                              // destroyed outside of the lock
  if (find(walk).entry != nullptr) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Structure>& place = structures_[walk.structure()];
  if (place == nullptr) {
    place = std::make_unique<Structure>();
    place->key = walk.structure();
    place->first_sizes = walk.sizes();
    place->symbolic.resize(walk.sizes().size());
  }
  Structure& structure = *place;
  const bool is_general = entry->pattern.has_symbols();
  if (is_general) {
    const std::string why = !entry->why_not.empty() ? entry->why_not : why_pinned(entry->pattern, entry->program);
    if (!why.empty()) {
      structure.keeps_sizes = true;
      why_sizes_are_fixed_.insert(why);
    }
    if (!entry->why_not.empty()) {
      return;  // a trace of one size may not be refused
    }
    structure.keeps_sizes = structure.keeps_sizes || ++structure.general_entries >= kMostGeneralEntries;
    const std::vector<bool> symbolic = entry->pattern.symbolic();
    std::transform(symbolic.begin(), symbolic.end(), structure.symbolic.begin(), structure.symbolic.begin(),
                   std::logical_or<>());
  }
  if (uses_.size() >= options_.plan_cache_capacity()) {
    drop_oldest(dropped, structure);
  }
  uses_.push_front({std::move(entry), &structure});
  structure.entries.insert(is_general ? structure.entries.end() : structure.entries.begin(), uses_.begin());
}

void BackwardPrograms::drop_oldest(Uses& dropped, const Structure& kept) {
  const Uses::iterator oldest = std::prev(uses_.end());
  Structure& structure = *oldest->structure;
  structure.entries.erase(std::find(structure.entries.begin(), structure.entries.end(), oldest));
  dropped.splice(dropped.begin(), uses_, oldest);
  if (structure.entries.empty() && &structure != &kept) {
    structures_.erase(structures_.find(structure.key));
  }
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
  for (const Use& use : uses_) {
    for (const auto& plan : use.entry->plans) {
      explanation.plans.push_back(plan->explain());
    }
  }
  explanation.why_sizes_are_fixed.assign(why_sizes_are_fixed_.begin(), why_sizes_are_fixed_.end());
  return explanation;
}

void BackwardPrograms::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  uses_.clear();
  structures_.clear();
  why_sizes_are_fixed_.clear();
  reasons_.clear();
  seen_ = {};
  by_plan_.reset();
  recorded_.reset();
}

void BackwardPrograms::wait_for_compiles() const {
  std::vector<std::shared_ptr<CapturedGraph>> plans;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Use& use : uses_) {
      plans.insert(plans.end(), use.entry->plans.begin(), use.entry->plans.end());
    }
  }
  for (const auto& plan : plans) {
    plan->wait_for_compile();
  }
}

}  // namespace sconce
