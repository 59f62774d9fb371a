// Classes for training by plans, in torch.classes.sconce.
#include "executor/method_table.h"
#include "in_place/operands.h"
#include "in_place/optimizer_mirror.h"
#include "report/training_json.h"
#include "training/parallel/rank_group.h"

#include <sconce/compiled_backward.h>
#include <sconce/train_step.h>

#include <torch/csrc/autograd/autograd.h>
#include <torch/custom_class.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sconce {
namespace {

using c10::intrusive_ptr;

// The scopes of CompiledBackward that a thread has entered and not left.
thread_local std::vector<std::unique_ptr<CompiledBackward>> scopes;

struct BackwardCacheObject final : torch::CustomClassHolder {
  explicit BackwardCacheObject(const std::string& options) : cache(Options::from_json(options)) {}
  void enter() const { scopes.push_back(std::make_unique<CompiledBackward>(cache)); }
  static void leave() {
    TORCH_CHECK(!scopes.empty(), "this thread has entered no CompiledBackward");
    scopes.pop_back();
  }
  BackwardCache cache;
};

// What Python's engine does in `run_backward`, with the engine that serves C++: Python's own asks nobody else.
c10::List<std::optional<at::Tensor>> run_backward(const std::vector<at::Tensor>& roots,
                                                  const c10::List<std::optional<at::Tensor>>& gradients, bool keep_graph,
                                                  bool create_graph, const std::vector<at::Tensor>& inputs, bool accumulate,
                                                  bool allow_unused) {
  std::vector<at::Tensor> given;
  for (const std::optional<at::Tensor>& each : gradients) {
    given.push_back(each.value_or(at::Tensor()));
  }
  c10::List<std::optional<at::Tensor>> results;
  if (accumulate) {
    torch::autograd::backward(roots, given, keep_graph, create_graph, inputs);
  } else {
    for (const at::Tensor& each : torch::autograd::grad(roots, inputs, given, keep_graph, create_graph, allow_unused)) {
      results.push_back(each.defined() ? std::optional(each) : std::nullopt);
    }
  }
  return results;
}

struct OptimizerObject final : torch::CustomClassHolder {
  OptimizerObject(const std::string& name, const std::vector<std::vector<at::Tensor>>& groups, const std::string& options)
      : mirror(name, groups), captured(mirror.optimizer(), Options::from_json(options)) {}
  OptimizerMirror mirror;
  CapturedOptimizer captured;
};

OptimizerMirror::Numbers numbers_of(const c10::Dict<std::string, double>& options) {
  OptimizerMirror::Numbers numbers;
  for (const auto& option : options) {
    numbers.emplace(option.key(), option.value());
  }
  return numbers;
}

void set_state(OptimizerObject& object, int64_t parameter, int64_t steps,
               const c10::Dict<std::string, at::Tensor>& tensors) {
  OptimizerMirror::StateTensors state;
  for (const auto& each : tensors) {
    state.emplace(each.key(), each.value());
  }
  object.mirror.set_state(static_cast<size_t>(parameter), steps, state);
}

c10::Dict<std::string, at::Tensor> state_of(const OptimizerObject& object, int64_t parameter) {
  c10::Dict<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : object.mirror.state(static_cast<size_t>(parameter))) {
    state.insert(name, tensor);
  }
  return state;
}

// `loss`: a module, or the name of a function of the program that `any_module` belongs to.
TrainStep::GeneralLoss loss_of(const c10::IValue& loss, const c10::IValue& any_module, const Options& options) {
  if (loss.isString()) {
    torch::jit::Function& function = function_of(any_module, loss.toStringRef());
    return [program = MethodTable::program_of(function, options), schema = function.getSchema()](
               const c10::IValue& output, const std::vector<c10::IValue>& targets) {
      torch::jit::Stack stack{output};
      stack.insert(stack.end(), targets.begin(), targets.end());
      schema.checkAndNormalizeInputs(stack, {});
      program->run(stack);
      return stack.front().toTensor();
    };
  }
  return
      [module = accelerate(module_of(loss), options)](const c10::IValue& output, const std::vector<c10::IValue>& targets) {
        std::vector<c10::IValue> arguments{output};
        arguments.insert(arguments.end(), targets.begin(), targets.end());
        return module.forward(std::move(arguments)).toTensor();
      };
}

struct TrainStepObject final : torch::CustomClassHolder {
  TrainStepObject(const c10::IValue& module, const c10::IValue& loss, const c10::IValue& any_module,
                  intrusive_ptr<OptimizerObject> used, const Options& options, const TrainOptions& train_options)
      : optimizer(std::move(used)),
        step(std::in_place, accelerate(module_of(module), options), loss_of(loss, any_module, options),
             optimizer->mirror.optimizer(), train_options) {}
  const intrusive_ptr<OptimizerObject> optimizer;
  // Without a value once it is closed. Python closes it: in calls of methods the thread has no lock of the interpreter, for
  // which the threads of gloo may wait when they drop tensors, and a group of ranks waits for these threads when it ends.
  std::optional<TrainStep> step;
};

intrusive_ptr<TrainStepObject> make_train_step(const c10::IValue& module, const c10::IValue& loss,
                                               const c10::IValue& any_module, intrusive_ptr<OptimizerObject> optimizer,
                                               const std::string& options, std::optional<double> clip_norm,
                                               std::optional<double> clip_value, int64_t accumulate,
                                               std::optional<at::ScalarType> autocast, bool keep_gradients,
                                               const std::optional<std::string>& process_group, bool synchronize_batch_norm,
                                               const std::string& method, bool is_first) {
  TrainOptions train;
  train.method(method);
  if (clip_norm) {
    train.clip_norm(*clip_norm);
  }
  if (clip_value) {
    train.clip_value(*clip_value);
  }
  if (autocast) {
    train.autocast(*autocast);
  }
  TORCH_CHECK(accumulate > 0, "accumulate must be a positive number of calls, not ", accumulate);
  train.accumulate(static_cast<size_t>(accumulate)).keep_gradients(keep_gradients);
  train.synchronize_batch_norm(synchronize_batch_norm);
  if (process_group) {
    const DataParallel ranks(c10d::resolve_process_group(*process_group));
    ranks.group()->set_begins_alike(is_first);
    train.data_parallel(ranks);
  }
  return c10::make_intrusive<TrainStepObject>(module, loss, any_module, std::move(optimizer), Options::from_json(options),
                                              train);
}

}  // namespace
}  // namespace sconce

TORCH_LIBRARY_FRAGMENT(sconce, library) {
  using namespace sconce;
  using std::string;
  library.class_<BackwardCacheObject>("BackwardCache")
      .def(torch::init<const string&>())
      .def("enter", [](const intrusive_ptr<BackwardCacheObject>& self) { self->enter(); })
      .def("leave", [](const intrusive_ptr<BackwardCacheObject>& self) { self->leave(); })
      .def_static("run_backward", &run_backward)
      .def("explain",
           [](const intrusive_ptr<BackwardCacheObject>& self) { return json_text(json_of(self->cache.explain())); })
      .def("wait_for_compiles", [](const intrusive_ptr<BackwardCacheObject>& self) { self->cache.wait_for_compiles(); });
  library.class_<OptimizerObject>("Optimizer")
      .def(torch::init<const string&, const std::vector<std::vector<at::Tensor>>&, const string&>())
      .def("set_options",
           [](const intrusive_ptr<OptimizerObject>& self, int64_t group, const c10::Dict<string, double>& options) {
             self->mirror.set_options(static_cast<size_t>(group), numbers_of(options));
           })
      .def("set_state", [](const intrusive_ptr<OptimizerObject>& self, int64_t parameter, int64_t steps,
                           const c10::Dict<string, at::Tensor>& tensors) { set_state(*self, parameter, steps, tensors); })
      .def("clear_states", [](const intrusive_ptr<OptimizerObject>& self) { self->mirror.clear_states(); })
      .def("steps", [](const intrusive_ptr<OptimizerObject>& self) { return self->mirror.steps(); })
      .def("state", [](const intrusive_ptr<OptimizerObject>& self, int64_t parameter) { return state_of(*self, parameter); })
      .def("try_step", [](const intrusive_ptr<OptimizerObject>& self) { return self->captured.try_step(); })
      .def("explain",
           [](const intrusive_ptr<OptimizerObject>& self) { return json_text(json_of(self->captured.explain())); });
  library.class_<TrainStepObject>("TrainStep")
      .def(torch::init(&make_train_step))
      .def("run",
           [](const intrusive_ptr<TrainStepObject>& self, const std::vector<c10::IValue>& inputs,
              const std::vector<c10::IValue>& targets, std::optional<double> share) {
             return share ? (*self->step)(inputs, targets, *share) : (*self->step)(inputs, targets);
           })
      .def("join", [](const intrusive_ptr<TrainStepObject>& self) { return static_cast<int64_t>(self->step->join()); })
      .def("explain", [](const intrusive_ptr<TrainStepObject>& self) { return json_text(json_of(self->step->explain())); })
      .def("wait_for_compiles", [](const intrusive_ptr<TrainStepObject>& self) { self->step->wait_for_compiles(); })
      .def("close", [](const intrusive_ptr<TrainStepObject>& self) { self->step.reset(); });
}
