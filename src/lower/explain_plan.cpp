#include "lower/explain_plan.h"

#include "analysis/node_devices.h"
#include "analysis/step_traits.h"
#include "ir/text/print.h"
#include "lower/lower_subgraph.h"
#include "lower/step_placement.h"
#include "plan/autograd/differentiable_function.h"
#include "plan/captured/captured_step.h"

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

std::string source_of(const Node& node) { return node.location() ? node.location()->file_line_column() : std::string(); }

// Returns "aten::add", or "kernel of 12 nodes".
std::string describe_nodes(const Plan::KernelNodes& kernel) {
  const size_t count = kernel.nodes.size();
  return kernel.is_group ? "kernel of " + std::to_string(count) + (count == 1 ? " node" : " nodes")
                         : kernel.nodes.front()->kind().toQualString();
}

// Returns the first node with a line of the model, or the first one if none has. Nodes of backward may have none.
const Node* named_node_of(const Plan::KernelNodes& kernel) {
  const auto found = std::ranges::find_if(kernel.nodes, [](const Node* node) { return !source_of(*node).empty(); });
  return found != kernel.nodes.end() ? *found : kernel.nodes.front();
}

// Collects the nodes that are not prepared, by operator and reason.
class NotPreparedNodes {
 public:
  explicit NotPreparedNodes(const std::string& source_of_plan) : source_of_plan_(source_of_plan) {}

  void add(const Node& node, const std::string& op, NotPrepared reason, uint64_t times) {
    auto found = std::ranges::find_if(entries_, [&](const auto& each) { return each.op == op && each.reason == reason; });
    if (found == entries_.end()) {
      const std::string source = source_of(node);
      found = entries_.insert(found, {op, reason, 0, 0, print_node_line(node), source.empty() ? source_of_plan_ : source});
    }
    found->steps += 1;
    found->times += times;
  }
  void add_all(size_t steps, NotPrepared reason) {
    if (steps > 0) {
      entries_.push_back({.reason = reason, .steps = steps});
    }
  }
  // Returns the entries, those with the most steps first.
  std::vector<NotPreparedExplanation> sorted() && {
    std::ranges::stable_sort(entries_, [](const auto& a, const auto& b) { return a.steps > b.steps; });
    return std::move(entries_);
  }

 private:
  const std::string& source_of_plan_;
  std::vector<NotPreparedExplanation> entries_;
};

// Counts nodes that have steps, each once: of a kernel's step, the steps that follow it are counted. Captures are on the
// first device that is not the CPU. Where there is none, the steps are judged as if the CPU had captures.
TraitsExplanation explain_traits(const Plan& plan) {
  TraitsExplanation explanation;
  const c10::Device captured = main_device_of(*plan.graph());
  for (const c10::Device device : devices_of(*plan.graph())) {
    explanation.devices.push_back(device.str());
  }
  const Node* previous = nullptr;
  for (const Plan::PlannedStep& step : plan.steps()) {
    if (step.node == nullptr || step.node == std::exchange(previous, step.node) ||
        step.node->opcode() == Opcode::kCaptured) {
      continue;
    }
    const StepTraits traits = traits_of(*step.node, captured);
    explanation.steps += 1;
    explanation.computing += traits.computes ? 1 : 0;
    explanation.random += traits.random ? 1 : 0;
    explanation.writes += traits.writes ? 1 : 0;
    explanation.reads_host += traits.reads_host ? 1 : 0;
    if (traits.not_recordable) {
      const std::string op = step.node->kind().toQualString();
      auto& entries = explanation.not_recordable;
      auto found = std::ranges::find_if(entries, [&](const NotRecordableExplanation& each) {
        return each.op == op && each.reason == *traits.not_recordable;
      });
      if (found == entries.end()) {
        found = entries.insert(found, {op, *traits.not_recordable, 0, print_node_line(*step.node), source_of(*step.node)});
      }
      found->steps += 1;
    }
  }
  return explanation;
}

MemoryExplanation explain_memory(const Plan& plan) {
  MemoryExplanation memory;
  const ArenaLayout* layout = plan.memory().layout();
  memory.has_layout = layout != nullptr;
  memory.arena_bytes = layout != nullptr ? layout->bytes : 0;
  memory.lower_bound = layout != nullptr ? layout->lower_bound : 0;
  const auto lifetimes = plan.memory().lifetimes();
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Node& node = *plan.prepared().slots[i].op;
    SlotExplanation slot{.first = lifetimes[i].first, .last = lifetimes[i].last};
    slot.offset = layout != nullptr ? layout->offsets[i] : 0;
    slot.bytes = layout != nullptr ? layout->capacities[i] : 0;
    slot.is_view = plan.prepared().slots[i].is_view;
    slot.node = print_node_line(node);
    slot.source = source_of(node);
    memory.without_room += layout != nullptr && slot.bytes == 0 && !slot.is_view ? 1 : 0;
    memory.slots.push_back(std::move(slot));
  }
  for_each_node(plan.graph()->body(), [&](Node* node) { memory.positions += node->blocks().empty() ? 1 : 2; });
  return memory;
}

// Explains the plans of a differentiable subgraph.
DifferentiableExplanation explain_function(const DifferentiableFunction& function, const Node& node) {
  DifferentiableExplanation explanation;
  explanation.name = function.name;
  explanation.source = source_of(node);
  explanation.saved_inputs = function.signature.saved_inputs.size();
  explanation.saved_outputs = function.signature.saved_outputs.size();
  explanation.saved_intermediates = function.signature.intermediates;
  for (const Plan* plan : {static_cast<const Plan*>(function.forward.get()), function.all_defined.get()}) {
    PlanExplanation& each = explanation.plans.emplace_back();
    each.tier = Tier::kRanks;
    explain_plan(*plan, each, explanation.source);
  }
  return explanation;
}

RecordedExplanation explain_captured(const CapturedNode& captured, const Node& node) {
  RecordedExplanation explanation{.node = print_node_line(node), .source = source_of(node)};
  explanation.recordings = captured.counts->captures.load();
  explanation.replays = captured.counts->replays.load();
  for (auto& [reason, runs] : captured.counts->uncaptured()) {
    explanation.unrecorded.push_back({reason, runs});
  }
  explain_plan(*captured.operators, explanation.plan.emplace_back(), explanation.source);
  return explanation;
}

}  // namespace

void explain_plan(const Plan& plan, PlanExplanation& explanation, const std::string& source) {
  explanation.steps = plan.steps().size();
  explanation.threads = static_cast<size_t>(plan.most_threads());
  explanation.threads_limit = static_cast<size_t>(plan.thread_limit().most);
  explanation.registers = plan.register_count();
  explanation.frames = plan.frames_made();
  explanation.text = plan.text();
  const Plan::Prepared& prepared = plan.prepared();
  explanation.groups =
      static_cast<size_t>(std::ranges::count_if(prepared.kernels, [](const auto& kernel) { return kernel.is_group; }));
  explanation.prepared_steps = prepared.kernels.size() - explanation.groups;
  NotPreparedNodes nodes(source);
  for (const NotPrepared reason : RefusalCounts::kReasonsOfRuns) {
    nodes.add_all(plan.refusals().met_run(reason) ? explanation.prepared_steps : 0, reason);
  }
  for (const auto& [node, reason] : prepared.ordinary) {
    if (node->opcode() == Opcode::kDelegate || !has_plans_of_its_own(*node)) {  // else those have steps
      explanation.ordinary_steps += 1;
      nodes.add(*node, node->kind().toQualString(), reason, 0);
    }
  }
  for (size_t state = 0; state < prepared.kernels.size(); ++state) {
    const Plan::KernelNodes& kernel = prepared.kernels[state];
    for (const NotPrepared reason : RefusalCounts::kReasons) {
      if (const uint32_t times = plan.refusals().count(state, reason); times > 0) {
        nodes.add(*named_node_of(kernel), describe_nodes(kernel), reason, times);
      }
    }
  }
  // In a plan with prepared steps, every ordinary operator has a reason.
  if (prepared.kernels.empty() && prepared.ordinary.empty()) {
    explanation.ordinary_steps = static_cast<size_t>(std::ranges::count_if(
        plan.steps(), [](const Plan::PlannedStep& step) { return step.node != nullptr && returns_tensors(*step.node); }));
    nodes.add_all(explanation.ordinary_steps, NotPrepared::kOptimizationOff);
  }
  explanation.not_prepared = std::move(nodes).sorted();
  for (const auto& [state, times] : plan.timed().all()) {
    const Plan::KernelNodes& kernel = prepared.kernels[state];
    explanation.timed.push_back({.op = describe_nodes(kernel),
                                 .source = source_of(*named_node_of(kernel)),
                                 .kernel_seconds = times.kernel,
                                 .operator_seconds = times.op,
                                 .is_by_kernel = plan.refusals().count(state, NotPrepared::kSlower) == 0});
  }
  explanation.traits = explain_traits(plan);
  explanation.memory = explain_memory(plan);
  for (const Plan::PlannedStep& step : plan.steps()) {
    if (const DifferentiableFunction* function = function_of(*step.step)) {
      if (!explanation.gradients) {
        explanation.gradients.emplace();
      }
      explanation.gradients->subgraphs.push_back(explain_function(*function, *step.node));
    }
    if (const CapturedNode* captured = captured_node_of(*step.step)) {
      explanation.recorded.push_back(explain_captured(*captured, *step.node));
    }
  }
}

}  // namespace sconce
