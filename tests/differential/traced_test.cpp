// A call while torch::jit::trace records: the outer trace holds our graph, branches and loops included.
#include "load/export_graph.h"

#include "tests/support/model_files.h"
#include "tests/support/torch_graph.h"

#include "ir/text/print.h"
#include "load/convert.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <regex>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;

// A module with control flow that depends on its input, and a parameter.
torch::jit::Module inner_module() {
  torch::jit::Module inner("__torch__.Inner");
  inner.register_parameter("weight", at::full({3}, 2.0F), /*is_buffer=*/false);
  inner.define(R"(
    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        y = x * self.weight
        for i in range(x.size(0)):
            y = y + x[i] * i
        if bool(x.sum() > 0):
            y = y.relu()
        else:
            y = y - 10
        return y, x + 1
  )");
  return inner;
}

struct Traced {
  torch::jit::Module outer{"__torch__.Outer"};
  std::shared_ptr<torch::jit::Graph> graph;
  std::vector<c10::IValue> outputs;

  std::vector<c10::IValue> run(const at::Tensor& x) const {
    torch::jit::Stack stack = {outer._ivalue(), x};
    torch::jit::InterpreterState(torch::jit::Code(graph, "traced")).run(stack);
    return stack;
  }
};

using Call = std::function<c10::IValue(const at::Tensor&)>;

// Traces `tanh(first result of the call) * 2` with `inner` as a part of the traced module.
Traced trace(const torch::jit::Module& inner, const at::Tensor& example, const Call& call) {
  Traced traced;
  traced.outer.register_module("inner", inner);
  const auto body = [&](torch::jit::Stack inputs) -> torch::jit::Stack {
    const c10::IValue results = call(inputs[0].toTensor());
    return {results.toTupleRef().elements()[0].toTensor().tanh() * 2};
  };
  auto [state, outputs] = torch::jit::tracer::trace(
      {example}, body, [](const at::Tensor&) { return std::string(); },
      /*strict=*/true, /*force_outplace=*/false, &traced.outer);
  traced.graph = state->graph;
  traced.outputs = std::move(outputs);
  return traced;
}

size_t count_nodes(c10::ArrayRef<const torch::jit::Block*> blocks, c10::Symbol kind) {
  size_t count = 0;
  for (const torch::jit::Block* block : blocks) {
    for (const torch::jit::Node* node : block->nodes()) {
      count += (node->kind() == kind ? 1 : 0) + count_nodes(node->blocks(), kind);
    }
  }
  return count;
}
size_t count_nodes(const torch::jit::Graph& graph, c10::Symbol kind) { return count_nodes({graph.block()}, kind); }

at::Tensor expected_result(const torch::jit::Module& inner, const at::Tensor& x) {
  torch::jit::Module script = inner;
  return script.forward({x}).toTupleRef().elements()[0].toTensor().tanh() * 2;
}

TEST(Traced, TheOuterTraceKeepsTheControlFlow) {
  const torch::jit::Module inner = inner_module();
  const Module ours = accelerate(inner);
  const at::Tensor example = at::arange(6.0F).reshape({2, 3});
  const Traced traced = trace(inner, example, [&](const at::Tensor& x) { return ours.forward({x}); });
  traced.graph->lint();
  EXPECT_EQ(count_nodes(*traced.graph, prim::If), 1U) << *traced.graph;
  EXPECT_EQ(count_nodes(*traced.graph, prim::Loop), 1U) << *traced.graph;
  EXPECT_TRUE(at::equal(traced.outputs[0].toTensor(), expected_result(inner, example)));
  // Other sizes, and the branch that was not taken.
  for (const at::Tensor& x : {example, -example, at::ones({5, 3}), at::ones({1, 3}) * -2}) {
    EXPECT_TRUE(at::equal(traced.run(x)[0].toTensor(), expected_result(inner, x))) << x;
  }
}

TEST(Traced, TypesOfTheCallAreKnownToTheTrace) {
  const torch::jit::Module inner = inner_module();
  const Module ours = accelerate(inner);
  const Traced traced = trace(inner, at::ones({2, 3}), [&](const at::Tensor& x) { return ours.forward({x}); });
  // The tracer's own node after our graph.
  for (const torch::jit::Node* node : traced.graph->nodes()) {
    if (node->kind() == aten::tanh) {
      const auto type = node->input(0)->type()->cast<c10::TensorType>();
      EXPECT_NE(type, nullptr);
      return;
    }
  }
  FAIL() << "no tanh in the trace:\n" << *traced.graph;
}

TEST(Traced, ParametersAreReadFromTheModuleAndNotBakedIn) {
  const torch::jit::Module inner = inner_module();
  const Module ours = accelerate(inner);
  const at::Tensor x = at::ones({2, 3});
  const Traced traced = trace(inner, x, [&](const at::Tensor& argument) { return ours.forward({argument}); });
  const at::NoGradGuard no_grad;
  inner.attr("weight").toTensor().fill_(-7);
  EXPECT_TRUE(at::equal(traced.run(x)[0].toTensor(), expected_result(inner, x)));
}

TEST(Traced, AModuleOutsideOfWhatIsTracedIsRefusedAsByLibTorch) {
  const Module stranger = accelerate(inner_module());
  EXPECT_THAT([&] { trace(inner_module(), at::ones({2, 3}), [&](const at::Tensor& x) { return stranger.forward({x}); }); },
              ::testing::ThrowsMessage<c10::Error>(HasSubstr("not part of the active trace")));
  // The tracer was left, and the module runs.
  EXPECT_FALSE(torch::jit::tracer::isTracing());
  EXPECT_TRUE(stranger.forward({at::ones({2, 3})}).isTuple());
}

TEST(Traced, AnExceptionLeavesTheTracerAsItWas) {
  torch::jit::Module inner("__torch__.Failing");
  inner.define(R"(
    def forward(self, x: Tensor) -> Tensor:
        assert not bool(x.sum() > 0), "positive"
        return x + 1
  )");
  const Module ours = accelerate(inner);
  torch::jit::Module outer("__torch__.Outer");
  outer.register_module("inner", inner);
  bool was_tracing = false;
  const auto body = [&](torch::jit::Stack inputs) -> torch::jit::Stack {
    EXPECT_ANY_THROW(ours.forward({inputs[0]}));
    was_tracing = torch::jit::tracer::isTracing();
    return {inputs[0].toTensor() * 3};
  };
  const auto traced =
      torch::jit::tracer::trace({at::ones({2})}, body, [](const at::Tensor&) { return std::string(); }, true, false, &outer);
  EXPECT_TRUE(was_tracing);
  EXPECT_EQ(count_nodes(*traced.first->graph, aten::mul), 1U);
  EXPECT_EQ(count_nodes(*traced.first->graph, prim::If), 0U);
}

// The types of a trace hold the example's sizes and dtypes. A call may have others.
TEST(Traced, AModuleThatThisProcessTracedTakesOtherSizesAndDtypes) {
  torch::jit::Module traced("__torch__.Traced");
  const auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(R"(
graph(%self : Tensor, %x : Float(2, 3, 4, strides=[12, 4, 1], requires_grad=0, device=cpu)):
  %zero : int = prim::Constant[value=0]()
  %all : int = prim::Constant[value=-1]()
  %rows : int = aten::size(%x, %zero)
  %sizes : int[] = prim::ListConstruct(%rows, %all)
  %flat : Float(2, 12, strides=[12, 1], requires_grad=0, device=cpu) = aten::view(%x, %sizes)
  %dtype : int = prim::dtype(%flat)
  %y : Tensor = aten::div(%flat, %rows)
  %both : (Tensor, int) = prim::TupleConstruct(%y, %dtype)
  return (%both)
)",
                      graph.get());
  graph->inputs()[0]->setType(traced.type());
  const auto function = traced._ivalue()->compilation_unit()->create_function("__torch__.Traced.forward", graph);
  traced.type()->addMethod(function);
  const Module ours = accelerate(traced, Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 3; ++call) {
    for (const at::Tensor& x : {at::rand({5, 3, 4}), at::rand({1, 2}), at::rand({2, 3, 4}, at::kDouble)}) {
      const auto results = ours.forward({x}).toTupleRef().elements();
      EXPECT_TRUE(at::equal(results[0].toTensor(), x.flatten(1) / x.size(0))) << x.sizes();
      EXPECT_EQ(results[1].toInt(), static_cast<int64_t>(x.scalar_type()));
    }
  }
}

// ---- what the trace is given ----------------------------------------------------------------------------------------

// The text with values named by their order: a copy gives other numbers to those without a name, and to names that were
// taken.
std::string with_numbered_values(const std::string& text) {
  std::string result;
  std::unordered_map<std::string, size_t> numbers;
  for (size_t i = 0; i < text.size();) {
    const size_t end = text[i] == '%' ? std::min(text.find_first_of(" ,):(\n", i), text.size()) : i + 1;
    const std::string piece = text.substr(i, end - i);
    result += text[i] == '%' ? "%" + std::to_string(numbers.emplace(piece, numbers.size()).first->second) : piece;
    i = end;
  }
  return result;
}

// LibTorch has no mark for constants that cannot be distinguished from the run's own objects; and of two graphs with the
// same constant tensors each has the other's for shared.
std::string without_marks(const std::string& text) {
  return std::regex_replace(text, std::regex(", (folded|shared)=1"), "");
}

TEST(ExportGraph, GivesEveryGraphOfTheModelsBackUnchanged) {
  size_t graphs = 0;
  for (const std::string& name : models_in_part()) {
    SCOPED_TRACE(name);
    const Module module = load(model_file(name));
    for (const std::string& method : module.method_names()) {
      const Graph& graph = module.method(method).graph();
      const auto exported = export_graph(graph);
      if (graph.node_count() <= kMaxNodesToLint) {
        exported->lint();
      }
      const auto again = convert(*exported);
      ASSERT_TRUE(again) << method;
      EXPECT_EQ(without_marks(with_numbered_values(print(**again))), without_marks(with_numbered_values(print(graph))))
          << method;
      ++graphs;
    }
  }
  EXPECT_GT(graphs, 30U);
}

}  // namespace
}  // namespace sconce::testing
