#include "passes/matmul/decompose_rnn.h"

#include "analysis/node_devices.h"
#include "ir/constant_operands.h"
#include "load/compile_op_row.h"
#include "passes/matmul/cell_formula.h"
#include "passes/matmul/inline_function.h"

#include <ATen/core/jit_type.h>

#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sconce {
namespace {

// The settings of the layer: the constants among the operands.
struct Layers {
  std::string op;  // "lstm"
  bool has_biases;
  int64_t layers;
  bool is_bidirectional;
  bool batch_comes_first;
  bool records_gradients;
  bool has_known_weights = false;  // facts say that the weights have one dtype and the sizes that LibTorch demands
  bool has_kernel = false;         // the input is float32, and nothing records gradients

  int64_t weights_of_direction() const { return has_biases ? 4 : 2; }
  int64_t weights() const { return weights_of_direction() * layers * directions(); }
  int64_t directions() const { return is_bidirectional ? 2 : 1; }
  int64_t gates() const { return op == "lstm" ? 4 : op == "gru" ? 3 : 1; }
  bool is_lstm() const { return op == "lstm"; }
  auto operator<=>(const Layers&) const = default;
};

// A size that LibTorch demands of a weight: a multiple of the hidden size, or the number of the input's features.
struct WeightSize {
  int64_t factor;
  bool is_of_input = false;
};

// Each direction of a layer has weights for the input and for the state, then the biases of both.
std::vector<WeightSize> sizes_of_weight(const Layers& of, int64_t index) {
  const int64_t place = index % of.weights_of_direction();
  const bool is_first_layer = index < of.weights_of_direction() * of.directions();
  std::vector<WeightSize> sizes = {{of.gates()}};
  if (place == 0) {
    sizes.push_back(is_first_layer ? WeightSize{1, true} : WeightSize{of.directions()});
  } else if (place == 1) {
    sizes.push_back({1});
  }
  return sizes;
}

// Returns whether facts say that the weights have one dtype and the sizes that LibTorch demands.
bool has_known_weights(const Node& node, const Layers& of) {
  const Node& list = *node.input(2)->node();
  if (list.opcode() != Opcode::kListConstruct || static_cast<int64_t>(list.inputs().size()) != of.weights()) {
    return false;
  }
  std::vector<std::vector<Dim>> known;
  for (const Value* weight : list.inputs()) {
    const TensorFacts* facts = weight->facts();
    if (facts == nullptr || !facts->sizes || !facts->dtype || facts->dtype != list.input(0)->facts()->dtype) {
      return false;
    }
    known.push_back(*facts->sizes);
  }
  if (known[0].size() != 2 || known[1].size() != 2 || !known[0][1].is_known() || !known[1][1].is_known()) {
    return false;
  }
  for (size_t i = 0; i < known.size(); ++i) {
    std::vector<Dim> demanded;
    for (const WeightSize& size : sizes_of_weight(of, static_cast<int64_t>(i))) {
      demanded.push_back(Dim::known(size.is_of_input ? known[0][1].value() : size.factor * known[1][1].value()));
    }
    if (known[i] != demanded) {
      return false;
    }
  }
  return true;
}

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
  Layers found{op, constants[0]->toBool(), layers, constants[4]->toBool(), constants[5]->toBool(), records_gradients};
  found.has_known_weights = has_known_weights(node, found);
  found.has_kernel = !records_gradients && known_dtype(*node.input(0)) == c10::kFloat;
  return found;
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
    line(1, "if " + condition() + ":");
    line(2, of_.batch_comes_first ? "x = input.transpose(0, 1)" : "x = input");
    if (of_.has_kernel) {
      write_kernels();
    } else {
      write_loops();
    }
    line(2, std::string("y = ") + (of_.batch_comes_first ? "x.transpose(0, 1)" : "x"));
    const std::string call =
        "torch." + of_.op + "(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)";
    const std::string results = of_.is_lstm() ? "y, h_n, c_n" : "y, h_n";
    line(1, "else:");
    line(2, results + " = " + call);
    line(1, "return " + results);
    return text_;
  }

 private:
  void line(int depth, const std::string& code) { text_ += std::string(static_cast<size_t>(depth) * 4, ' ') + code + "\n"; }

  // A layer is one operator, after the products of all time steps with the weights of the input.
  void write_kernels() {
    std::string h_n;
    std::string c_n;
    for (int64_t layer = 0; layer < of_.layers; ++layer) {
      const std::string k = std::to_string(layer);
      std::string operands;
      for (int64_t direction = 0; direction < of_.directions(); ++direction) {
        const std::string number = std::to_string(layer * of_.directions() + direction);
        write_product_of_input(layer * of_.directions() + direction);
        operands += "from_input" + number + ", " + param(layer * of_.directions() + direction, 1) + ", " +
                    (of_.has_biases ? param(layer * of_.directions() + direction, 3) : "None") + ", ";
      }
      operands += of_.is_bidirectional ? "" : "None, None, None, ";
      const std::string part = "[" + std::to_string(layer * of_.directions()) + ":" +
                               std::to_string((layer + 1) * of_.directions()) + "].contiguous()";
      if (of_.is_lstm()) {
        line(2, "x, h" + k + ", c" + k + " = ops.sconce.lstm_layer(" + operands + "hx[0]" + part + ", hx[1]" + part + ")");
      } else {
        line(2, "x, h" + k + " = ops.sconce.recurrent_layer(" + operands + "hx" + part + ", '" + of_.op + "')");
      }
      h_n += (layer == 0 ? "h" : ", h") + k;
      c_n += (layer == 0 ? "c" : ", c") + k;
    }
    line(2, "h_n = " + (of_.layers == 1 ? h_n : "torch.cat([" + h_n + "])"));
    if (of_.is_lstm()) {
      line(2, "c_n = " + (of_.layers == 1 ? c_n : "torch.cat([" + c_n + "])"));
    }
  }

  void write_loops() {
    line(2, "last = x.size(0) - 1");
    for (int64_t layer = 0; layer < of_.layers; ++layer) {
      for (int64_t direction = 0; direction < of_.directions(); ++direction) {
        write_direction(layer * of_.directions() + direction, direction == 1);
      }
      const std::string first = "torch.stack(out" + std::to_string(layer * of_.directions()) + ")";
      const std::string second = "torch.stack(out" + std::to_string(layer * of_.directions() + 1) + ")";
      line(2, of_.is_bidirectional ? "x = torch.cat([" + first + ", " + second + reversed() + "], 2)" : "x = " + first);
    }
    line(2, "h_n = torch.stack([" + list_of("h") + "])");
    if (of_.is_lstm()) {
      line(2, "c_n = torch.stack([" + list_of("c") + "])");
    }
  }

  std::string list_of(const std::string& name) const {
    std::string list;
    for (int64_t i = 0; i < of_.layers * of_.directions(); ++i) {
      list += (list.empty() ? "" : ", ") + name + std::to_string(i);
    }
    return list;
  }

  static std::string weight(int64_t index) { return "params[" + std::to_string(index) + "]"; }
  // A weight of a direction of a layer.
  std::string param(int64_t number, int64_t i) const { return weight(number * of_.weights_of_direction() + i); }

  void write_product_of_input(int64_t number) {
    line(2, "from_input" + std::to_string(number) + " = torch.linear(x, " + param(number, 0) +
                (of_.has_biases ? ", " + param(number, 2) : "") + ")");
  }

  // Returns the condition under which LibTorch takes the arguments, and the lines compute what it computes. For all others
  // the operator itself runs, and raises.
  std::string condition() const {
    const std::string features = weight(0) + ".size(1)";
    const std::string hidden = weight(1) + ".size(1)";
    std::string all = "len(params) == " + std::to_string(of_.weights());
    const auto demand = [&](const std::string& what) { all += " and " + what; };
    if (!of_.has_known_weights) {
      demand(weight(0) + ".dim() == 2 and " + weight(1) + ".dim() == 2");
      for (int64_t i = 0; i < of_.weights(); ++i) {
        const auto sizes = sizes_of_weight(of_, i);
        demand(weight(i) + ".dtype == " + weight(0) + ".dtype and " + weight(i) +
               ".dim() == " + std::to_string(sizes.size()));
        for (size_t dim = 0; dim < sizes.size(); ++dim) {
          demand(weight(i) + ".size(" + std::to_string(dim) +
                 ") == " + (sizes[dim].is_of_input ? features : std::to_string(sizes[dim].factor) + " * " + hidden));
        }
      }
    }
    const std::string time = of_.batch_comes_first ? "1" : "0";
    const std::string batch = of_.batch_comes_first ? "0" : "1";
    demand("input.dim() == 3 and input.size(" + time + ") > 0 and input.size(2) == " + features +
           " and input.dtype == " + weight(0) + ".dtype");
    if (of_.is_lstm()) {
      demand("len(hx) == 2");
    }
    const std::vector<std::string> states = {of_.is_lstm() ? "hx[0]" : "hx", "hx[1]"};
    for (const std::string& state : std::span(states).first(of_.is_lstm() ? 2 : 1)) {
      demand(state + ".dim() == 3 and " + state + ".size(0) == " + std::to_string(of_.layers * of_.directions()));
      demand(state + ".size(1) == input.size(" + batch + ") and " + state + ".size(2) == " + hidden);
      demand(state + ".dtype == input.dtype");
    }
    return all;
  }

  void write_direction(int64_t number, bool is_reversed) {
    const std::string k = std::to_string(number);
    write_product_of_input(number);
    line(2, "w" + k + " = " + param(number, 1));
    if (of_.has_biases) {
      line(2, "b" + k + " = " + param(number, 3));
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
  if (found.empty() || !main_device_of(graph).is_cpu()) {
    return false;  // on a GPU, cuDNN computes all steps of a layer in one call, forward and backward
  }
  for (const auto& [node, layers] : found) {
    inline_function(*node, graph_of(layers));
  }
  return true;
}

}  // namespace sconce
