#include "tools/sconce/report/differentiable_text.h"

#include "report/explanation_text.h"
#include "report/number_format.h"
#include "report/table.h"

#include "ir/text/print.h"

#include <ATen/core/Tensor.h>

namespace sconce::cli {
namespace {

std::string source_of(const DifferentiableSubgraph& subgraph) {
  return subgraph.node->location() ? subgraph.node->location()->file_line_column() : std::string();
}

// Returns the bytes of a saved tensor. Nothing if it was not run, or is no tensor.
std::optional<size_t> bytes_of(const SavedValue& saved) {
  const bool is_tensor = saved.held && saved.held->isTensor() && saved.held->toTensor().defined();
  return is_tensor ? std::optional(saved.held->toTensor().nbytes()) : std::nullopt;
}

std::string held_text(const SavedValue& saved) {
  if (!saved.held) {
    return "";
  }
  return saved.held->isIntList() ? c10::str(*saved.held) : describe_argument(*saved.held);
}

size_t bytes_of(const DifferentiableSubgraph& subgraph) {
  size_t bytes = 0;
  for (const SavedValue& saved : subgraph.saved) {
    bytes += bytes_of(saved).value_or(0);
  }
  return bytes;
}

std::string table_of_saved(const DifferentiableSubgraph& subgraph) {
  Table table({{"saved", Align::kLeft},
               {"in f", Align::kLeft},
               {"in df", Align::kLeft},
               {"known", Align::kLeft},
               {"in this call", Align::kLeft},
               {"bytes"}});
  for (const SavedValue& saved : subgraph.saved) {
    const auto bytes = bytes_of(saved);
    table.add_row({saved.role, saved.name, saved.backward_name, print_type(*saved.value), held_text(saved),
                   bytes ? format_count(*bytes) : ""});
  }
  return table.render();
}

// Returns "SconceBackward(model.py:12), from model.py:12:8: 5 operands, 1 result; saves 4 values, 512 bytes of tensors".
std::string title_of(const DifferentiableSubgraph& subgraph) {
  const std::string source = source_of(subgraph);
  return subgraph.name + (source.empty() ? "" : ", from " + source) + ": " +
         counted(subgraph.node->inputs().size(), "operand") + ", " + counted(subgraph.node->outputs().size(), "result") +
         "; saves " + counted(subgraph.saved.size(), "value") + ", " + format_count(bytes_of(subgraph)) +
         " bytes of tensors";
}

}  // namespace

std::string describe_subgraphs(const DifferentiatedPlan& plan) {
  std::string text;
  for (const DifferentiableSubgraph& subgraph : plan.subgraphs) {
    text += "# " + title_of(subgraph) + "\n";
    text += "#   f:  " + subgraph.text_name + "\n#   df: " + subgraph.text_name + " Backward\n";
    text += subgraph.saved.empty() ? "" : indented(table_of_saved(subgraph), "#   ");
  }
  return text;
}

std::vector<SubgraphColumns> columns_of(const DifferentiatedPlan& plan) {
  std::vector<SubgraphColumns> columns;
  for (const DifferentiableSubgraph& subgraph : plan.subgraphs) {
    columns.push_back({subgraph.text_name + ", " + title_of(subgraph), print(*subgraph.forward), table_of_saved(subgraph),
                       print(*subgraph.backward)});
  }
  return columns;
}

Json to_json(const DifferentiatedPlan& plan) {
  Json subgraphs = Json::array();
  for (const DifferentiableSubgraph& subgraph : plan.subgraphs) {
    Json values = Json::array();
    for (const SavedValue& saved : subgraph.saved) {
      const auto bytes = bytes_of(saved);
      values.push_back(Json{{"role", saved.role},
                            {"name", saved.name},
                            {"backward_name", saved.backward_name},
                            {"type", print_type(*saved.value)},
                            {"held", saved.held ? Json(held_text(saved)) : Json()},
                            {"bytes", bytes ? Json(*bytes) : Json()}});
    }
    subgraphs.push_back(Json{{"name", subgraph.name},
                             {"source", source_of(subgraph)},
                             {"node", print_node_line(*subgraph.node)},
                             {"forward", print(*subgraph.forward)},
                             {"backward", print(*subgraph.backward)},
                             {"saved", std::move(values)},
                             {"saved_bytes", bytes_of(subgraph)}});
  }
  return subgraphs;
}

}  // namespace sconce::cli
