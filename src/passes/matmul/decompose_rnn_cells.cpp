#include "passes/matmul/decompose_rnn_cells.h"

#include "load/compile_op_row.h"
#include "passes/matmul/inline_function.h"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace sconce {
namespace {

// What is between the operands and the results, by operator.
const std::map<std::string, std::string, std::less<>>& formulas() {
  static const auto& texts = *new std::map<std::string, std::string, std::less<>>{
      {"gru_cell", R"(
        ir, iz, n = of_input.chunk(3, 1)
        hr, hz, hn = of_hidden.chunk(3, 1)
        new = torch.tanh(n + hn * torch.sigmoid(hr + ir))
        result = (h - new) * torch.sigmoid(hz + iz) + new)"},
      {"lstm_cell", R"(
        i, f, g, o = (of_hidden + of_input).chunk(4, 1)
        cell = torch.sigmoid(f) * hx[1] + torch.sigmoid(i) * torch.tanh(g)
        result = torch.sigmoid(o) * torch.tanh(cell))"},
      {"rnn_tanh_cell", "\n        result = torch.tanh(of_hidden + of_input)"},
      {"rnn_relu_cell", "\n        result = torch.relu(of_hidden + of_input)"},
  };
  return texts;
}

std::string text_of(const std::string& op, const std::string& formula) {
  const bool is_lstm = op == "lstm_cell";
  const std::string h = is_lstm ? "hx[0]" : "hx";
  const std::string results = is_lstm ? "result, cell" : "result";
  return "def cell(input: Tensor, hx: " + std::string(is_lstm ? "List[Tensor]" : "Tensor") +
         ", w_ih: Tensor, w_hh: Tensor, b_ih: Optional[Tensor], b_hh: Optional[Tensor]):\n"
         "    h = " +
         h + "\n    if input.dim() == 2 and h.dim() == 2 and input.size(0) == h.size(0)" +
         (is_lstm ? " and len(hx) == 2 and hx[1].dim() == 2 and hx[1].size(0) == h.size(0) and hx[1].size(1) == h.size(1)"
                  : "") +
         ":\n        of_input = torch.linear(input, w_ih, b_ih)\n        of_hidden = torch.linear(h, w_hh, b_hh)" + formula +
         "\n    else:\n        " + results + " = torch." + op + "(input, hx, w_ih, w_hh, b_ih, b_hh)\n    return " +
         results + "\n";
}

// Returns the graph of the cell; null for any other node.
const Graph* cell_of(const Node& node) {
  const auto formula = formulas().find(node.kind().toUnqualString());
  if (formula == formulas().end() || node.kind().ns() != c10::namespaces::aten || node.schema() == nullptr ||
      node.inputs().size() != 6) {
    return nullptr;
  }
  static std::mutex mutex;
  static auto* const graphs = new std::map<std::string, std::unique_ptr<Graph>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Graph>& graph = (*graphs)[formula->first];
  if (graph == nullptr) {
    graph = compile_function("aten::" + formula->first, text_of(formula->first, formula->second));
  }
  return graph.get();
}

// Returns whether the node is what an earlier run of the pass left for operands that do not fit.
bool is_left_over(const Node& node) {
  const Block& block = *node.owning_block();
  return block.owner() != nullptr && block.owner()->opcode() == Opcode::kIf && block.owner()->block(1) == &block &&
         block.owner()->outputs().size() <= node.outputs().size() && node.previous() == nullptr;
}

}  // namespace

bool decompose_rnn_cells(Graph& graph) {
  std::vector<Node*> cells;
  for_each_node(graph.body(), [&](Node* node) {
    if (cell_of(*node) != nullptr && !is_left_over(*node)) {
      cells.push_back(node);
    }
  });
  for (Node* cell : cells) {
    inline_function(*cell, *cell_of(*cell));
  }
  return !cells.empty();
}

}  // namespace sconce
