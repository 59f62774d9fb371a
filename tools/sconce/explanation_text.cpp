#include "tools/sconce/explanation_text.h"

#include "tools/sconce/common_options.h"
#include "tools/sconce/ui/number_format.h"
#include "tools/sconce/ui/table.h"

#include <array>
#include <utility>

namespace sconce::cli {
namespace {

std::array<std::pair<const char*, uint64_t>, 9> counters_of(const Counters& counters) {
  return {{{"invocations", counters.invocations},
           {"cache_hits", counters.cache_hits},
           {"cache_misses", counters.cache_misses},
           {"compiles", counters.compiles},
           {"refusals", counters.refusals},
           {"fallbacks", counters.fallbacks},
           {"evictions", counters.evictions},
           {"captures", counters.captures},
           {"replays", counters.replays}}};
}

std::string indented(const std::string& text, const std::string& indent) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += indent + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out;
}

std::string plan_text(const PlanExplanation& plan, bool with_steps) {
  std::string text = "  " + name_of(plan.tier) + ": " + ui::format_count(plan.steps) + " steps, " +
                     ui::format_count(plan.registers) + " registers, " + ui::format_count(plan.runs) + " runs, " +
                     ui::format_count(plan.frames) + " frames, built in " + ui::format_duration(plan.compile_seconds) + "\n";
  if (plan.specs.empty()) {
    text += "    serves all arguments\n";
  }
  for (const std::string& spec : plan.specs) {
    text += "    serves " + spec + "\n";
  }
  return text + (with_steps ? indented(plan.text, "    ") : "");
}

}  // namespace

std::string to_text(const Explanation& explanation, bool with_steps) {
  std::string text =
      explanation.method + ": " + ui::format_count(explanation.nodes) + " nodes with all calls inlined\n\nplans:\n";
  for (const PlanExplanation& plan : explanation.plans) {
    text += plan_text(plan, with_steps);
  }
  text += "\npasses:\n";
  ui::Table passes({{"pass", ui::Align::kLeft}, {"time"}, {"changed", ui::Align::kLeft}});
  for (const PassTiming& pass : explanation.passes) {
    passes.add_row({pass.pass, ui::format_duration(pass.seconds), pass.changed ? "yes" : "no"});
  }
  text += indented(passes.render(), "  ");
  text += explanation.refusals.empty() ? "\nrefusals: none\n" : "\nrefusals:\n";
  for (const RefusalExplanation& refusal : explanation.refusals) {
    text += "  " + refusal.what + ": " + refusal.reason + "\n";
    text += refusal.node.empty() ? "" : "    node: " + refusal.node + "\n";
    text += indented(refusal.source, "    ");
  }
  text += "\ncounters:\n";
  for (const auto& [name, count] : counters_of(explanation.counters)) {
    text += std::string("  ") + name + std::string(14 - std::string(name).size(), ' ') + ui::format_count(count) + "\n";
  }
  return text;
}

Json to_json(const Explanation& explanation) {
  Json passes = Json::array();
  for (const PassTiming& pass : explanation.passes) {
    passes.push_back(Json{{"pass", pass.pass}, {"seconds", pass.seconds}, {"changed", pass.changed}});
  }
  Json plans = Json::array();
  for (const PlanExplanation& plan : explanation.plans) {
    plans.push_back(Json{{"tier", name_of(plan.tier)},
                         {"specs", plan.specs},
                         {"runs", plan.runs},
                         {"steps", plan.steps},
                         {"registers", plan.registers},
                         {"frames", plan.frames},
                         {"compile_seconds", plan.compile_seconds},
                         {"text", plan.text}});
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
  return Json{{"method", explanation.method}, {"nodes", explanation.nodes},      {"plans", std::move(plans)},
              {"passes", std::move(passes)},  {"refusals", std::move(refusals)}, {"counters", std::move(counters)}};
}

}  // namespace sconce::cli
