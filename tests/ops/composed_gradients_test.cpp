// Gradients of operators among others. Autograd's engine gives a gradient the sizes and the dtype of a leaf by itself.
// Between two operators of a differentiable subgraph there is no engine, so arguments are computed here, and results used
// again. The oracle is LibTorch's interpreter, for both orders.
#include "tests/ops/eager_gradients.h"
#include "tests/ops/gradient_cases.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/support/torch_graph.h"

#include "autodiff/joint/build_nodes.h"
#include "ir/schema_match.h"
#include "ir/text/print.h"
#include "load/compile_op_row.h"

#include <sconce/explanation.h>
#include <sconce/graph_executor.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <map>

namespace sconce {
namespace {

using testing::GradientCase;
using testing::Tensors;
using testing::Values;

// How an argument is computed from a leaf.
enum class Source : uint8_t { kMean, kSelect, kCat, kTransposed, kExpanded, kSum, kScaled };
constexpr uint64_t kSources = 7;
// What is computed from a result.
enum class Use : uint8_t { kSum, kExpand, kSelect, kCat, kProduct, kCentered, kTanh };
constexpr uint64_t kUses = 7;

Value* number(Graph& graph, const c10::IValue& value) { return graph.insert_constant(value, graph.body().return_node()); }

Value* apply(Graph& graph, const char* kind, const std::vector<Value*>& inputs, c10::TypePtr type = nullptr) {
  return insert_node(c10::Symbol::fromQualString(kind), inputs, graph.body().return_node(), std::move(type));
}

// Appends what computes the argument from a new input. Returns it, and the leaf in `leaf`.
Value* compute_argument(Graph& graph, Source source, const at::Tensor& argument, at::Tensor& leaf) {
  Value* input = graph.add_input("x", c10::TensorType::get());
  const auto none = [&] { return number(graph, c10::IValue()); };
  const bool has_two = argument.dim() > 0 && argument.size(0) > 1;
  switch (source) {
    case Source::kMean:
      leaf = at::stack({argument * 0.5, argument * 1.5});
      return apply(graph, "aten::mean", {input, number(graph, c10::List<int64_t>({0})), number(graph, false), none()});
    case Source::kSelect:
      leaf = at::stack({argument, argument + 1});
      return apply(graph, "aten::select", {input, number(graph, 0), number(graph, 0)});
    case Source::kCat: {
      if (!has_two) {
        break;
      }
      leaf = argument.clone();
      const auto part = [&](int64_t from, const c10::IValue& to) {
        return apply(graph, "aten::slice",
                     {input, number(graph, 0), number(graph, from), number(graph, to), number(graph, 1)});
      };
      Value* parts = apply(graph, "prim::ListConstruct", {part(0, 1), part(1, c10::IValue())}, c10::ListType::ofTensors());
      return apply(graph, "aten::cat", {parts, number(graph, 0)});
    }
    case Source::kTransposed:
      if (argument.dim() < 2) {
        break;
      }
      leaf = argument.transpose(0, -1).contiguous();
      return apply(graph, "aten::transpose", {input, number(graph, 0), number(graph, -1)});
    case Source::kExpanded: {
      leaf = argument.clone();
      Value* more = apply(graph, "aten::unsqueeze", {input, number(graph, 0)});
      Value* sizes = number(graph, (argument.unsqueeze(0).sizes().vec()));
      return apply(graph, "aten::select",
                   {apply(graph, "aten::expand", {more, sizes, number(graph, false)}), number(graph, 0), number(graph, 0)});
    }
    case Source::kSum:
      leaf = at::stack({argument * 0.25, argument * 0.75});
      return apply(graph, "aten::sum", {input, number(graph, c10::List<int64_t>({0})), number(graph, false), none()});
    case Source::kScaled: break;
  }
  leaf = argument * 2;
  return apply(graph, "aten::mul", {input, number(graph, 0.5)});
}

Value* use_result(Graph& graph, Use use, Value* result, int64_t rank) {
  const auto none = [&] { return number(graph, c10::IValue()); };
  const auto mean = [&](Value* of) { return apply(graph, "aten::mean", {of, none()}); };
  switch (use) {
    case Use::kSum:
      return rank == 0
                 ? apply(graph, "aten::sum", {result, none()})
                 : apply(graph, "aten::sum", {result, number(graph, c10::List<int64_t>({-1})), number(graph, true), none()});
    case Use::kExpand: {
      std::vector<int64_t> sizes(static_cast<size_t>(rank) + 1, -1);
      sizes[0] = 3;
      Value* more = apply(graph, "aten::unsqueeze", {result, number(graph, 0)});
      return apply(graph, "aten::tanh", {apply(graph, "aten::expand", {more, number(graph, sizes), number(graph, false)})});
    }
    case Use::kSelect:
      return rank == 0
                 ? apply(graph, "aten::sigmoid", {result})
                 : apply(graph, "aten::mul",
                         {apply(graph, "aten::select", {result, number(graph, 0), number(graph, -1)}), number(graph, 3.0)});
    case Use::kCat: {
      Value* more = apply(graph, "aten::unsqueeze", {result, number(graph, 0)});
      Value* list =
          apply(graph, "prim::ListConstruct", {more, apply(graph, "aten::sin", {more})}, c10::ListType::ofTensors());
      return apply(graph, "aten::cat", {list, number(graph, 0)});
    }
    case Use::kProduct: {
      Value* flat = apply(graph, "aten::reshape", {result, number(graph, std::vector<int64_t>{-1, 1})});
      return apply(graph, "aten::matmul",
                   {flat, apply(graph, "aten::transpose", {flat, number(graph, 0), number(graph, 1)})});
    }
    case Use::kCentered: return apply(graph, "aten::sub", {result, mean(result), number(graph, 1)});
    case Use::kTanh: break;
  }
  return apply(graph, "aten::tanh", {result});
}

struct Composition {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  Tensors inputs;
  std::vector<bool> is_leaf;  // by input
  std::vector<Value*> outputs;
  uint64_t choice;

  uint64_t choose(uint64_t count) {
    const uint64_t chosen = choice % count;
    choice = choice / count + 977;
    return chosen;
  }
};

// Returns the argument as a value of the graph: a tensor that may require a gradient is computed, and used once more.
Value* add_argument(Composition& made, const c10::IValue& argument, const c10::TypePtr& type, bool is_differentiable) {
  Graph& graph = *made.graph;
  if (argument.isList() && !argument.toListRef().empty() &&
      (argument.toListRef()[0].isTensor() || argument.toListRef()[0].isNone())) {
    std::vector<Value*> elements;
    for (const c10::IValue& element : argument.toListRef()) {
      const bool is_floating = element.isTensor() && element.toTensor().defined() && element.toTensor().is_floating_point();
      elements.push_back(add_argument(made, element, c10::TensorType::get(), is_floating));
    }
    return apply(graph, "prim::ListConstruct", elements, type);
  }
  if (argument.isList() && argument.toListRef().empty()) {
    return apply(
        graph, "prim::ListConstruct", {},
        type->castRaw<c10::OptionalType>() != nullptr ? type->castRaw<c10::OptionalType>()->getElementType() : type);
  }
  if (!argument.isTensor() || !argument.toTensor().defined()) {
    return number(graph, argument.isTensor() ? c10::IValue() : argument);
  }
  if (!is_differentiable) {
    made.inputs.push_back(argument.toTensor());
    made.is_leaf.push_back(false);
    return graph.add_input("c", c10::TensorType::get());
  }
  made.inputs.emplace_back();
  made.is_leaf.push_back(true);
  const auto source = static_cast<Source>(made.choose(kSources));
  Value* computed = compute_argument(graph, source, argument.toTensor().detach(), made.inputs.back());
  made.outputs.push_back(apply(graph, "aten::mul", {computed, number(graph, 0.5)}));
  return computed;
}

// The operator of the case among others: its differentiable arguments are computed, and used once more; its results are used
// twice.
Composition compose(const GradientCase& each, const Values& arguments, uint64_t choice) {
  Composition made{.inputs = {}, .is_leaf = {}, .outputs = {}, .choice = choice};
  Graph& graph = *made.graph;
  std::vector<Value*> operands;
  const std::vector<size_t> computed = testing::differentiable_positions(each, arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_differentiable = std::ranges::find(computed, i) != computed.end();
    operands.push_back(add_argument(made, arguments[i], each.op->schema->arguments()[i].type(), is_differentiable));
  }
  Node* node = graph.create(each.op->kind, operands, 0);
  for (const c10::Argument& result : each.op->schema->returns()) {
    node->add_output(result.type());
  }
  node->insert_before(graph.body().return_node());
  EXPECT_TRUE(resolve(*node)) << each.text;
  const Values results = testing::call_operator(*each.op, testing::copies_of(arguments, at::kDouble));
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].isTensor() && results[i].toTensor().is_floating_point()) {
      const auto use = static_cast<Use>(made.choose(kUses));
      made.outputs.push_back(use_result(graph, use, node->output(i), results[i].toTensor().dim()));
    }
  }
  for (Value* output : made.outputs) {
    graph.add_output(output);
  }
  return made;
}

// What a call gives: outputs, gradients, gradients of gradients, or the error of the step that raises.
struct Outcome {
  Values outputs;
  Tensors first;
  Tensors second;
  std::string error;
};

Tensors gradients_of(const Tensors& outputs, const Tensors& leaves, const Tensors& grads, bool create_graph) {
  return torch::autograd::grad(outputs, leaves, grads, /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
}

Outcome outcome_of(const std::function<void(torch::jit::Stack&)>& run, const Composition& composed, int order) {
  Outcome outcome;
  Tensors leaves;
  torch::jit::Stack stack;
  for (size_t i = 0; i < composed.inputs.size(); ++i) {
    stack.emplace_back(composed.inputs[i].detach().clone().requires_grad_(composed.is_leaf[i]));
    if (composed.is_leaf[i]) {
      leaves.push_back(stack.back().toTensor());
    }
  }
  try {
    at::manual_seed(3);
    run(stack);
    outcome.outputs = stack;
    Tensors outputs;
    Tensors grads;
    for (const c10::IValue& output : stack) {
      if (output.toTensor().requires_grad()) {
        outputs.push_back(output.toTensor());
        grads.push_back(at::arange(1, output.toTensor().numel() + 1, at::kDouble).view(output.toTensor().sizes()) * 0.1);
        grads.back().requires_grad_(order == 2);
      }
    }
    outcome.first = gradients_of(outputs, leaves, grads, order == 2);
    if (order == 2) {
      at::Tensor sum = at::zeros({}, at::kDouble);
      for (const at::Tensor& gradient : outcome.first) {
        sum = gradient.defined() && gradient.requires_grad() ? sum + (gradient * gradient).sum() : sum;
      }
      Tensors all = leaves;
      all.insert(all.end(), grads.begin(), grads.end());
      outcome.second = sum.requires_grad() ? gradients_of({sum}, all, {}, false) : Tensors(all.size());
    }
  } catch (const std::exception& error) {
    outcome.error = message_of(error);
    outcome.error = outcome.error.substr(0, outcome.error.find('\n'));
  }
  return outcome;
}

// The least precise dtype of the outputs: operators may cast.
at::ScalarType dtype_of(const Values& outputs) {
  const bool has_float =
      std::ranges::any_of(outputs, [](const c10::IValue& output) { return output.toTensor().scalar_type() == at::kFloat; });
  return has_float ? at::kFloat : at::kDouble;
}

bool is_finite(const Tensors& tensors) {
  return std::ranges::all_of(
      tensors, [](const at::Tensor& each) { return !each.defined() || at::isfinite(each).all().item<bool>(); });
}

// An undefined gradient counts as zeros: LibTorch's formulas of second order give one or the other.
void expect_equal(const Tensors& ours, const Tensors& theirs, double tolerance, const char* what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (size_t i = 0; i < ours.size(); ++i) {
    const at::Tensor& defined = theirs[i].defined() ? theirs[i] : ours[i];
    if (!defined.defined()) {
      continue;
    }
    const at::Tensor zeros = at::zeros_like(defined);
    const at::Tensor a = (ours[i].defined() ? ours[i] : zeros).detach();
    const at::Tensor b = (theirs[i].defined() ? theirs[i] : zeros).detach();
    ASSERT_EQ(a.sizes(), b.sizes()) << what << " " << i;
    EXPECT_EQ(a.scalar_type(), b.scalar_type()) << what << " " << i;
    const double scale = b.numel() == 0 ? 1.0 : std::max(1.0, b.abs().max().item<double>());
    EXPECT_TRUE(at::allclose(a, b, tolerance, tolerance * scale, /*equal_nan=*/true))
        << what << " " << i << "\nours " << a << "\nLibTorch's " << b;
  }
}

// Checks calls of several sizes and both orders. Returns whether LibTorch gave second derivatives.
bool check(const GradientCase& each, uint64_t choice, const std::vector<int64_t>& sizes) {
  bool has_second = false;
  std::map<std::string, std::unique_ptr<GraphExecutor>> executors;  // by graph: cases may name sizes
  for (const int64_t n : sizes) {
    const Values arguments = testing::copies_of(each.arguments(n), at::kDouble);
    if (!testing::is_differentiated(each, arguments)) {
      continue;
    }
    const Composition composed = compose(each, arguments, choice);
    if (std::ranges::find(composed.is_leaf, true) == composed.is_leaf.end()) {
      continue;
    }
    const std::string text = print(*composed.graph);
    SCOPED_TRACE(each.text + ", n = " + std::to_string(n) + "\n" + text);
    std::unique_ptr<GraphExecutor>& ours = executors[text];
    if (ours == nullptr) {
      ours = std::make_unique<GraphExecutor>(composed.graph->clone(), "f",
                                             Options().compile(CompileMode::kBlocking).min_differentiable_nodes(1));
    }
    testing::TorchGraph theirs(text);
    for (const int order : {1, 2}) {
      const Outcome expected = outcome_of([&](torch::jit::Stack& stack) { theirs.interpret(stack); }, composed, order);
      const Outcome actual = outcome_of([&](torch::jit::Stack& stack) { ours->run(stack); }, composed, order);
      if (expected.error.find("is not implemented") != std::string::npos) {
        break;  // ours is made of operators that LibTorch differentiates
      }
      EXPECT_EQ(actual.error.empty(), expected.error.empty())
          << "ours: " << actual.error << "\nLibTorch's: " << expected.error;
      if (!expected.error.empty() || !actual.error.empty() || !is_finite(expected.first)) {
        break;
      }
      const double tolerance = (order == 1 ? 10 : 1000) * testing::tolerance_for(*each.op, dtype_of(expected.outputs));
      EXPECT_TRUE(testing::agree(actual.outputs, expected.outputs, tolerance));
      expect_equal(actual.first, expected.first, tolerance, "gradient");
      expect_equal(actual.second, expected.second, tolerance, "gradient of gradients");
      has_second = has_second || (order == 2 && !expected.second.empty());
    }
    EXPECT_TRUE(ours->explain().refusals.empty()) << ours->explain().refusals[0].reason;
  }
  const Op& row = each.op->canonical != nullptr ? *each.op->canonical : *each.op;
  for (const auto& [text, executor] : executors) {
    for (const PlanExplanation& plan : executor->explain().plans) {
      if (!row.recorded_gradient || !plan.gradients) {
        continue;
      }
      EXPECT_FALSE(plan.gradients->recorded.empty()) << each.text << ": its gradient is not recorded";
      for (const NotDifferentiatedExplanation& outside : plan.gradients->not_differentiated) {
        EXPECT_NE(outside.reason, NotDifferentiated::kUnknownDtype) << each.text << ": " << outside.node;
      }
    }
  }
  return has_second;
}

// SCONCE_COMPOSITIONS=N tries N compositions of each case.
TEST(ComposedGradients, AreLibTorchsInBothOrders) {
  const auto tries = static_cast<uint64_t>(testing::environment_number("SCONCE_COMPOSITIONS", 1));
  size_t with_second = 0;
  for (const GradientCase& each : testing::gradient_cases()) {
    for (uint64_t i = 0; i < tries; ++i) {
      const uint64_t choice = std::hash<std::string>()(each.text) / 7 + i * 104729;
      try {
        with_second += check(each, choice, {3, 2}) ? 1 : 0;
      } catch (const std::exception& error) {
        ADD_FAILURE() << each.text << ": " << message_of(error);
      }
    }
  }
  EXPECT_GT(with_second, 300U);
}

}  // namespace
}  // namespace sconce
