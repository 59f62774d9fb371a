#include <sconce/module.h>

#include "base/deep_copy.h"
#include "base/exception_message.h"
#include "base/outside_inference_mode.h"
#include "base/paged_memory.h"
#include "base/tensors_in.h"
#include "executor/method_table.h"
#include "executor/module_copy.h"
#include "kernels/packed/packed_weights.h"
#include "load/load_module.h"
#include "plan/device/device.h"
#include "plan/fork_pool.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <map>
#include <mutex>
#include <unordered_map>

namespace sconce {
namespace {

// Returns the module that has the attribute, and its name there: "encoder" and "state" of "encoder.state".
std::pair<torch::jit::Module, std::string> owner_of(torch::jit::Module module, const std::string& path) {
  size_t begin = 0;
  for (size_t end = path.find('.'); end != std::string::npos; begin = end + 1, end = path.find('.', begin)) {
    const std::string name = path.substr(begin, end - begin);
    TORCH_CHECK(module.hasattr(name) && module.attr(name).isModule(), "the module has no submodule '", path.substr(0, end),
                "'");
    module = module.attr(name).toModule();
  }
  const std::string name = path.substr(begin);
  TORCH_CHECK(module.hasattr(name), "the module has no attribute '", path, "'");
  return {module, name};
}

}  // namespace

class Module::Impl {
 public:
  Impl(torch::jit::Module script_module, std::shared_ptr<MethodTable> methods, bool shares_weights = false)
      : shares_weights_(shares_weights),
        methods_(std::move(methods)),
        script_module_(std::move(script_module)),
        has_hooks_(!script_module_.type()->getForwardPreHooks().empty() ||
                   !script_module_.type()->getForwardHooks().empty()) {}

  const MethodTable::Method& method(const std::string& name) { return methods_->method(name, script_module_._ivalue()); }

  GraphExecutor& executor(const std::string& name) {
    const MethodTable::Method& found = method(name);
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<GraphExecutor>& executor = executors_[&found];
    if (executor == nullptr) {
      executor.reset(new GraphExecutor(found.program, script_module_._ivalue()));
    }
    return *executor;
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
    without_frames([&] {
      TORCH_CHECK(!methods_->has_constants(), action, ": the module is frozen, its methods would not see it; ", remedy);
    });
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

  // Before the parameters are written, other than by the program's own hand.
  void keep_weights_apart() {
    if (shares_weights_.exchange(false)) {
      copy_parameters(script_module_);
    }
  }

  std::atomic<bool> shares_weights_;  // with the module that this one was cloned from
  const std::shared_ptr<MethodTable> methods_;
  torch::jit::Module script_module_;
  const bool has_hooks_;

 private:
  std::mutex mutex_;
  std::unordered_map<const MethodTable::Method*, std::unique_ptr<GraphExecutor>> executors_;  // those that were asked for
};

CloneOptions& CloneOptions::share_weights(bool on) {
  share_weights_ = on;
  return *this;
}
CloneOptions& CloneOptions::share_plans(bool on) {
  share_plans_ = on;
  return *this;
}

Module::Module() = default;

Module::Impl& Module::impl() const {
  TORCH_CHECK(impl_ != nullptr, "the sconce::Module is empty: sconce::load and sconce::accelerate make one");
  return *impl_;
}

c10::IValue Module::run_method(const std::string& name, std::vector<c10::IValue> arguments,
                               const Kwargs& keyword_arguments) const {
  return without_frames([&] {
    Impl& module = impl();
    const MethodTable::Method& method = module.method(name);
    arguments.insert(arguments.begin(), module.script_module_._ivalue());
    method.check(arguments, keyword_arguments);
    RECORD_TORCHSCRIPT_FUNCTION(name, arguments);
    method.program->run(arguments);
    return std::move(arguments.front());
  });
}

c10::intrusive_ptr<c10::ivalue::Future> Module::run_async(const std::string& name, std::vector<c10::IValue> arguments,
                                                          const Kwargs& keyword_arguments) const {
  return without_frames([&] {
    const MethodTable::Method& method = impl().method(name);
    arguments.insert(arguments.begin(), impl().script_module_._ivalue());
    method.check(arguments, keyword_arguments);
    return fork(method.schema.returns().at(0).type(), [kept = impl_, &method, arguments]() mutable {
      method.program->run(arguments);
      return std::move(arguments.front());
    });
  });
}

void Module::warm_up(const std::vector<std::vector<c10::IValue>>& calls, const std::string& method) const {
  without_frames([&] {
    const at::Generator& generator = at::detail::getDefaultCPUGenerator();
    const at::Generator kept = generator.clone();
    const auto restore = c10::make_scope_exit([&] { at::Generator(generator).set_state(kept.get_state()); });
    const Module scratch = clone(CloneOptions().share_weights(true));
    for (const std::vector<c10::IValue>& arguments : calls) {
      for (int part = 0; part < 2; ++part) {
        for (int call = 0; call < 3; ++call) {
          DeepCopy copier;
          std::vector<c10::IValue> copies;
          for (const c10::IValue& argument : arguments) {
            copies.push_back(copier.copy(argument));
          }
          scratch.run_method(method, std::move(copies));
        }
        wait_for_compiles();
      }
    }
    scratch.impl().methods_->forget({scratch.impl().script_module_._ivalue().get()});
  });
}

Counters Module::counters(const std::string& method) const {
  return without_frames([&] { return impl().method(method).program->counters(); });
}

void Module::wait_for_compiles() const { impl().methods_->wait_for_compiles(); }

Module Module::clone(const CloneOptions& options) const {
  return without_frames([&] {
    const bool shares_weights = options.share_weights();
    torch::jit::Module copy = copy_of(impl().hand_out(), shares_weights);
    const bool may_share_plans = shares_weights || !this->options().frozen();
    auto methods = options.share_plans() && may_share_plans ? impl().methods_
                                                            : std::make_shared<MethodTable>(copy._ivalue(), this->options());
    return Module(std::make_shared<Impl>(std::move(copy), std::move(methods), shares_weights));
  });
}

void Module::save(const std::string& path, const ExtraFiles& extra_files) const {
  without_frames([&] {
    std::ofstream file(path, std::ios::binary);
    TORCH_CHECK(file, path, ": cannot be written: ", std::strerror(errno));
    errno = 0;
    try {
      save(file, extra_files);
      file.close();
    } catch (const c10::Error&) {
      file.setstate(std::ios::badbit);
    }
    if (!file) {
      const std::string reason = std::strerror(errno != 0 ? errno : EIO);
      std::error_code ignored;
      if (std::filesystem::is_regular_file(path, ignored)) {
        std::filesystem::remove(path, ignored);  // a part of it would be no model
      }
      TORCH_CHECK(false, path, ": cannot be written: ", reason);
    }
  });
}

void Module::save(std::ostream& out, const ExtraFiles& extra_files) const {
  without_frames([&] {
    // LibTorch's writer throws from its destructor when a write fails, which ends the process. So this reports success, and
    // checks the stream afterward.
    torch::jit::ExportModule(
        impl().hand_out(),
        [&](const void* bytes, size_t count) {
          if (out) {
            out.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
          }
          return count;
        },
        extra_files);
    out.flush();
    TORCH_CHECK(out, "the stream cannot be written: ", std::strerror(errno));
  });
}

// Like torch::jit::Module::operator(): a pre-hook may replace the arguments, a hook the result.
c10::IValue Module::forward(std::vector<c10::IValue> arguments, const Kwargs& keyword_arguments) const {
  if (!impl().has_hooks_) {
    return run_method("forward", std::move(arguments), keyword_arguments);
  }
  const c10::ClassTypePtr type = impl().script_module_.type();
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
  return without_frames([&]() -> GraphExecutor& { return impl().executor(name); });
}

std::vector<std::pair<std::string, c10::TypePtr>> Module::input_types(const std::string& method) const {
  return without_frames([&] {
    std::vector<std::pair<std::string, c10::TypePtr>> types;
    const auto& arguments = impl().method(method).schema.arguments();
    for (auto argument = arguments.begin() + 1; argument != arguments.end(); ++argument) {  // the first one is the module
      types.emplace_back(argument->name(), argument->type());
    }
    return types;
  });
}

bool Module::has_method(const std::string& name) const { return impl().script_module_.find_method(name).has_value(); }

std::vector<std::string> Module::method_names() const {
  std::vector<std::string> names;
  for (const auto& method : impl().script_module_.get_methods()) {
    names.push_back(method.name());
  }
  return names;
}

std::vector<at::Tensor> Module::parameters() const {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& parameter : impl().hand_out().parameters()) {
    tensors.push_back(parameter);
  }
  return tensors;
}

NamedTensors Module::named_parameters() const {
  NamedTensors named;
  for (const auto& parameter : impl().hand_out().named_parameters()) {
    named.emplace_back(parameter.name, parameter.value);
  }
  return named;
}

NamedTensors Module::named_buffers() const {
  NamedTensors named;
  for (const auto& buffer : impl().hand_out().named_buffers()) {
    named.emplace_back(buffer.name, buffer.value);
  }
  return named;
}

c10::IValue Module::attr(const std::string& path) const {
  return without_frames([&] {
    const auto [owner, name] = owner_of(impl().hand_out(), path);
    return owner.attr(name);
  });
}

void Module::set_attr(const std::string& path, const c10::IValue& value) {
  without_frames([&] {
    const auto [owner, name] = owner_of(impl().script_module_, path);
    const auto& preserved = options().preserved();
    if (std::ranges::find(preserved, path) == preserved.end()) {
      impl().expect_not_frozen(("set_attr(\"" + path + "\")").c_str(),
                               "name it in Options::preserve, or load it without frozen");
    }
    const c10::TypePtr type = owner.type()->getAttribute(name);
    TORCH_CHECK(value.type()->isSubtypeOf(*type), "the attribute '", path, "' has type ", type->repr_str(), ", not ",
                value.type()->repr_str());
    torch::jit::Module(owner).setattr(name, value);
  });
}

void Module::load_state(const NamedTensors& state) {
  without_frames([&] {
    impl().expect_not_frozen("load_state()", "load it again, without Options::frozen");
    const auto named_tensors = [&] {
      std::map<std::string, at::Tensor> named;
      for (const NamedTensors& tensors : {named_parameters(), named_buffers()}) {
        named.insert(tensors.begin(), tensors.end());
      }
      return named;
    };
    const std::map<std::string, at::Tensor> own = named_tensors();
    std::map<std::string, at::Tensor> given;
    for (const auto& [name, tensor] : state) {
      TORCH_CHECK(given.emplace(name, tensor).second, "load_state: '", name, "' stands there twice");
      const auto found = own.find(name);
      TORCH_CHECK(found != own.end(), "load_state: the module has no parameter or buffer '", name, "'");
      TORCH_CHECK(found->second.sizes() == tensor.sizes(), "load_state: '", name, "' has sizes ", tensor.sizes(),
                  ", the module's has ", found->second.sizes());
    }
    for (const auto& [name, tensor] : own) {
      TORCH_CHECK(given.contains(name), "load_state: the state has no '", name, "'; it takes all ", own.size(),
                  " of the module's parameters and buffers, set_attr() single ones");
    }
    impl().keep_weights_apart();
    const c10::AutoGradMode no_grad(false);
    for (const auto& [name, tensor] : named_tensors()) {
      tensor.copy_(given.at(name));
    }
  });
}

void Module::train(bool on) {
  if (on || impl().is_training()) {
    impl().expect_not_frozen(on ? "train()" : "eval()", "load it again, without Options::frozen if it is to be trained");
  }
  impl().script_module_.train(on);
}

void Module::to(c10::Device device) {
  impl().expect_not_frozen("to()", "call it before the first method, or load the module with Options::device");
  make_available(device);
  impl().keep_weights_apart();
  const OutsideInferenceMode normal;
  impl().script_module_.to(device);
}

void Module::to(at::ScalarType dtype) {
  impl().expect_not_frozen("to()", "call it before the first method");
  impl().keep_weights_apart();
  const OutsideInferenceMode normal;
  impl().script_module_.to(dtype);
}

void Module::weights_changed() {
  impl().expect_not_frozen("weights_changed()", "load it again");
  note_weights_changed();
}

const torch::jit::Module& Module::script_module() const { return impl().hand_out(); }
const Options& Module::options() const { return impl().methods_->options(); }

Module accelerate(torch::jit::Module script_module, const Options& options) {
  auto methods = std::make_shared<MethodTable>(script_module._ivalue(), options);
  return Module(std::make_shared<Module::Impl>(std::move(script_module), std::move(methods)));
}

Module load(const std::string& path, const Options& options, ExtraFiles* extra_files) {
  return without_frames([&] {
    if (options.device()) {
      make_available(*options.device());
    }
    const bool pages = options.frozen() && options.page_out_weights();
    return accelerate(load_script_module(path, options.device(), pages, extra_files), options);
  });
}

// The archive's reader jumps: it gets a file in memory.
Module load(std::istream& in, const Options& options, ExtraFiles* extra_files) {
  return without_frames([&] {
    const int memory = memfd_create("sconce", MFD_CLOEXEC);
    TORCH_CHECK(memory >= 0, "the stream: no memory for it: ", std::strerror(errno));
    const auto close_it = c10::make_scope_exit([&] { close(memory); });
    const std::string path = "/proc/self/fd/" + std::to_string(memory);
    std::ofstream copy(path, std::ios::binary);
    if (in.peek() != std::istream::traits_type::eof()) {
      copy << in.rdbuf();
    }
    copy.close();
    TORCH_CHECK(copy && !in.bad(), "the stream: cannot be read: ", std::strerror(errno));
    try {
      return load(path, options, extra_files);
    } catch (const c10::Error& failure) {
      std::string message = failure.msg();
      if (message.starts_with(path)) {
        message.replace(0, path.size(), "the stream");
      }
      throw c10::Error(message);
    }
  });
}

}  // namespace sconce
