#include "tests/support/torch_graph.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/interpreter.h>

namespace sconce::testing {
namespace {

std::shared_ptr<torch::jit::Graph> parse_with_torch(const std::string& text) {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(text, graph.get());
  return graph;
}

}  // namespace

struct TorchGraph::Runners {
  explicit Runners(const std::string& text)
      : code(parse_with_torch(text), "interpreted"), executor(parse_with_torch(text), "executed") {}
  torch::jit::Code code;
  torch::jit::GraphExecutor executor;
};

TorchGraph::TorchGraph(const std::string& text) : runners_(std::make_unique<Runners>(text)) {}
TorchGraph::~TorchGraph() = default;
TorchGraph::TorchGraph(TorchGraph&&) noexcept = default;

void TorchGraph::interpret(torch::jit::Stack& stack) { torch::jit::InterpreterState(runners_->code).run(stack); }
void TorchGraph::execute(torch::jit::Stack& stack) { runners_->executor.run(stack); }

}  // namespace sconce::testing
