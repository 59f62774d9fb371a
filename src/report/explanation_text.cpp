#include "report/explanation_text.h"

#include "report/gradient_text.h"
#include "report/number_format.h"
#include "report/recorded_calls_text.h"
#include "report/recorded_text.h"
#include "report/table.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <utility>

namespace sconce {
namespace {

std::array<std::pair<const char*, uint64_t>, 6> counters_of(const Counters& counters) {
  return {{{"invocations", counters.invocations},
           {"cache_hits", counters.cache_hits},
           {"cache_misses", counters.cache_misses},
           {"compiles", counters.compiles},
           {"refusals", counters.refusals},
           {"evictions", counters.evictions}}};
}

// One word of a spec describes one value. A model's attributes come first and are many.
std::string one_spec_text(const std::string& spec) {
  std::string text;
  for (size_t begin = 0; begin < spec.size();) {
    const size_t end = std::min(spec.find("; ", begin), spec.size());
    text += (begin == 0 ? "    spec: " : "      ") + spec.substr(begin, end - begin) + "\n";
    begin = end + 2;
  }
  return text;
}

// Returns "    timed: 53 operators that may keep weights, 52 by their kernel", and a table of the others.
std::string timed_text(const std::vector<TimedStepExplanation>& timed) {
  if (timed.empty()) {
    return {};
  }
  Table table({{"operator", Align::kLeft}, {"source", Align::kLeft}, {"kernel"}, {"LibTorch"}});
  size_t by_kernel = 0;
  for (const TimedStepExplanation& each : timed) {
    by_kernel += each.is_by_kernel ? 1 : 0;
    if (!each.is_by_kernel) {
      table.add_row({each.op, short_source(each.source), format_duration(each.kernel_seconds),
                     format_duration(each.operator_seconds)});
    }
  }
  return "    timed: " + counted(timed.size(), "operator") + " that may keep weights, " + format_count(by_kernel) +
         " by their kernel\n" + (by_kernel == timed.size() ? "" : indented(table.render(), "      "));
}

Json json_of(const std::vector<TimedStepExplanation>& timed) {
  Json all = Json::array();
  for (const TimedStepExplanation& each : timed) {
    all.push_back(Json{{"op", each.op},
                       {"source", each.source},
                       {"kernel_seconds", each.kernel_seconds},
                       {"operator_seconds", each.operator_seconds},
                       {"by_kernel", each.is_by_kernel}});
  }
  return all;
}

std::string preparation_text(const PlanExplanation& plan) {
  std::string text = "    operators on tensors: " + format_count(plan.prepared_steps) + " prepared, " +
                     format_count(plan.ordinary_steps) + " ordinary; " + counted(plan.groups, "group") +
                     " for compiled kernels\n";
  if (!plan.not_prepared.empty()) {
    Table table(
        {{"steps"}, {"operator", Align::kLeft}, {"one of them", Align::kLeft}, {"why it is not prepared", Align::kLeft}});
    for (const NotPreparedExplanation& entry : plan.not_prepared) {
      const std::string times = entry.times > 0 ? " (" + counted(entry.times, "time") + ")" : "";
      table.add_row({format_count(entry.steps), entry.op.empty() ? "(all)" : entry.op, short_source(entry.source),
                     to_string(entry.reason) + times});
    }
    text += indented(table.render() + remedies_text(plan.not_prepared), "      ");
  }
  text += timed_text(plan.timed);
  if (plan.threads > 0) {
    text += "    threads inside one operator: up to " + std::to_string(plan.threads) +
            (plan.threads == plan.threads_limit ? ", the limit of intra_op_threads\n" : ", LibTorch's number\n");
  }
  return text + (plan.memory.slots.empty() ? "" : "    memory: " + describe_memory(plan.memory) + "\n");
}

// Returns "    recordings: 33 of 34 steps fit; 2 draw random numbers", and a table of the steps that do not.
std::string traits_text(const TraitsExplanation& traits) {
  size_t unfit = 0;
  Table table({{"steps"},
               {"operator", Align::kLeft},
               {"one of them", Align::kLeft},
               {"why no recording can hold it", Align::kLeft}});
  for (const NotRecordableExplanation& entry : traits.not_recordable) {
    unfit += entry.steps;
    table.add_row({format_count(entry.steps), entry.op, short_source(entry.source), to_string(entry.reason)});
  }
  std::string text = "    recordings: " + format_count(traits.steps - unfit) + " of " + counted(traits.steps, "step") +
                     " fit; " + format_count(traits.random) + " draw random numbers, " + format_count(traits.writes) +
                     " write, " + format_count(traits.reads_host) + " read on the host\n";
  return text + (unfit == 0 ? "" : indented(table.render(), "      "));
}

// Returns "2 specs: gradients are recorded", one line for each reason.
std::string reasons_text(const std::vector<std::string>& reasons) {
  std::map<std::string, size_t> specs;
  for (const std::string& reason : reasons) {
    ++specs[reason];
  }
  std::string text;
  for (const auto& [reason, count] : specs) {
    text += "      " + counted(count, "spec") + ": " + reason + "\n";
  }
  return text;
}

std::string plan_text(const PlanExplanation& plan, const ExplanationDetail& detail) {
  const bool is_generic = plan.tier == Tier::kGeneric;
  std::string text = std::string(is_generic ? "  generic plan: " : "  specialized plan: ") + counted(plan.steps, "step") +
                     ", " + counted(plan.registers, "register") + ", " + counted(plan.runs, "run") + ", " +
                     counted(plan.frames, "frame") + ", built in " + format_duration(plan.compile_seconds) + "\n";
  text += is_generic ? "    serves all arguments" : "    serves one spec";
  if (is_generic && !plan.specs.empty()) {
    text += "; now: " + counted(plan.specs.size(), "spec");
  }
  text += plan.specs.empty() || detail.specs ? ""
          : plan.specs.size() == 1           ? " (--verbose shows it)"
                                             : " (--verbose shows them)";
  text += "\n" + reasons_text(plan.why_generic);
  for (const std::string& spec : plan.specs) {
    text += detail.specs ? one_spec_text(spec) : "";
  }
  text += preparation_text(plan);
  text += indented(recorded_to_text(plan.recorded), "    ");
  text += detail.specs ? traits_text(plan.traits) : "";
  text += plan.gradients ? indented(gradients_to_text(*plan.gradients, detail), "    ") : "";
  return text + (detail.steps ? indented(plan.text, "    ") : "");
}

// Returns "3 taken, 1 not: model.py:12:4 in forward".
std::string count_line(const std::string& counts, const std::string& source) {
  return "  " + counts + (source.empty() ? "" : ": " + source.substr(0, source.find('\n'))) + "\n";
}

std::string profile_text(const ProfileExplanation& profile) {
  std::string text = "\nprofile of " + counted(profile.runs, "run") + ":\n";
  for (const auto& branch : profile.branches) {
    text += count_line("branch: " + std::to_string(branch.taken) + " taken, " + std::to_string(branch.not_taken) + " not",
                       branch.source);
  }
  for (const auto& loop : profile.loops) {
    text += count_line("loop: " + counted(loop.iterations, "iteration") + ", reached " + counted(loop.reached, "time"),
                       loop.source);
  }
  return text + indented(profile.graph, "    ");
}

// Returns one line per pass, in the order of the first runs.
std::string table_of_passes(const std::vector<PassTiming>& runs) {
  struct Total {
    std::string_view pass;
    double seconds = 0;
    size_t runs = 0;
    size_t changes = 0;
  };
  std::vector<Total> totals;
  for (const PassTiming& run : runs) {
    auto total = std::find_if(totals.begin(), totals.end(), [&](const Total& each) { return each.pass == run.pass; });
    if (total == totals.end()) {
      total = totals.insert(total, {.pass = run.pass});
    }
    total->seconds += run.seconds;
    total->runs += 1;
    total->changes += run.changed ? 1 : 0;
  }
  Table table({{"pass", Align::kLeft}, {"time"}, {"runs"}, {"changed"}});
  for (const Total& total : totals) {
    table.add_row({std::string(total.pass), format_duration(total.seconds), std::to_string(total.runs),
                   std::to_string(total.changes)});
  }
  return table.render();
}

}  // namespace

std::string describe_memory(const MemoryExplanation& memory) {
  const auto slots = std::to_string(memory.slots.size()) + (memory.slots.size() == 1 ? " slot" : " slots");
  if (!memory.has_layout) {
    return slots + ", no arena yet: no run has used prepared steps";
  }
  std::string text = "arena of " + format_bytes(static_cast<double>(memory.arena_bytes)) + " for " + slots;
  if (memory.lower_bound > 0) {
    text += ", lower bound " + format_bytes(static_cast<double>(memory.lower_bound)) + " (" +
            format_ratio(static_cast<double>(memory.arena_bytes) / static_cast<double>(memory.lower_bound)) + ")";
  }
  return text + (memory.without_room > 0 ? ", " + std::to_string(memory.without_room) + " without room" : "");
}

std::string name_of(Tier tier) { return "tier" + std::to_string(static_cast<int>(tier)); }

std::string indented(const std::string& text, const std::string& indent) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += indent + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out;
}

std::string counted(size_t count, const std::string& what) {
  return format_count(count) + " " + what + (count == 1 ? "" : "s");
}

std::string short_source(const std::string& source) { return std::filesystem::path(source).filename().string(); }

std::string to_text(const Explanation& explanation, const std::optional<std::vector<std::string>>& inputs,
                    const ExplanationDetail& detail) {
  std::string text = explanation.method + ": ";
  text += explanation.nodes == 0 ? "cannot be run" : counted(explanation.nodes, "node") + " with all calls inlined";
  text += !inputs ? "\n" : inputs->empty() ? "\n\ninputs: none\n" : "\n\ninputs:\n";
  for (const std::string& input : inputs.value_or(std::vector<std::string>())) {
    text += "  " + input + "\n";
  }
  text += explanation.plans.empty() ? "\nplans: none\n" : "\nplans:\n";
  for (const PlanExplanation& plan : explanation.plans) {
    text += plan_text(plan, detail);
  }
  const auto add_plans = [&](const std::vector<Explanation>& others, const std::string& what) {
    for (const Explanation& other : others) {
      text += "\nplans of " + other.method + what + ":\n";
      for (const PlanExplanation& plan : other.plans) {
        text += plan_text(plan, detail);
      }
    }
  };
  add_plans(explanation.callees, ", which is called");
  text += recorded_calls_text(explanation.recorded);
  add_plans(explanation.recorded.plans, "");
  if (const WeightsExplanation& weights = explanation.weights; weights.packed_bytes + weights.in_files_bytes > 0) {
    text += "\nweights: " + format_bytes(static_cast<double>(weights.packed_bytes)) + " packed; " +
            format_bytes(static_cast<double>(weights.in_files_bytes)) + " of others have left memory for files\n";
  }
  text += explanation.passes.empty() ? "\npasses: none ran\n" : "\npasses of the generic plan:\n";
  text += explanation.passes.empty() ? "" : indented(table_of_passes(explanation.passes), "  ");
  std::vector<PassTiming> specializing;
  size_t specialized = 0;
  for (const PlanExplanation& plan : explanation.plans) {
    specialized += plan.passes.empty() ? 0 : 1;
    specializing.insert(specializing.end(), plan.passes.begin(), plan.passes.end());
  }
  if (specialized > 0) {
    text +=
        "\npasses of " + counted(specialized, "specialized plan") + ":\n" + indented(table_of_passes(specializing), "  ");
  }
  if (explanation.profile) {
    text += profile_text(*explanation.profile);
  }
  text += explanation.refusals.empty() ? "\nrefusals: none\n" : "\nrefusals:\n";
  for (const RefusalExplanation& refusal : explanation.refusals) {
    text += "  " + refusal.what + ": " + refusal.reason + "\n";
    text += refusal.node.empty() ? "" : "    node: " + refusal.node + "\n";
    text += indented(refusal.source, "    ");
  }
  text += "\ncounters:\n";
  for (const auto& [name, count] : counters_of(explanation.counters)) {
    text += std::string("  ") + name + std::string(14 - std::string(name).size(), ' ') + format_count(count) + "\n";
  }
  return text;
}

namespace {

Json json_of(const MemoryExplanation& memory) {
  Json slots = Json::array();
  for (const SlotExplanation& slot : memory.slots) {
    slots.push_back(Json{{"first", slot.first},
                         {"last", slot.last},
                         {"offset", slot.offset},
                         {"bytes", slot.bytes},
                         {"is_view", slot.is_view},
                         {"node", slot.node},
                         {"source", slot.source}});
  }
  return Json{{"has_layout", memory.has_layout},
              {"arena_bytes", memory.arena_bytes},
              {"lower_bound", memory.lower_bound},
              {"without_room", memory.without_room},
              {"slots", std::move(slots)}};
}

Json json_of(const TraitsExplanation& traits) {
  Json not_recordable = Json::array();
  for (const NotRecordableExplanation& entry : traits.not_recordable) {
    not_recordable.push_back(Json{{"operator", entry.op},
                                  {"reason", to_string(entry.reason)},
                                  {"steps", entry.steps},
                                  {"node", entry.node},
                                  {"source", entry.source}});
  }
  return Json{{"steps", traits.steps},
              {"computing", traits.computing},
              {"random", traits.random},
              {"writes", traits.writes},
              {"reads_host", traits.reads_host},
              {"devices", traits.devices},
              {"not_recordable", std::move(not_recordable)}};
}

Json json_of(const std::vector<NotPreparedExplanation>& entries) {
  Json json = Json::array();
  for (const NotPreparedExplanation& entry : entries) {
    json.push_back(Json{{"operator", entry.op},
                        {"reason", to_string(entry.reason)},
                        {"remedy", remedy_for(entry.reason)},
                        {"steps", entry.steps},
                        {"times", entry.times},
                        {"node", entry.node},
                        {"source", entry.source}});
  }
  return json;
}

Json json_of(const std::vector<PassTiming>& timings) {
  Json passes = Json::array();
  for (const PassTiming& timing : timings) {
    passes.push_back(
        Json{{"pass", timing.pass}, {"seconds", timing.seconds}, {"changed", timing.changed}, {"stage", timing.stage}});
  }
  return passes;
}

}  // namespace

Json json_of(const PlanExplanation& plan) {
  return Json{{"tier", name_of(plan.tier)},
              {"specs", plan.specs},
              {"why_generic", plan.why_generic},
              {"runs", plan.runs},
              {"steps", plan.steps},
              {"prepared_steps", plan.prepared_steps},
              {"ordinary_steps", plan.ordinary_steps},
              {"groups", plan.groups},
              {"not_prepared", json_of(plan.not_prepared)},
              {"timed", json_of(plan.timed)},
              {"traits", json_of(plan.traits)},
              {"memory", json_of(plan.memory)},
              {"recorded", json_of(plan.recorded)},
              {"gradients", plan.gradients ? json_of(*plan.gradients) : Json()},
              {"threads", plan.threads},
              {"threads_limit", plan.threads_limit},
              {"registers", plan.registers},
              {"frames", plan.frames},
              {"compile_seconds", plan.compile_seconds},
              {"passes", json_of(plan.passes)},
              {"text", plan.text}};
}

Json json_of(const Explanation& explanation) {
  Json plans = Json::array();
  for (const PlanExplanation& plan : explanation.plans) {
    plans.push_back(json_of(plan));
  }
  Json profile;
  if (explanation.profile) {
    profile = Json{{"runs", explanation.profile->runs},
                   {"graph", explanation.profile->graph},
                   {"branches", Json::array()},
                   {"loops", Json::array()}};
    for (const auto& branch : explanation.profile->branches) {
      profile["branches"].push_back({{"source", branch.source}, {"taken", branch.taken}, {"not_taken", branch.not_taken}});
    }
    for (const auto& loop : explanation.profile->loops) {
      profile["loops"].push_back({{"source", loop.source}, {"reached", loop.reached}, {"iterations", loop.iterations}});
    }
  }
  Json callees = Json::array();
  for (const Explanation& callee : explanation.callees) {
    callees.push_back(json_of(callee));
  }
  Json refusals = Json::array();
  for (const RefusalExplanation& refusal : explanation.refusals) {
    refusals.push_back(
        Json{{"what", refusal.what}, {"reason", refusal.reason}, {"node", refusal.node}, {"source", refusal.source}});
  }
  Json counters = Json::object();
  for (const auto& [name, count] : counters_of(explanation.counters)) {
    counters[name] = count;
  }
  return Json{{"method", explanation.method},
              {"nodes", explanation.nodes},
              {"plans", std::move(plans)},
              {"passes", json_of(explanation.passes)},
              {"refusals", std::move(refusals)},
              {"counters", std::move(counters)},
              {"weights", Json{{"packed_bytes", explanation.weights.packed_bytes},
                               {"in_files_bytes", explanation.weights.in_files_bytes}}},
              {"callees", std::move(callees)},
              {"recorded", recorded_calls_json(explanation.recorded)},
              {"profile", std::move(profile)}};
}

std::string to_text(const Explanation& explanation) { return to_text(explanation, std::nullopt, {}); }
std::string to_json(const Explanation& explanation) { return json_text(json_of(explanation)); }

}  // namespace sconce
