#include "training/backward/engine.h"

#include "trace/tracer.h"
#include "training/backward/backward_programs.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace sconce {
namespace {

using torch::autograd::Engine;
using torch::autograd::GraphRoot;
using torch::autograd::GraphTask;
using torch::autograd::InputBuffer;
using AutogradNode = torch::autograd::Node;
using torch::autograd::variable_list;

thread_local BackwardPrograms* current_programs = nullptr;
thread_local int backwards_running = 0;
// Set while `execute` has prepared a backward that the programs are asked for: whether it creates a graph.
thread_local std::optional<bool> asked_to_create_graph;

// A tracer sees the operators that LibTorch's engine calls.
bool takes_backwards() {
  return current_programs != nullptr && backwards_running == 0 && TracingScope::current() == nullptr;
}

// Takes the place of all nodes of a backward, so that what they call (hooks, final callbacks, errors) finds itself in a
// backward of LibTorch's engine.
class WholeBackward final : public AutogradNode {
 public:
  WholeBackward(BackwardPrograms::Backward backward, GraphTask& task)
      : AutogradNode(/*sequence_nr=*/std::numeric_limits<uint64_t>::max()), backward_(std::move(backward)), task_(task) {}

  std::string name() const override { return "SconceBackwardOfAll"; }

 private:
  variable_list apply(variable_list&& /*gradients*/) override {
    struct Running {
      Running() { ++backwards_running; }
      ~Running() { --backwards_running; }
      Running(const Running&) = delete;
      Running& operator=(const Running&) = delete;
    };
    // A backward that hooks or formulas start within this one goes to LibTorch's engine: see `takes_backwards`.
    const Running running;
    variable_list results = backward_.run();
    // The engine returns what the task has captured once its last node is done. LibTorch guards that by this mutex.
    const std::lock_guard<std::mutex> lock(task_.mutex_);
    task_.captured_vars_ = std::move(results);
    return {};
  }

  const BackwardPrograms::Backward backward_;
  GraphTask& task_;
};

// The graph of a backward begins with a GraphRoot, which holds the gradients. The engine makes none for a single root; this
// makes one, and takes it away.
class RootBefore {
 public:
  RootBefore(const std::shared_ptr<AutogradNode>& root, InputBuffer& gradients, GraphTask& task) : root_(root), task_(task) {
    if (dynamic_cast<const GraphRoot*>(root.get()) != nullptr) {
      node_ = root;
      return;
    }
    torch::autograd::edge_list edges;
    variable_list given;
    for (uint32_t i = 0; i < root->num_inputs(); ++i) {
      if (gradients[i].defined()) {
        edges.emplace_back(root, i);
        given.push_back(gradients[i]);
      }
    }
    if (!edges.empty()) {
      // The walk takes the number of edges to a node from the task, and these edges are new.
      task.dependencies_[root.get()] += static_cast<int>(edges.size());
      added_ = static_cast<int>(edges.size());
      node_ = std::make_shared<GraphRoot>(std::move(edges), std::move(given));
    }
  }
  ~RootBefore() {
    // LibTorch's engine may still run this backward, from the root itself.
    if (added_ > 0 && (task_.dependencies_[root_.get()] -= added_) == 0) {
      task_.dependencies_.erase(root_.get());
    }
  }
  RootBefore(const RootBefore&) = delete;
  RootBefore& operator=(const RootBefore&) = delete;

  // Null if no gradient is given.
  const std::shared_ptr<AutogradNode>& node() const { return node_; }

 private:
  const std::shared_ptr<AutogradNode>& root_;
  GraphTask& task_;
  std::shared_ptr<AutogradNode> node_;
  int added_ = 0;
};

// Asks the thread's programs in each backward, and leaves what they do not run to the engine that was there before. LibTorch
// has a place for a function that is asked (`set_compiled_autograd`), but that cannot be set while a thread runs backward,
// and Python's compiled autograd takes it.
class BackwardEngine final : public Engine {
 public:
  static void install() {
    static auto& engine = *new BackwardEngine;  // threads may run backward until the process ends
    Engine& current = Engine::get_default_engine();
    if (&current != &engine) {
      engine.before_ = &current;  // that of Python, once it is loaded
      torch::autograd::set_default_engine_stub([]() -> Engine& { return engine; });
    }
  }

  variable_list execute(const torch::autograd::edge_list& roots, const variable_list& gradients, bool keep_graph,
                        bool create_graph, bool accumulate_grad, const torch::autograd::edge_list& outputs) override {
    if (!takes_backwards()) {
      return before().execute(roots, gradients, keep_graph, create_graph, accumulate_grad, outputs);
    }
    // Engine::execute makes the task, and calls `execute_with_graph_task` of this object. The engine before calls its own.
    asked_to_create_graph = create_graph;
    return Engine::execute(roots, gradients, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<c10::ivalue::Future> execute_with_graph_task(const std::shared_ptr<GraphTask>& task,
                                                                  std::shared_ptr<AutogradNode> root,
                                                                  InputBuffer&& gradients) override {
    if (const std::optional<bool> creates_graph = std::exchange(asked_to_create_graph, std::nullopt)) {
      BackwardPrograms::Backward backward = take(*task, root, gradients, *creates_graph);
      if (backward.run != nullptr && !backward.calls_other_code) {
        complete(*task, backward);
        return task->future_result_;
      }
      if (backward.run != nullptr) {
        // The walk's root has the gradients. The engine takes a node without inputs for work of the CPU, which this thread
        // does.
        return before().execute_with_graph_task(task, node_of(*task, std::move(backward)), InputBuffer(variable_list()));
      }
    }
    return before().execute_with_graph_task(task, std::move(root), std::move(gradients));
  }

  // LibTorch asks the default engine for these, and Python's engine overrides them.
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return before().make_anomaly_metadata();
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return before().get_default_saved_variable_hooks();
  }
  void thread_on_exception(const std::shared_ptr<GraphTask>& task, const std::shared_ptr<AutogradNode>& node,
                           std::exception& error) override {
    before().thread_on_exception(task, node, error);
  }
  void thread_init(int device, const std::shared_ptr<torch::autograd::ReadyQueue>& queue, bool increments) override {
    before().thread_init(device, queue, increments);
  }

 private:
  Engine& before() const { return *before_.load(std::memory_order_acquire); }

  static BackwardPrograms::Backward take(GraphTask& task, const std::shared_ptr<AutogradNode>& root, InputBuffer& gradients,
                                         bool creates_graph) {
    const RootBefore first(root, gradients, task);
    return first.node() == nullptr ? BackwardPrograms::Backward()
                                   : current_programs->take(first.node(), task, creates_graph);
  }

  // Plans and leaves without hooks ask the engine for nothing: they need none of its threads, callbacks and states.
  static void complete(GraphTask& task, const BackwardPrograms::Backward& backward) {
    // As the engine sets it for each node of a backward without create_graph.
    const c10::AutoGradMode no_graph(false);
    task.future_result_->markCompleted(backward.run());
  }

  static std::shared_ptr<AutogradNode> node_of(GraphTask& task, BackwardPrograms::Backward backward) {
    const std::shared_ptr<AutogradNode> whole(new WholeBackward(std::move(backward), task), torch::autograd::deleteNode);
    if (!task.exec_info_.empty()) {
      task.exec_info_[whole.get()].needed_ = true;  // else the engine runs no node that it does not know
    }
    return whole;
  }

  std::atomic<Engine*> before_ = nullptr;
};

}  // namespace

BackwardPrograms* set_backward_programs(BackwardPrograms* programs) {
  if (programs != nullptr) {
    BackwardEngine::install();
  }
  return std::exchange(current_programs, programs);
}

}  // namespace sconce
