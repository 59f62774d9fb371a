#include <sconce/module.h>

#include "base/assert.h"
#include "base/exception_message.h"
#include "base/outside_inference_mode.h"
#include "base/paged_memory.h"
#include "base/tensors_in.h"
#include "executor/executor_impl.h"
#include "ir/dump.h"
#include "kernels/packed/packed_weights.h"
#include "load/load_module.h"
#include "passes/freeze/freeze.h"
#include "plan/device/device.h"

#include <torch/csrc/jit/api/module.h>

#include <atomic>
#include <mutex>

namespace sconce {
namespace {

// Returns which arguments may be any tensor.
std::vector<bool> arguments_for_tensors(const c10::FunctionSchema& schema) {
  std::vector<bool> takes_tensor;
  for (const c10::Argument& argument : schema.arguments()) {
    takes_tensor.push_back(c10::TensorType::get()->isSubtypeOf(*argument.type()));
  }
  return takes_tensor;
}

}  // namespace

class Module::Impl {
 public:
  Impl(torch::jit::Module script_module, const Options& options)
      : script_module_(std::move(script_module)),
        options_(options),
        has_hooks_(!script_module_.type()->getForwardPreHooks().empty() ||
                   !script_module_.type()->getForwardHooks().empty()) {}

  struct Method {
    std::string name;
    const c10::FunctionSchema& schema;  // the function's, which the module keeps alive
    std::unique_ptr<GraphExecutor> executor;
    const Method* next;
    std::vector<bool> takes_tensor = arguments_for_tensors(schema);

    // Returns whether every argument is given, and is a tensor where any tensor may be. LibTorch's check asks each tensor
    // for its sizes where an argument has no annotation.
    bool takes(const std::vector<c10::IValue>& arguments, const Kwargs& keyword_arguments) const {
      bool takes = keyword_arguments.empty() && arguments.size() == takes_tensor.size();
      for (size_t i = 1; takes && i < arguments.size(); ++i) {  // the first one is the module
        takes = takes_tensor[i] && arguments[i].isTensor();
      }
      return takes;
    }

    // LibTorch's check looks for missing arguments first, so that a misspelled one would be missing, and counts the module.
    void expect_names_and_count(const std::vector<c10::IValue>& arguments, const Kwargs& keyword_arguments) const {
      TORCH_CHECK(arguments.size() <= takes_tensor.size(), "Expected at most ", takes_tensor.size() - 1,
                  " argument(s) for operator '", name, "', but received ", arguments.size() - 1,
                  " argument(s). Declaration: ", schema);
      for (const auto& [keyword, value] : keyword_arguments) {
        TORCH_CHECK(schema.argumentIndexWithName(keyword), "Unknown keyword argument '", keyword, "' for operator '", name,
                    "'. Schema: ", schema);
      }
    }
  };

  // Methods are found without a lock: they live as long as the module, in a list that only grows.
  const Method& method(const std::string& name) {
    if (const Method* made = find(name)) {
      return *made;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Method* made = find(name)) {
      return *made;
    }
    methods_.push_back(make_method(name));
    first_.store(methods_.back().get(), std::memory_order_release);
    return *methods_.back();
  }

  // Returns whether the module or a submodule is in training mode.
  bool is_training() const {
    bool found = false;
    for (const torch::jit::Module& each : script_module_.modules()) {
      found = found || (each.hasattr("training") && each.attr("training").isBool() && each.attr("training").toBool());
    }
    return found;
  }

  // Compiled methods of a frozen module do not observe changes of attributes.
  void expect_not_frozen(const char* action, const char* remedy) {
    const std::lock_guard<std::mutex> lock(mutex_);
    without_frames(
        [&] { TORCH_CHECK(!constants_, action, ": the module is frozen, its methods would not see it; ", remedy); });
  }

  // Whoever has the weights may write them at any time, also while pages leave.
  const torch::jit::Module& hand_out() const {
    for (const at::Tensor& tensor : tensors_in(script_module_._ivalue())) {
      PagedMemory* const memory = tensor.has_storage() ? PagedMemory::of(tensor.storage().data_ptr()) : nullptr;
      if (memory != nullptr) {
        memory->keep();
      }
    }
    return script_module_;
  }

  torch::jit::Module script_module_;
  const Options options_;
  const bool has_hooks_;

 private:
  const Method* find(const std::string& name) const {
    const Method* method = first_.load(std::memory_order_acquire);
    while (method != nullptr && method->name != name) {
      method = method->next;
    }
    return method;
  }

  std::unique_ptr<Method> make_method(const std::string& name) {
    const c10::ClassTypePtr type = script_module_.type();
    torch::jit::Function* function = type->findMethod(name);
    function = function != nullptr ? function : type->findHook(name);  // methods and hooks have no name in common
    if (function == nullptr) {
      std::string known;
      for (const auto& each : script_module_.get_methods()) {
        known += (known.empty() ? "" : ", ") + each.name();
      }
      TORCH_CHECK(false, "the module has no method '", name, "'; it has: ", known);
    }
    const InternalErrorContext context("loading of " + name);
    std::unique_ptr<Graph> graph =
        callees_->functions().graph_of(*function).value_or_throw("sconce cannot run " + name)->clone();
    dump(DumpPoint::kLoad, name, *graph);
    CompileSettings settings(options_);
    settings.name = name;
    settings.callees = callees_.get();
    settings.functions = &callees_->functions();
    settings.constants = options_.frozen() ? &find_constants() : nullptr;
    CompiledMethod compiled = compile_method(std::move(graph), settings).value_or_throw("sconce cannot run " + name);
    std::unique_ptr<GraphExecutor> executor(new GraphExecutor(
        std::make_unique<GraphExecutor::Impl>(std::move(compiled), name, options_, script_module_._ivalue(), callees_)));
    return std::unique_ptr<Method>(new Method{name, function->getSchema(), std::move(executor), first_.load()});
  }

  const ModuleConstants& find_constants() {
    if (!constants_) {
      constants_ = ModuleConstants::find(script_module_._ivalue(), options_.preserved(), callees_->functions())
                       .value_or_throw("sconce cannot freeze the module");
    }
    return *constants_;
  }

  std::mutex mutex_;  // held while a method is made
  const std::shared_ptr<CalleeTable> callees_ = CalleeTable::make(options_, script_module_._ivalue());
  std::optional<ModuleConstants> constants_;  // of a frozen module, after its first method was compiled
  std::vector<std::unique_ptr<Method>> methods_;
  std::atomic<const Method*> first_{nullptr};
};

c10::IValue Module::run_method(const std::string& name, std::vector<c10::IValue> arguments,
                               const Kwargs& keyword_arguments) const {
  return without_frames([&] {
    const Impl::Method& method = impl_->method(name);
    arguments.insert(arguments.begin(), impl_->script_module_._ivalue());
    if (!method.takes(arguments, keyword_arguments)) {
      // Checks types, fills in defaults, and reports errors in LibTorch's words.
      method.expect_names_and_count(arguments, keyword_arguments);
      method.schema.checkAndNormalizeInputs(arguments, keyword_arguments);
    }
    method.executor->run_with_self(arguments);
    return std::move(arguments.front());
  });
}

// Like torch::jit::Module::operator(): a pre-hook may replace the arguments, a hook the result.
c10::IValue Module::forward(std::vector<c10::IValue> arguments, const Kwargs& keyword_arguments) const {
  if (!impl_->has_hooks_) {
    return run_method("forward", std::move(arguments), keyword_arguments);
  }
  const c10::ClassTypePtr type = impl_->script_module_.type();
  for (const torch::jit::Function* hook : type->getForwardPreHooks()) {
    const c10::IValue replaced = run_method(hook->name(), {c10::ivalue::Tuple::create(arguments)});
    if (replaced.isTuple()) {
      arguments = replaced.toTupleRef().elements().vec();
    } else if (!replaced.isNone()) {
      arguments = {replaced};
    }
  }
  c10::IValue result = run_method("forward", arguments, keyword_arguments);
  for (const torch::jit::Function* hook : type->getForwardHooks()) {
    c10::IValue replaced = run_method(hook->name(), {c10::ivalue::Tuple::create(arguments), result});
    if (!replaced.isNone()) {
      result = std::move(replaced);
    }
  }
  return result;
}

GraphExecutor& Module::method(const std::string& name) const {
  return without_frames([&]() -> GraphExecutor& { return *impl_->method(name).executor; });
}

bool Module::has_method(const std::string& name) const { return impl_->script_module_.find_method(name).has_value(); }

std::vector<std::string> Module::method_names() const {
  std::vector<std::string> names;
  for (const auto& method : impl_->script_module_.get_methods()) {
    names.push_back(method.name());
  }
  return names;
}

std::vector<at::Tensor> Module::parameters() const {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& parameter : impl_->hand_out().parameters()) {
    tensors.push_back(parameter);
  }
  return tensors;
}

void Module::train(bool on) {
  if (on || impl_->is_training()) {
    impl_->expect_not_frozen(on ? "train()" : "eval()", "load it again, without Options::frozen if it is to be trained");
  }
  impl_->script_module_.train(on);
}

void Module::to(c10::Device device) {
  impl_->expect_not_frozen("to()", "call it before the first method, or load the module with Options::device");
  make_available(device);
  const OutsideInferenceMode normal;
  impl_->script_module_.to(device);
}

void Module::weights_changed() {
  impl_->expect_not_frozen("weights_changed()", "load it again");
  note_weights_changed();
}

const torch::jit::Module& Module::script_module() const { return impl_->hand_out(); }
const Options& Module::options() const { return impl_->options_; }

Module accelerate(torch::jit::Module script_module, const Options& options) {
  return Module(std::make_shared<Module::Impl>(std::move(script_module), options));
}

Module load(const std::string& path, const Options& options) {
  return without_frames([&] {
    if (options.device()) {
      make_available(*options.device());
    }
    return accelerate(load_script_module(path, options.device(), options.frozen() && options.page_out_weights()), options);
  });
}

}  // namespace sconce
