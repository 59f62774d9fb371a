#include "passes/matmul/decompose_rnn_cells.h"

#include "load/compile_op_row.h"
#include "passes/matmul/cell_formula.h"
#include "passes/matmul/inline_function.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace sconce {
namespace {

constexpr std::string_view kSuffix = "_cell";
constexpr std::array<std::string_view, 4> kCells = {"gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"};

std::string text_of(const std::string& op) {
  const bool is_lstm = op == "lstm_cell";
  const std::string h = is_lstm ? "hx[0]" : "hx";
  const std::string results = is_lstm ? "result, cell" : "result";
  const std::string rows = std::string(is_lstm ? "4" : op == "gru_cell" ? "3" : "1") + " * " + h + ".size(1)";
  const auto fits = [&](const std::string& weight, const std::string& columns) {
    return " and " + weight + ".dtype == input.dtype and " + weight + ".dim() == 2 and " + weight + ".size(0) == " + rows +
           " and " + weight + ".size(1) == " + columns;
  };
  const auto fit_of_bias = [&](const std::string& bias) {
    return "    if " + bias + " is not None:\n        fits = fits and " + bias + ".dtype == input.dtype and " + bias +
           ".dim() == 1 and " + bias + ".size(0) == " + rows + "\n";
  };
  // LibTorch takes these arguments. For all others the operator itself runs, and raises.
  std::string text = "def cell(input: Tensor, hx: " + std::string(is_lstm ? "List[Tensor]" : "Tensor") +
                     ", w_ih: Tensor, w_hh: Tensor, b_ih: Optional[Tensor], b_hh: Optional[Tensor]):\n"
                     "    fits = " +
                     (is_lstm ? "len(hx) == 2 and hx[1].dtype == input.dtype and hx[1].dim() == 2 and " : "") +
                     "input.dim() == 2 and " + h + ".dim() == 2 and input.size(0) == " + h + ".size(0) and " + h +
                     ".dtype == input.dtype" +
                     (is_lstm ? " and hx[1].size(0) == hx[0].size(0) and hx[1].size(1) == hx[0].size(1)" : "") +
                     fits("w_ih", "input.size(1)") + fits("w_hh", h + ".size(1)") + "\n" + fit_of_bias("b_ih") +
                     fit_of_bias("b_hh") + "    if fits:\n        h = " + h +
                     "\n        of_input = torch.linear(input, w_ih, b_ih)\n"
                     "        of_hidden = torch.linear(h, w_hh, b_hh)\n";
  const CellNames names{.of_input = "of_input",
                        .of_hidden = "of_hidden",
                        .sum = "(of_hidden + of_input)",
                        .h = "h",
                        .c = "hx[1]",
                        .new_h = "result",
                        .new_c = "cell"};
  for (const std::string& code : cell_formula(op.substr(0, op.size() - kSuffix.size()), names)) {
    text += "        " + code + "\n";
  }
  return text + "    else:\n        " + results + " = torch." + op + "(input, hx, w_ih, w_hh, b_ih, b_hh)\n    return " +
         results + "\n";
}

// Returns the graph of the cell; null for any other node.
const Graph* cell_of(const Node& node) {
  const std::string op = node.kind().toUnqualString();
  if (std::find(kCells.begin(), kCells.end(), op) == kCells.end() || node.kind().ns() != c10::namespaces::aten ||
      node.schema() == nullptr || node.inputs().size() != 6) {
    return nullptr;
  }
  static std::mutex mutex;
  static auto* const graphs = new std::map<std::string, std::unique_ptr<Graph>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Graph>& graph = (*graphs)[op];
  if (graph == nullptr) {
    graph = compile_function("aten::" + op, text_of(op));
  }
  return graph.get();
}

}  // namespace

bool decompose_rnn_cells(Graph& graph) {
  std::vector<Node*> cells;
  for_each_node(graph.body(), [&](Node* node) {
    if (cell_of(*node) != nullptr && !is_alternative_to_products(*node)) {
      cells.push_back(node);
    }
  });
  for (Node* cell : cells) {
    inline_function(*cell, *cell_of(*cell));
  }
  return !cells.empty();
}

}  // namespace sconce
