#include "passes/matmul/decompose_recorded_lstm.h"

#include "ir/constant_operands.h"
#include "load/compile_op_row.h"
#include "passes/matmul/inline_function.h"
#include "passes/matmul/known_matrices.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace sconce {
namespace {

constexpr int64_t kLstmMode = 2;

// What decides the text of a layer.
struct Form {
  bool is_backward = false;
  bool has_biases = false;
  bool is_reversed = false;
  std::array<bool, 3> has_gradient = {};  // of the results

  auto operator<=>(const Form&) const = default;
};

// Returns the operator in TorchScript. The names of its arguments are the schema's.
std::string text_of(const Form& form) {
  if (!form.is_backward) {
    return std::string(R"(
def layer(input: Tensor, weight0: Tensor, weight1: Tensor, weight2: Tensor, weight3: Tensor, hx_: Tensor, cx_: Tensor,
          reverse: bool, batch_sizes: List[int], mode: int, hidden_size: int, num_layers: int, has_biases: bool,
          bidirectional: bool, batch_first: bool, train: bool):
    return ops.sconce.lstm_layer_for_gradients()") +
           (form.has_biases ? "torch.linear(input, weight0, weight2), weight1, weight3"
                            : "torch.linear(input, weight0), weight1, None") +
           R"(,
                                               hx_.contiguous(), cx_.contiguous(), reverse)
)";
  }
  const std::array<std::string, 3> names = {"grad_output", "grad_hy", "grad_cy"};
  std::string parameters;
  std::string gradients;
  for (size_t i = 0; i < names.size(); ++i) {
    parameters += names[i] + (form.has_gradient[i] ? ": Tensor, " : ": Optional[Tensor], ");
    gradients += form.has_gradient[i] ? names[i] + ".contiguous(), " : "None, ";
  }
  return R"(
def gradients(input: Tensor, weight1: Tensor, weight2: Tensor, weight3: Tensor, weight4: Tensor, hx_: Tensor, cx_tmp: Tensor,
              output: Tensor, hy_: Tensor, cy_: Tensor, )" +
         parameters + R"(reverse: bool, mode: int,
              hidden_size: int, num_layers: int, has_biases: bool, train: bool, bidirectional: bool, batch_sizes: List[int],
              batch_first: bool, workspace: Tensor):
    states = )" +
         (form.is_reversed ? "torch.cat([output[1:], hx_.unsqueeze(0)])" : "torch.cat([hx_.unsqueeze(0), output[:-1]])") +
         R"(
    of_sums, of_h, of_c = ops.sconce.lstm_layer_backward(workspace, weight2, cx_tmp.contiguous(), )" +
         gradients + R"(reverse)
    rows = of_sums.flatten(0, 1)
    of_bias = rows.sum([0])
    return (torch.matmul(of_sums, weight1), torch.mm(rows.t(), input.flatten(0, 1)),
            torch.mm(rows.t(), states.flatten(0, 1)), of_bias, of_bias, of_h, of_c)
)";
}

const Graph& body_of(const Form& form) {
  static std::mutex mutex;
  static auto* const graphs = new std::map<Form, std::unique_ptr<Graph>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Graph>& graph = (*graphs)[form];
  if (graph == nullptr) {
    graph = compile_function((form.is_backward ? aten::mkldnn_rnn_layer_backward : aten::mkldnn_rnn_layer).toQualString(),
                             text_of(form));
  }
  return *graph;
}

bool is_float_of_rank(const Value& value, size_t rank) {
  const auto facts = known_tensor(value);
  return facts && facts->dtype == c10::kFloat && facts->device->is_cpu() && facts->sizes->size() == rank;
}

// Returns the form of one direction of an LSTM. Both operators have its operands in this order.
std::optional<Form> form_of_layer(const Node& node) {
  const auto has_biases = constant_bool(*node.named_input("has_biases"));
  const auto is_reversed = constant_bool(*node.named_input("reverse"));
  const c10::IValue* batches = node.named_input("batch_sizes")->constant();
  if (!has_biases || !is_reversed || !is_constant_int(*node.named_input("mode"), kLstmMode) || batches == nullptr ||
      !batches->toIntVector().empty()) {
    return std::nullopt;
  }
  // The input, weights and biases, the first h and c. Biases of a layer without have a form of their own, and are not read.
  constexpr std::array<size_t, 7> kRanks = {3, 2, 2, 1, 1, 2, 2};
  for (size_t i = 0; i < kRanks.size(); ++i) {
    const bool is_bias = kRanks[i] == 1;
    if ((!is_bias || *has_biases) && !is_float_of_rank(*node.input(i), kRanks[i])) {
      return std::nullopt;
    }
  }
  return Form{.has_biases = *has_biases, .is_reversed = *is_reversed};
}

std::optional<Form> form_of_gradients(const Node& node) {
  auto form = form_of_layer(node);
  if (!form) {
    return std::nullopt;
  }
  form->is_backward = true;
  constexpr size_t kFirstGradient = 10;
  for (size_t i = 0; i < form->has_gradient.size(); ++i) {
    const Value& gradient = *node.input(kFirstGradient + i);
    form->has_gradient[i] = !is_none(gradient);
    if (form->has_gradient[i] && !is_float_of_rank(gradient, i == 0 ? 3 : 2)) {
      return std::nullopt;
    }
  }
  const bool asks_for_biases = !node.output(3)->uses().empty() || !node.output(4)->uses().empty();
  return form->has_biases || !asks_for_biases ? form : std::nullopt;
}

using Replaced = std::vector<std::pair<Node*, Form>>;

// Returns the layer and its gradients, which are all that reads its workspace. Returns nothing if one of them cannot be
// replaced.
Replaced replaced_with(Node& layer) {
  const Value& workspace = *layer.output(3);
  const auto form = form_of_layer(layer);
  if (!form || workspace.uses().empty()) {
    return {};
  }
  Replaced all = {{&layer, *form}};
  for (const Use& use : workspace.uses()) {
    const auto gradients = use.user->kind() == aten::mkldnn_rnn_layer_backward ? form_of_gradients(*use.user) : std::nullopt;
    if (!gradients) {
      return {};
    }
    all.emplace_back(use.user, *gradients);
  }
  return all;
}

}  // namespace

bool decompose_recorded_lstm(Graph& graph) {
  Replaced found;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() == aten::mkldnn_rnn_layer) {
      std::ranges::copy(replaced_with(*node), std::back_inserter(found));
    }
  });
  for (const auto& [node, form] : found) {
    inline_function(*node, body_of(form));
  }
  return !found.empty();
}

}  // namespace sconce
