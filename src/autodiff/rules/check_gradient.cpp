#include "autodiff/rules/check_gradient.h"

#include "base/flat_map.h"
#include "load/compile_op_row.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/rand.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

namespace sconce {
namespace {

using Tensors = std::vector<at::Tensor>;

// ---- runs -----------------------------------------------------------------------------------------------------------

class NodeByNode {
 public:
  void set(const Value* value, c10::IValue content) { values_[value] = std::move(content); }
  const c10::IValue& get(const Value* value) const { return values_.at(value); }

  void run(const Block& block) {
    for (const Node* node : block.nodes()) {
      run(*node);
    }
  }

 private:
  void run(const Node& node) {
    std::vector<c10::IValue> operands;
    for (const Value* input : node.inputs()) {
      operands.push_back(get(input));
    }
    switch (node.opcode()) {
      case Opcode::kConstant: set(node.output(), *node.output()->constant()); return;
      case Opcode::kTupleConstruct: set(node.output(), c10::ivalue::Tuple::create(operands)); return;
      case Opcode::kListConstruct: {
        c10::impl::GenericList list(node.output()->type()->expectRef<c10::ListType>().getElementType());
        for (const c10::IValue& operand : operands) {
          list.push_back(operand);
        }
        set(node.output(), c10::IValue(list));
        return;
      }
      case Opcode::kListUnpack:
        for (size_t i = 0; i < node.outputs().size(); ++i) {
          set(node.output(i), operands[0].toListRef()[i]);
        }
        return;
      case Opcode::kIf: {
        const Block& block = *node.block(operands[0].toBool() ? 0 : 1);
        run(block);
        for (size_t i = 0; i < node.outputs().size(); ++i) {
          set(node.output(i), get(block.returns()[i]));
        }
        return;
      }
      default:
        node.op().registered->getOperation()(operands);
        for (size_t i = 0; i < node.outputs().size(); ++i) {
          set(node.output(i), operands[i]);
        }
    }
  }

  FlatMap<const Value*, c10::IValue> values_;
};

// ---- comparison -----------------------------------------------------------------------------------------------------

// `ulps`: by how many of the largest element. Sums of gradients have no fixed order.
bool are_close(const at::Tensor& a, const at::Tensor& b, double ulps) {
  if (!a.defined() || !b.defined()) {
    return a.defined() == b.defined();
  }
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.layout() != b.layout()) {
    return false;
  }
  if (a.numel() == 0 || !a.is_floating_point()) {
    return a.numel() == 0 || a.equal(b);
  }
  const double unit = a.scalar_type() == c10::kDouble     ? std::numeric_limits<double>::epsilon()
                      : a.scalar_type() == c10::kFloat    ? std::numeric_limits<float>::epsilon()
                      : a.scalar_type() == c10::kBFloat16 ? 1.0 / 128
                                                          : 1.0 / 1024;
  const at::Tensor x = a.detach().to(c10::kDouble);
  const at::Tensor y = b.detach().to(c10::kDouble);
  const double largest = y.nan_to_num(0, 0, 0).abs().max().item<double>();
  return at::allclose(x, y, 0, ulps * unit * largest, /*equal_nan=*/true);
}

bool are_close(const Tensors& a, const Tensors& b, double ulps) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [&](const at::Tensor& x, const at::Tensor& y) { return are_close(x, y, ulps); });
}

at::Tensor with_reversed_strides(const at::Tensor& tensor) {
  std::vector<int64_t> reversed(static_cast<size_t>(tensor.dim()));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return tensor.permute(reversed).contiguous().permute(reversed);
}

// One call, once through the operator and autograd, once through the rule.
class Comparison {
 public:
  Comparison(const Op& op, const Graph& backward, const std::vector<c10::IValue>& arguments,
             const std::vector<bool>& required)
      : op_(op), backward_(backward), required_(required) {
    const at::AutoGradMode grad_mode(true);
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool is_leaf = required[i] && arguments[i].isTensor();
      if (is_leaf) {
        leaves_.push_back(arguments[i].toTensor().detach().requires_grad_(true));
        positions_.push_back(i);
      }
      arguments_.push_back(is_leaf ? c10::IValue(leaves_.back().view_as(leaves_.back())) : arguments[i]);
    }
  }

  std::string run() {
    if (!call_operator()) {
      return {};
    }
    for (const Form form : {Form::kExpanded, Form::kReversed, Form::kContiguous}) {
      make_incoming(form);
      const std::optional<Tensors> first = unless_rejected([this] { return by_autograd(/*create_graph=*/false); });
      const std::optional<Tensors> found_first = unless_rejected([this] { return by_rule(/*records=*/false); });
      if (first.has_value() != found_first.has_value() || (first && !are_close(*found_first, *first, 16))) {
        return "its recorded gradient is not that of autograd";
      }
    }
    const std::optional<Tensors> expected = unless_rejected([this] { return second(by_autograd(/*create_graph=*/true)); });
    const std::optional<Tensors> found = unless_rejected([this] { return second(by_rule(/*records=*/true)); });
    if (expected.has_value() != found.has_value() || (expected && !are_close(*found, *expected, 1024))) {
      return "its second gradient is not that of autograd";
    }
    return {};
  }

 private:
  // The strides of incoming gradients: all 0, from the last dimension to the first, or those of new tensors.
  enum class Form : uint8_t { kExpanded, kReversed, kContiguous };

  template <typename Compute>
  static std::optional<Tensors> unless_rejected(const Compute& compute) {
    try {
      return compute();
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  // Returns false if the operator rejects its operands.
  bool call_operator() {
    torch::jit::Stack stack = arguments_;
    try {
      op_.registered->getOperation()(stack);
    } catch (const std::exception&) {
      return false;
    }
    for (const c10::IValue& result : stack) {
      results_.push_back(result.toTensor());
    }
    return true;
  }

  void make_incoming(Form form) {
    const at::Generator generator = at::detail::createCPUGenerator(1);
    incoming_.clear();
    for (const at::Tensor& result : results_) {
      const at::IntArrayRef sizes = form == Form::kExpanded ? at::IntArrayRef() : result.sizes();
      const at::Tensor random = at::rand(sizes, generator, c10::TensorOptions(c10::kDouble)).to(result.scalar_type());
      const at::Tensor incoming = form == Form::kExpanded   ? random.expand(result.sizes())
                                  : form == Form::kReversed ? with_reversed_strides(random)
                                                            : random;
      incoming_.push_back(incoming.requires_grad_(result.requires_grad()));
    }
  }

  Tensors by_autograd(bool create_graph) const {
    Tensors outputs;
    Tensors incoming;
    for (size_t i = 0; i < results_.size(); ++i) {
      if (results_[i].requires_grad()) {
        outputs.push_back(results_[i]);
        incoming.push_back(incoming_[i]);
      }
    }
    return torch::autograd::grad(outputs, inputs(), incoming, /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
  }

  Tensors inputs() const {
    Tensors inputs;
    for (const size_t position : positions_) {
      inputs.push_back(arguments_[position].toTensor());
    }
    return inputs;
  }

  Tensors by_rule(bool records) const {
    const at::AutoGradMode grad_mode(records);
    std::vector<c10::IValue> values = arguments_;
    values.insert(values.end(), results_.begin(), results_.end());
    values.insert(values.end(), incoming_.begin(), incoming_.end());
    append_all_defined(values, incoming_.size());
    c10::List<bool> needs;
    for (const bool required : required_) {
      needs.push_back(required);
    }
    values.emplace_back(needs);
    values.emplace_back(records);
    const std::vector<c10::IValue> returned = run_node_by_node(backward_, values);
    Tensors gradients;
    for (const size_t position : positions_) {
      const c10::IValue& entry = returned.at(0).toTupleRef().elements()[position];
      gradients.push_back(entry.isTensor() ? entry.toTensor() : at::Tensor());
    }
    return gradients;
  }

  // Returns the gradients of the gradients, weighted. An undefined one is of a gradient that requires none.
  Tensors second(const Tensors& gradients) const {
    Tensors outputs;
    Tensors weights;
    for (const at::Tensor& gradient : gradients) {
      if (gradient.defined() && gradient.requires_grad()) {
        outputs.push_back(gradient);
        weights.push_back(gradient.detach().sin() + 0.5);
      }
    }
    Tensors inputs = leaves_;
    std::copy_if(incoming_.begin(), incoming_.end(), std::back_inserter(inputs),
                 [](const at::Tensor& each) { return each.requires_grad(); });
    return outputs.empty() ? Tensors(inputs.size())
                           : torch::autograd::grad(outputs, inputs, weights, /*retain_graph=*/true, /*create_graph=*/false,
                                                   /*allow_unused=*/true);
  }

  const Op& op_;
  const Graph& backward_;
  const std::vector<bool>& required_;
  Tensors leaves_;
  std::vector<size_t> positions_;
  std::vector<c10::IValue> arguments_;
  Tensors results_;
  Tensors incoming_;
};

}  // namespace

std::vector<c10::IValue> run_node_by_node(const Graph& graph, const std::vector<c10::IValue>& inputs) {
  NodeByNode run;
  for (size_t i = 0; i < inputs.size(); ++i) {
    run.set(graph.inputs()[i], inputs[i]);
  }
  run.run(graph.body());
  std::vector<c10::IValue> outputs;
  for (const Value* output : graph.outputs()) {
    outputs.push_back(run.get(output));
  }
  return outputs;
}

std::string difference_from_autograd(const Op& op, const Graph& backward, const std::vector<c10::IValue>& arguments,
                                     const std::vector<bool>& required) {
  return Comparison(op, backward, arguments, required).run();
}

}  // namespace sconce
