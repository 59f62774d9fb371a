// Module: a TorchScript module that sconce runs; `load` and `accelerate` make one.
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

// A handle: a copy refers to the same module, with the same parameters and attributes.
//
// Threads: methods that write no attribute may run in any number of threads at the same time. Calls of a method that writes
// one (a counter, a cache) must take turns; a copy of the handle does not help, a second `load` of the file does. `train`,
// `eval` and `to` must not run at the same time as a method. LibTorch has the same rules.
class Module {
 public:
  // A move copies, so that a moved-from handle still refers to its module.
  Module(const Module&) = default;
  Module& operator=(const Module&) = default;
  ~Module() = default;

  // Calls the method "forward", or the one named. Checks the arguments against the method's schema, fills in defaults, and
  // runs the module's own hooks before and after `forward`. (Hooks of submodules always run.) Throws c10::Error if an
  // argument does not fit the schema, and whatever the model throws.
  c10::IValue forward(std::vector<c10::IValue> arguments, const Kwargs& keyword_arguments = {}) const;
  c10::IValue run_method(const std::string& name, std::vector<c10::IValue> arguments,
                         const Kwargs& keyword_arguments = {}) const;

  // Returns the executor of a method, which is compiled on the first request and valid as long as the module.
  //
  // Throws c10::Error if
  //   - the module has no such method; the message lists the methods it has;
  //   - sconce refuses the method, for example because a module to be frozen is in training mode; the message says why.
  GraphExecutor& method(const std::string& name) const;
  bool has_method(const std::string& name) const;
  std::vector<std::string> method_names() const;

  std::vector<at::Tensor> parameters() const;
  // These three throw c10::Error if the module is frozen (Options::frozen) and one of its methods has been compiled:
  // compiled methods would not observe the change.
  void train(bool on = true);
  void eval() { train(false); }
  void to(c10::Device device);

  // Tells that the program has written parameters or buffers in a way that LibTorch does not count: through `data()` or a
  // raw pointer. The next calls compare all elements with the packed copies (Options::pack_weights). Without it, such writes
  // are seen after some calls. Optimizers, and writes through the tensor itself, need no telling. Throws c10::Error as
  // `train` does. Any thread may call it.
  void weights_changed();

  // Returns the LibTorch module that this one runs. The two share parameters and attributes.
  const torch::jit::Module& script_module() const;
  const Options& options() const;

 private:
  friend Module accelerate(torch::jit::Module script_module, const Options& options);
  class Impl;
  explicit Module(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Loads the file that `torch.jit.script(model).save(path)` wrote. Throws c10::Error with one line that begins with the path.
Module load(const std::string& path, const Options& options = {});

// Wraps a module that is already in the program. The result shares its parameters and attributes.
Module accelerate(torch::jit::Module script_module, const Options& options = {});

}  // namespace sconce
