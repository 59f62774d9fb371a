// A loaded TorchScript module that sconce runs.
#pragma once

#include <sconce/graph_executor.h>
#include <sconce/options.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace sconce {

using Kwargs = std::unordered_map<std::string, c10::IValue>;

// A handle: copies are the same module. Methods may be called from any number of threads as long as they leave the
// module's attributes alone; `train`, `eval` and `to` must not run beside them. Both as in LibTorch.
class Module {
 public:
  // Moving copies: no handle is ever without a module.
  Module(const Module&) = default;
  Module& operator=(const Module&) = default;
  ~Module() = default;

  // As `method("forward")` with the arguments checked against the method's schema, defaults filled in, and with the hooks
  // that the module itself has (those of its submodules always run) before and behind it. Throws c10::Error on arguments
  // that do not fit, and what the model throws.
  c10::IValue forward(std::vector<c10::IValue> arguments, const Kwargs& keyword_arguments = {}) const;
  c10::IValue run_method(const std::string& name, std::vector<c10::IValue> arguments,
                         const Kwargs& keyword_arguments = {}) const;

  // The executor of the method, made when first asked for and alive as long as the module. Throws c10::Error when the
  // module has no such method (the message names those it has) or sconce refuses it (the message says why): a module that
  // is to be frozen and is in training mode, for example.
  GraphExecutor& method(const std::string& name) const;
  bool has_method(const std::string& name) const;
  std::vector<std::string> method_names() const;

  std::vector<at::Tensor> parameters() const;
  // Throw c10::Error when the module is frozen (Options::frozen) and a method was asked for: it would not be seen.
  void train(bool on = true);
  void eval() { train(false); }
  void to(c10::Device device);

  // LibTorch's own module behind this one; it shares the parameters and attributes.
  const torch::jit::Module& script_module() const;
  const Options& options() const;

 private:
  friend Module accelerate(torch::jit::Module script_module, const Options& options);
  class Impl;
  explicit Module(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Reads what `torch.jit.script(model).save(path)` wrote. Throws c10::Error with one line that begins with the path.
Module load(const std::string& path, const Options& options = {});

// Runs a module that is already in the program.
Module accelerate(torch::jit::Module script_module, const Options& options = {});

}  // namespace sconce
