#include "in_place/accelerated_function.h"

#include "base/exception_message.h"
#include "base/opened_member.h"
#include "in_place/accelerated_functions.h"
#include "in_place/interpreter_errors.h"

#include <ATen/record_function.h>
#include <torch/csrc/jit/runtime/graph_executor_impl.h>
#include <torch/version.h>

#include <array>
#include <utility>

namespace sconce {

using torch::jit::ExecutionPlan;
using torch::jit::GraphExecutorImplBase;
using torch::jit::GraphFunction;
using LibTorchExecutor = torch::jit::GraphExecutor;

using Executors = std::array<std::optional<LibTorchExecutor>, 4>;  // by autocast state

// LibTorch has no way to set the executor of an autocast state but to enter the state, which compiles the function for it.
struct ExecutorsOfFunction {
  using Type = Executors GraphFunction::*;
  friend Type member(ExecutorsOfFunction);
};
struct MutexOfFunction {
  using Type = std::recursive_mutex GraphFunction::*;
  friend Type member(MutexOfFunction);
};
struct ImplOfExecutor {
  using Type = std::shared_ptr<GraphExecutorImplBase> LibTorchExecutor::*;
  friend Type member(ImplOfExecutor);
};
template struct Opened<ExecutorsOfFunction, &GraphFunction::executors_>;
template struct Opened<MutexOfFunction, &GraphFunction::compile_mutex>;
template struct Opened<ImplOfExecutor, &LibTorchExecutor::pImpl>;

namespace {

// A graph that takes `inputs` values, of which it returns the first.
std::shared_ptr<torch::jit::Graph> first_of(size_t inputs, const c10::TypePtr& type) {
  auto graph = std::make_shared<torch::jit::Graph>();
  for (size_t i = 0; i < inputs; ++i) {
    graph->addInput()->setType(type);
  }
  graph->registerOutput(inputs == 0 ? graph->insertConstant(c10::IValue()) : graph->inputs()[0]);
  return graph;
}

// LibTorch asks an executor for the plan of a call, with the call's operands on the stack, and then interprets the plan.
// This executor runs the call when it is asked, leaves the result on the stack, and returns a plan that returns its only
// input. So nothing of the call runs in LibTorch's interpreter, which would put a stack of its own in front of each error.
class InPlaceExecutor final : public GraphExecutorImplBase {
 public:
  InPlaceExecutor(std::shared_ptr<AcceleratedFunction> accelerated, GraphFunction& function,
                  std::optional<LibTorchExecutor> replaced)
      : GraphExecutorImplBase(first_of(function.num_inputs(), c10::AnyType::get()), function.name()),
        accelerated_(std::move(accelerated)),
        function_(function),
        replaced_(std::move(replaced)),
        result_plan_(first_of(1, function.graph()->outputs().at(0)->type()), function.name()) {}

  const ExecutionPlan& getPlanFor(torch::jit::Stack& stack, std::optional<size_t> bailouts) override {
    return accelerated_->run(stack) ? result_plan_ : libtorch().getPlanFor(stack, bailouts);
  }

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 12
  // LibTorch asks for this plan to show it, not to run it.
  const ExecutionPlan& getInputIndependentPlan() override { return libtorch().getInputIndependentPlan(); }
#endif

  torch::jit::GraphExecutorState getDebugState() override {
    torch::jit::GraphExecutorState state;
    state.graph = function_.graph().get();
    state.fallback = result_plan_;
    return state;
  }

  const std::shared_ptr<AcceleratedFunction>& accelerated() const { return accelerated_; }
  const std::optional<LibTorchExecutor>& replaced() const { return replaced_; }

 private:
  // What runs the function if sconce refuses it. Made, as LibTorch makes it, in the first call of the autocast state.
  LibTorchExecutor& libtorch() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!replaced_) {
      replaced_.emplace(function_.optimized_graph(), function_.name());
    }
    return *replaced_;
  }

  const std::shared_ptr<AcceleratedFunction> accelerated_;
  GraphFunction& function_;  // owns this
  std::mutex mutex_;
  std::optional<LibTorchExecutor> replaced_;
  const ExecutionPlan result_plan_;
};

std::shared_ptr<InPlaceExecutor> in_place(const std::optional<LibTorchExecutor>& executor) {
  return executor ? std::dynamic_pointer_cast<InPlaceExecutor>((*executor).*member(ImplOfExecutor())) : nullptr;
}

}  // namespace

AcceleratedFunction::AcceleratedFunction(const GraphFunction& function, MakeProgram make_program)
    : name_(function.name()),
      qualified_name_(function.qualname().qualifiedName()),
      inputs_(function.num_inputs()),
      is_immortal_(AcceleratedFunctions::get().is_immortal(function)),
      make_program_(std::move(make_program)) {}

void AcceleratedFunction::install(GraphFunction& function, MakeProgram make_program) {
  function.ensure_defined();
  function.check_single_output();
  remove(function);
  const auto accelerated = std::make_shared<AcceleratedFunction>(function, std::move(make_program));
  AcceleratedFunctions::get().add(accelerated);
  const std::lock_guard<std::recursive_mutex> lock(function.*member(MutexOfFunction()));
  for (std::optional<LibTorchExecutor>& executor : function.*member(ExecutorsOfFunction())) {
    auto impl = std::make_shared<InPlaceExecutor>(accelerated, function, executor);
    executor.emplace();
    (*executor).*member(ImplOfExecutor()) = std::move(impl);
  }
}

std::shared_ptr<AcceleratedFunction> AcceleratedFunction::of(GraphFunction& function) {
  const std::lock_guard<std::recursive_mutex> lock(function.*member(MutexOfFunction()));
  const auto executor = in_place((function.*member(ExecutorsOfFunction()))[0]);
  return executor != nullptr ? executor->accelerated() : nullptr;
}

bool AcceleratedFunction::remove(GraphFunction& function) {
  const std::lock_guard<std::recursive_mutex> lock(function.*member(MutexOfFunction()));
  bool is_removed = false;
  for (std::optional<LibTorchExecutor>& executor : function.*member(ExecutorsOfFunction())) {
    if (const auto impl = in_place(executor)) {
      executor = impl->replaced();
      is_removed = true;
    }
  }
  return is_removed;
}

bool AcceleratedFunction::run(torch::jit::Stack& stack) {
  GraphExecutor::Impl* program = ready_.load(std::memory_order_acquire);
  if (program == nullptr) [[unlikely]] {
    program = program_for(stack);
    if (program == nullptr) {
      calls_of_libtorch_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  }
  note_module(stack);
  RECORD_TORCHSCRIPT_FUNCTION(name_, torch::jit::last(stack, inputs_));
  with_interpreter_errors(name_, [&] { program->run(stack); });
  return true;
}

GraphExecutor::Impl* AcceleratedFunction::program_for(const torch::jit::Stack& stack) {
  if (is_refused_.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  AcceleratedFunctions::get().forget_destroyed();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (program_ == nullptr && refusal_.empty()) {
    try {
      program_ = make_program_(inputs_ == 0 ? nullptr : &stack[stack.size() - inputs_]);
      ready_.store(program_.get(), std::memory_order_release);
    } catch (const c10::Error& refused) {
      refusal_ = plain_message(refused);
      is_refused_ = true;
    }
  }
  return program_.get();
}

void AcceleratedFunction::note_module(const torch::jit::Stack& stack) {
  const c10::IValue* const first = inputs_ == 0 || !is_immortal_ ? nullptr : &stack[stack.size() - inputs_];
  if (first == nullptr || !first->isObject() || &first->toObjectRef() == last_module_.load(std::memory_order_relaxed)) {
    return;
  }
  const c10::intrusive_ptr<c10::ivalue::Object> module = first->toObject();
  const std::lock_guard<std::mutex> lock(mutex_);
  modules_.try_emplace(module.get(), module);
  if (modules_.size() > most_modules_) {
    forget_destroyed_modules();
    most_modules_ = 2 * modules_.size();
  }
  last_module_.store(module.get(), std::memory_order_relaxed);
}

void AcceleratedFunction::forget_destroyed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  forget_destroyed_modules();
}

void AcceleratedFunction::forget_destroyed_modules() {
  DestroyedModules destroyed;
  for (const auto& [module, weak] : modules_) {
    if (weak.expired()) {
      destroyed.insert(module);
    }
  }
  if (!destroyed.empty() && program_ != nullptr) {
    program_->forget(destroyed);
    program_->drop_frames();
    std::erase_if(modules_, [&](const auto& each) { return destroyed.contains(each.first); });
    last_module_.store(nullptr, std::memory_order_relaxed);
  }
}

std::shared_ptr<GraphExecutor::Impl> AcceleratedFunction::program() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return program_;
}

uint64_t AcceleratedFunction::calls() const {
  const auto own = program();
  return own != nullptr ? own->calls() : calls_of_libtorch_.load(std::memory_order_relaxed);
}

std::string AcceleratedFunction::refusal() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return refusal_;
}

}  // namespace sconce
