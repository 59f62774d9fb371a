// docs/operators.md is what the tables of the code say about operators, and so are the numbers that other pages quote.
#include "tests/docs/pages.h"
#include "tests/support/rule_table.h"

#include "fusion/program/operators.h"
#include "fusion/program/reductions.h"
#include "kernels/kernel_table.h"
#include "ops/op.h"
#include "ops/rows.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

constexpr std::string_view kNamespace = "aten::";

using Rows = std::span<const OpRow>;
// The files of src/ops/rows but the node kinds of the language.
std::vector<RowFamily> families() {
  const auto all = row_families();
  return {all.begin() + 1, all.end()};
}

// What the overloads of a row, or of an operator without one, have together.
struct Summary {
  bool has_gradient = false;  // as texts
  std::string condition;      // of the gradient
  bool is_recorded = false;   // the gradient
  bool is_prepared = false;
  bool is_compiled = false;
  bool is_reduction = false;
  std::vector<std::string> promises;  // "DTYPES: ULPS" of the rules

  bool is_empty() const { return !has_gradient && !is_recorded && !is_prepared && !is_compiled; }
};

void add(Summary& summary, const OpRow& row) {
  summary.has_gradient = !row.backward.empty() || !row.forward.empty();
  summary.condition = row.differentiable_if;
  summary.is_recorded = row.recorded_gradient;
}

void add(Summary& summary, const Op& op) {
  summary.is_prepared |= find_kernel_row(op) != nullptr;
  if (!has_element_rule(op)) {
    return;
  }
  summary.is_compiled = true;
  summary.is_reduction |= may_reduce(op);
  if (const RuleRow* rule = find_rule_row(op.schema->operator_name())) {
    const std::string promise = std::string(words_for(rule->dtypes)) + ": " + words_for(rule->distance);
    if (std::find(summary.promises.begin(), summary.promises.end(), promise) == summary.promises.end()) {
      summary.promises.push_back(promise);
    }
  }
}

struct Summaries {
  std::map<const OpRow*, Summary> of_rows;
  std::map<std::string, Summary> without_row;  // by name
};

Summaries summarize() {
  Summaries summaries;
  for (const auto& [family, rows] : families()) {
    for (const OpRow& row : rows) {
      add(summaries.of_rows[&row], row);
    }
  }
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle || !name.name.starts_with(kNamespace) || handle->schema().is_mutable()) {
      continue;
    }
    const OpRow* row = find_op_row(name.name, name.overload_name);
    add(row != nullptr ? summaries.of_rows[row] : summaries.without_row[name.name], op_of(handle->schema()));
  }
  std::erase_if(summaries.without_row, [](const auto& entry) { return entry.second.is_empty(); });
  return summaries;
}

std::string code(std::string_view name) {
  return "`" + std::string(name.starts_with(kNamespace) ? name.substr(kNamespace.size()) : name) + "`";
}

// Returns "`add`", or "`div.Tensor_mode` `div.Scalar_mode`" of a row that serves these overloads alone.
std::string names_of(const OpRow& row, Rows family) {
  std::string text;
  for (const std::string_view overload : row.overloads) {
    text += (text.empty() ? "" : " ") + code(std::string(row.name) + (overload.empty() ? "" : ".") + std::string(overload)) +
            (overload.empty() ? " (unnamed)" : "");
  }
  const bool is_alone = std::ranges::count(family, row.name, &OpRow::name) == 1;
  return !text.empty() ? text : code(row.name) + (is_alone ? "" : " (other overloads)");
}

std::string line_of(const std::string& names, const Summary& summary) {
  std::string promises = summary.is_reduction ? "floating" : "";
  for (const std::string& promise : summary.promises) {
    promises += (promises.empty() ? "" : "<br>") + promise;
  }
  const bool is_short = summary.condition.find('\n') == std::string::npos;
  const std::string gradient = summary.is_recorded         ? "recorded"
                               : !summary.has_gradient     ? ""
                               : summary.condition.empty() ? "yes"
                               : is_short                  ? "if `" + summary.condition + "`"
                                                           : "if its row's condition holds";
  std::string line = "| " + names;
  for (const std::string& cell : {gradient, std::string(summary.is_prepared ? "yes" : ""),
                                  std::string(!summary.is_compiled   ? ""
                                              : summary.is_reduction ? "reduction"
                                                                     : "element rule"),
                                  promises}) {
    line += cell.empty() ? " |" : " | " + cell;
  }
  return line + " |\n";
}

const char* const kHeader = "| operator | gradient | prepared | compiled | dtypes: ulps |\n|---|---|---|---|---|\n";

std::string text_of(const char* family, Rows rows, const Summaries& summaries) {
  std::string table;
  std::string others;
  for (const OpRow& row : rows) {
    const Summary& summary = summaries.of_rows.at(&row);
    (summary.is_empty() ? others : table) +=
        summary.is_empty() ? (others.empty() ? "" : " ") + names_of(row, rows) : line_of(names_of(row, rows), summary);
  }
  return "\n## " + std::string(family) + "\n\n" + (table.empty() ? "" : kHeader + table + (others.empty() ? "" : "\n")) +
         (others.empty() ? "" : std::string(table.empty() ? "Rows" : "Other rows") + ": " + others + "\n");
}

size_t count(const Summaries& summaries, bool Summary::* field) {
  // Of operators, not of rows: some have several.
  std::map<std::string, bool> has;
  for (const auto& [row, summary] : summaries.of_rows) {
    has[std::string(row->name)] |= summary.*field;
  }
  for (const auto& [name, summary] : summaries.without_row) {
    has[name] |= summary.*field;
  }
  return static_cast<size_t>(std::count_if(has.begin(), has.end(), [](const auto& entry) { return entry.second; }));
}

std::string counts_text(const Summaries& summaries) {
  return std::to_string(count(summaries, &Summary::has_gradient)) + " operators have gradients, those of " +
         std::to_string(count(summaries, &Summary::is_recorded)) + " others are recorded, " +
         std::to_string(count(summaries, &Summary::is_prepared)) + " operators are prepared, and kernels\ncompute " +
         std::to_string(count(summaries, &Summary::is_compiled)) + " operators";
}

std::string unfused_text() {
  std::string text = "| operators | why LibTorch computes them |\n|---|---|\n";
  for (const UnfusedOperators& row : unfused_operators()) {
    text += "|";
    for (const std::string_view name : row.names) {
      text += " " + code(name);
    }
    text += " | " + std::string(row.reason) + " |\n";
  }
  return text;
}

std::string page() {
  const Summaries summaries = summarize();
  std::string text =
      R"(# Operators

What sconce computes of each operator of LibTorch. `tests/docs/operators_page_test.cpp` writes this page from the tables of the
code. )" +
      counts_text(summaries) +
      R"(. All others run as in eager execution, called by their schema; LibTorch's autograd differentiates them.

| column | |
|---|---|
| operator | a row of `src/ops/rows/`, sorted by its files. An in-place operator has the columns of its functional variant, where the row says that this one may replace it; a synonym (`absolute`) has those of the operator that it is another name of |
| gradient | the row has the text of its gradient, so that [differentiable subgraphs](OVERVIEW.md#7-training-differentiable-subgraphs) may have the operator. With a condition: for other arguments, LibTorch's autograd differentiates it. *Recorded*: [LibTorch's own formula](adding_an_op.md#a-recorded-gradient), recorded when a plan first needs it |
| prepared | a prepared step keeps the set-up of LibTorch's kernel from run to run ([OVERVIEW.md](OVERVIEW.md#prepared-steps-and-the-arena)) |
| compiled | [compiled kernels](kernels.md) compute it, for each element or as a reduction of dimensions |
| dtypes: ulps | the dtypes of operands that kernels compute, and the largest distance from eager LibTorch in units of the last place. Operands of other dtypes are refused: LibTorch computes them. [kernels.md](kernels.md) explains the words |

Floating dtypes are float32, float64 and bfloat16; integers are int64, int32 and uint8. [adding_an_op.md](adding_an_op.md)
tells how to add to a column.
)";
  for (const auto& [family, rows] : families()) {
    text += text_of(family, rows, summaries);
  }
  text += "\n## Without a row\n\n" + std::string(kHeader);
  for (const auto& [name, summary] : summaries.without_row) {
    text += line_of(code(name), summary);
  }
  return text + R"(
## Pointwise operators and reductions without kernels

Kernels compute more than four fifths of the operators that LibTorch tags as pointwise. In-place operators count where the
functional operator replaces them before kernels are made. These are the others, with the reductions, softmax and norms that
have no kernels. Of `max` and `min`, kernels compute the larger and the smaller of two tensors.

)" + unfused_text();
}

TEST(OperatorsPage, IsWhatTheTablesSay) { expect_page("docs/operators.md", page()); }

TEST(OperatorsPage, CountsAreThoseThatOtherPagesQuote) {
  const Summaries summaries = summarize();
  expect_part("README.md", "[compiled kernels](docs/kernels.md); ", " other operators keep their set-up",
              std::to_string(count(summaries, &Summary::is_prepared)));
}

}  // namespace
}  // namespace sconce::testing
