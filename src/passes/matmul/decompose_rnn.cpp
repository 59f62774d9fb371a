#include "passes/matmul/decompose_rnn.h"

#include "ir/constant_operands.h"
#include "load/compile_op_row.h"
#include "passes/matmul/cell_formula.h"
#include "passes/matmul/inline_function.h"

#include <ATen/core/jit_type.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace sconce {
namespace {

// What the constants among the operands say.
struct Layers {
  std::string op;  // "lstm"
  bool has_biases;
  int64_t layers;
  bool is_bidirectional;
  bool batch_comes_first;
  bool records_gradients;

  int64_t directions() const { return is_bidirectional ? 2 : 1; }
  int64_t gates() const { return op == "lstm" ? 4 : op == "gru" ? 3 : 1; }
  bool is_lstm() const { return op == "lstm"; }
  auto operator<=>(const Layers&) const = default;
};

// (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
std::optional<Layers> layers_of(const Node& node, bool records_gradients) {
  const std::string op = node.kind().toUnqualString();
  const bool is_recurrent = op == "lstm" || op == "gru" || op == "rnn_tanh" || op == "rnn_relu";
  if (!is_recurrent || node.kind().ns() != c10::namespaces::aten || node.schema() == nullptr ||
      node.schema()->overload_name() != "input") {
    return std::nullopt;
  }
  std::vector<const c10::IValue*> constants;
  for (size_t i = 3; i < 9; ++i) {
    constants.push_back(node.input(i)->constant());
    if (constants.back() == nullptr) {
      return std::nullopt;
    }
  }
  const bool drops = constants[2]->toScalar().toDouble() != 0 && constants[3]->toBool();
  const int64_t layers = constants[1]->toInt();
  // oneDNN computes backward of an LSTM in one piece.
  if (drops || layers < 1 || layers > 8 || (records_gradients && op == "lstm")) {
    return std::nullopt;
  }
  return Layers{op, constants[0]->toBool(), layers, constants[4]->toBool(), constants[5]->toBool(), records_gradients};
}

// Writes the layers as TorchScript.
class Source {
 public:
  explicit Source(const Layers& layers) : of_(layers) {}

  std::string text() {
    const std::string hx = of_.is_lstm() ? "List[Tensor]" : "Tensor";
    line(0, "def layers(input: Tensor, hx: " + hx +
                ", params: List[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, "
                "bidirectional: bool, batch_first: bool):");
    const int64_t per_direction = of_.has_biases ? 4 : 2;
    line(1, "if len(params) == " + std::to_string(per_direction * of_.layers * of_.directions()) +
                " and input.dim() == 3 and input.size(" + (of_.batch_comes_first ? "1" : "0") + ") > 0 and " +
                (of_.is_lstm() ? "len(hx) == 2 and hx[0]" : "hx") + ".dim() == 3:");
    line(2, of_.batch_comes_first ? "x = input.transpose(0, 1)" : "x = input");
    line(2, "last = x.size(0) - 1");
    for (int64_t layer = 0; layer < of_.layers; ++layer) {
      for (int64_t direction = 0; direction < of_.directions(); ++direction) {
        write_direction(layer * of_.directions() + direction, direction == 1, per_direction);
      }
      const std::string first = "torch.stack(out" + std::to_string(layer * of_.directions()) + ")";
      const std::string second = "torch.stack(out" + std::to_string(layer * of_.directions() + 1) + ")";
      line(2, of_.is_bidirectional ? "x = torch.cat([" + first + ", " + second + reversed() + "], 2)" : "x = " + first);
    }
    line(2, std::string("y = ") + (of_.batch_comes_first ? "x.transpose(0, 1)" : "x"));
    line(2, "h_n = torch.stack([" + list_of("h") + "])");
    const std::string call =
        "torch." + of_.op + "(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)";
    if (of_.is_lstm()) {
      line(2, "c_n = torch.stack([" + list_of("c") + "])");
      line(1, "else:");
      line(2, "y, h_n, c_n = " + call);
      line(1, "return y, h_n, c_n");
    } else {
      line(1, "else:");
      line(2, "y, h_n = " + call);
      line(1, "return y, h_n");
    }
    return text_;
  }

 private:
  void line(int depth, const std::string& code) { text_ += std::string(static_cast<size_t>(depth) * 4, ' ') + code + "\n"; }

  std::string list_of(const std::string& name) const {
    std::string list;
    for (int64_t i = 0; i < of_.layers * of_.directions(); ++i) {
      list += (list.empty() ? "" : ", ") + name + std::to_string(i);
    }
    return list;
  }

  void write_direction(int64_t number, bool is_reversed, int64_t params) {
    const std::string k = std::to_string(number);
    const auto param = [&](int64_t i) { return "params[" + std::to_string(number * params + i) + "]"; };
    line(2, "from_input" + k + " = torch.linear(x, " + param(0) + (of_.has_biases ? ", " + param(2) : "") + ")");
    line(2, "w" + k + " = " + param(1));
    if (of_.has_biases) {
      line(2, "b" + k + " = " + param(3));
    }
    line(2, "h" + k + " = hx" + (of_.is_lstm() ? "[0]" : "") + "[" + k + "]");
    if (of_.is_lstm()) {
      line(2, "c" + k + " = hx[1][" + k + "]");
    }
    line(2, "out" + k + ": List[Tensor] = []");
    line(2, "for t in range(x.size(0)):");
    const std::string i = "from_input" + k + "[" + (is_reversed ? "last - t" : "t") + "]";
    line(3, "hidden = torch.linear(h" + k + ", w" + k + (of_.has_biases ? ", b" + k : "") + ")");
    write_cell(i, "h" + k, "c" + k);
    line(3, "out" + k + ".append(h" + k + ")");
    if (is_reversed && !of_.records_gradients) {
      line(2, "out" + k + ".reverse()");
    }
  }

  // Reversing a list costs less than reversing a tensor, but a differentiable subgraph knows appends to lists alone.
  std::string reversed() const { return of_.records_gradients ? ".flip([0])" : ""; }

  void write_cell(const std::string& input, const std::string& h, const std::string& c) {
    const CellNames names{
        .of_input = input, .of_hidden = "hidden", .sum = "(" + input + " + hidden)", .h = h, .c = c, .new_h = h, .new_c = c};
    for (const std::string& code : cell_formula(of_.op, names)) {
      line(3, code);
    }
  }

  const Layers& of_;
  std::string text_;
};

// Returns the graph of the layers. Layers of one form share it.
const Graph& graph_of(const Layers& layers) {
  static std::mutex mutex;
  static auto* const graphs = new std::map<Layers, std::unique_ptr<Graph>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Graph>& graph = (*graphs)[layers];
  if (graph == nullptr) {
    graph = compile_function("aten::" + layers.op, Source(layers).text());
  }
  return *graph;
}

}  // namespace

bool decompose_rnn(Graph& graph) { return decompose_rnn(graph, /*records_gradients=*/false); }

bool decompose_rnn(Graph& graph, bool records_gradients) {
  std::vector<std::pair<Node*, Layers>> found;
  for_each_node(graph.body(), [&](Node* node) {
    if (auto layers = layers_of(*node, records_gradients); layers && !is_alternative_to_products(*node)) {
      found.emplace_back(node, std::move(*layers));
    }
  });
  for (const auto& [node, layers] : found) {
    inline_function(*node, graph_of(layers));
  }
  return !found.empty();
}

}  // namespace sconce
