#include "training/backward/engine.h"

#include "training/backward/backward_programs.h"

#include <torch/csrc/autograd/input_buffer.h>

#include <utility>

namespace sconce {
namespace {

using torch::autograd::Engine;
using torch::autograd::GraphTask;
using AutogradNode = torch::autograd::Node;
using torch::autograd::variable_list;

thread_local BackwardPrograms* current_programs = nullptr;
thread_local int backwards_running = 0;

variable_list run_backward(const std::shared_ptr<AutogradNode>& root, const GraphTask& task, bool /*accumulates*/,
                           const torch::autograd::edge_list& outputs) {
  // A backward that a hook or a torch::autograd::Function starts within another.
  if (current_programs == nullptr || backwards_running > 0) {
    return run_backward_by_engine(root, task);
  }
  struct Running {
    Running() { ++backwards_running; }
    ~Running() { --backwards_running; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
  };
  const Running running;
  return current_programs->run(root, task, outputs);
}

}  // namespace

BackwardPrograms* set_backward_programs(BackwardPrograms* programs) {
  if (programs != nullptr) {
    static const bool is_installed = [] {
      Engine::set_compiled_autograd(&run_backward);
      return true;
    }();
    static_cast<void>(is_installed);
  }
  return std::exchange(current_programs, programs);
}

variable_list run_backward_by_engine(const std::shared_ptr<AutogradNode>& root, const GraphTask& task) {
  const auto running = const_cast<GraphTask&>(task).shared_from_this();
  Engine& engine = Engine::get_default_engine();
  const auto future = engine.execute_with_graph_task(running, root, torch::autograd::InputBuffer(variable_list()));
  future->wait();
  return future->value().toTensorVector();
}

}  // namespace sconce
