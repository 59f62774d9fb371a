#include "report/gradient_text.h"

#include "report/number_format.h"
#include "report/table.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace sconce {
namespace {

// In the order of DifferentiableExplanation::plans.
constexpr std::array kDirections = {"forward", "backward"};

std::string source_or_name(const DifferentiableExplanation& subgraph) {
  return subgraph.source.empty() ? subgraph.name : short_source(subgraph.source);
}

// Returns "2 inputs, 1 output, 3 intermediates".
std::string saved_text(const DifferentiableExplanation& subgraph) {
  std::string text;
  for (const auto& [count, what, several] :
       {std::tuple(subgraph.saved_inputs, "input", "inputs"), std::tuple(subgraph.saved_outputs, "output", "outputs"),
        std::tuple(subgraph.saved_intermediates, "intermediate", "intermediates")}) {
    if (count > 0) {
      text += (text.empty() ? "" : ", ") + format_count(count) + " " + (count == 1 ? what : several);
    }
  }
  return text.empty() ? "nothing" : text;
}

// Returns "8 prepared, 1 ordinary, 2 groups", and whether no call has run the plan.
std::string steps_text(const PlanExplanation& plan) {
  std::string text = format_count(plan.prepared_steps) + " prepared, " + format_count(plan.ordinary_steps) + " ordinary";
  return text + (plan.groups > 0 ? ", " + counted(plan.groups, "group") : "") + (plan.frames == 0 ? "; not run" : "");
}

std::string table_of_subgraphs(const GradientExplanation& gradients) {
  Table table({{"begins at", Align::kLeft},
               {"saves for backward", Align::kLeft},
               {"forward steps", Align::kLeft},
               {"backward steps", Align::kLeft}});
  for (const DifferentiableExplanation& subgraph : gradients.subgraphs) {
    table.add_row(
        {source_or_name(subgraph), saved_text(subgraph), steps_text(subgraph.plans[0]), steps_text(subgraph.plans[1])});
  }
  return table.render();
}

// Returns the operators of the subgraphs that are not prepared, those of all subgraphs together.
std::string table_of_not_prepared(const GradientExplanation& gradients) {
  struct Entry {
    size_t direction;
    NotPreparedExplanation sum;
  };
  std::vector<Entry> entries;
  for (const DifferentiableExplanation& subgraph : gradients.subgraphs) {
    for (size_t direction = 0; direction < subgraph.plans.size(); ++direction) {
      for (const NotPreparedExplanation& each : subgraph.plans[direction].not_prepared) {
        const auto same = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
          return entry.direction == direction && entry.sum.op == each.op && entry.sum.reason == each.reason;
        });
        if (same == entries.end()) {
          entries.push_back({direction, each});
        } else {
          same->sum.steps += each.steps;
          same->sum.times += each.times;
        }
      }
    }
  }
  if (entries.empty()) {
    return "";
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.sum.steps > b.sum.steps; });
  Table table({{"steps"},
               {"plan", Align::kLeft},
               {"operator", Align::kLeft},
               {"one of them", Align::kLeft},
               {"why it is not prepared", Align::kLeft}});
  std::vector<NotPreparedExplanation> sums;
  for (const auto& [direction, entry] : entries) {
    const std::string times = entry.times > 0 ? " (" + counted(entry.times, "time") + ")" : "";
    table.add_row({format_count(entry.steps), kDirections[direction], entry.op.empty() ? "(all)" : entry.op,
                   short_source(entry.source), to_string(entry.reason) + times});
    sums.push_back(entry);
  }
  return table.render() + remedies_text(sums);
}

std::string table_of_outside(const GradientExplanation& gradients) {
  if (gradients.not_differentiated.empty()) {
    return "";
  }
  Table table({{"nodes"},
               {"operator", Align::kLeft},
               {"one of them", Align::kLeft},
               {"why no differentiable subgraph has it", Align::kLeft}});
  for (const NotDifferentiatedExplanation& entry : gradients.not_differentiated) {
    table.add_row({format_count(entry.nodes), entry.op, short_source(entry.source), to_string(entry.reason)});
  }
  return table.render() + remedies_text(gradients.not_differentiated);
}

std::string table_of_recorded(const GradientExplanation& gradients) {
  if (gradients.recorded.empty()) {
    return "";
  }
  Table table({{"nodes"},
               {"operator with a gradient formula recorded from LibTorch's autograd", Align::kLeft},
               {"one of them", Align::kLeft}});
  for (const RecordedGradientExplanation& entry : gradients.recorded) {
    table.add_row({format_count(entry.nodes), entry.op, short_source(entry.source)});
  }
  return table.render();
}

}  // namespace

std::string gradients_to_text(const GradientExplanation& gradients, const ExplanationDetail& detail) {
  std::string text = "gradients: flow through " + counted(gradients.inside + gradients.outside, "operator") + ", " +
                     format_count(gradients.inside) + " in " +
                     counted(gradients.subgraphs.size(), "differentiable subgraph") + "; autograd records " +
                     format_count(gradients.outside) + " one by one\n";
  if (!gradients.subgraphs.empty()) {
    text += indented(table_of_subgraphs(gradients), "  ") + indented(table_of_not_prepared(gradients), "  ");
  }
  text += indented(table_of_recorded(gradients), "  ") + indented(table_of_outside(gradients), "  ");
  for (const DifferentiableExplanation& subgraph : gradients.subgraphs) {
    for (size_t direction = 0; detail.steps && direction < subgraph.plans.size(); ++direction) {
      text += subgraph.name + ", " + kDirections[direction] + ":\n" + indented(subgraph.plans[direction].text, "  ");
    }
  }
  return text;
}

Json json_of(const GradientExplanation& gradients) {
  Json outside = Json::array();
  for (const NotDifferentiatedExplanation& entry : gradients.not_differentiated) {
    outside.push_back(Json{{"operator", entry.op},
                           {"reason", to_string(entry.reason)},
                           {"remedy", remedy_for(entry.reason)},
                           {"nodes", entry.nodes},
                           {"node", entry.node},
                           {"source", entry.source}});
  }
  Json recorded = Json::array();
  for (const RecordedGradientExplanation& entry : gradients.recorded) {
    recorded.push_back(Json{{"operator", entry.op}, {"nodes", entry.nodes}, {"node", entry.node}, {"source", entry.source}});
  }
  Json subgraphs = Json::array();
  for (const DifferentiableExplanation& subgraph : gradients.subgraphs) {
    Json json{{"name", subgraph.name},
              {"source", subgraph.source},
              {"saved_inputs", subgraph.saved_inputs},
              {"saved_outputs", subgraph.saved_outputs},
              {"saved_intermediates", subgraph.saved_intermediates}};
    for (size_t direction = 0; direction < subgraph.plans.size(); ++direction) {
      json[kDirections[direction]] = json_of(subgraph.plans[direction]);
    }
    subgraphs.push_back(std::move(json));
  }
  return Json{{"inside", gradients.inside},
              {"outside", gradients.outside},
              {"not_differentiated", std::move(outside)},
              {"recorded", std::move(recorded)},
              {"subgraphs", std::move(subgraphs)}};
}

}  // namespace sconce
