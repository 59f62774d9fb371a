// Module: a TorchScript module that sconce runs; `load` and `accelerate` make one.
#pragma once

#include <sconce/graph_executor.h>
#include <sconce/options.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <iosfwd>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace sconce {

using Kwargs = std::unordered_map<std::string, c10::IValue>;
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;  // "encoder.weight", and the tensor
using ExtraFiles = std::unordered_map<std::string, std::string>;       // name, content

class CloneOptions {
 public:
  // The clone has the same parameters, for streams that differ in their state; off by default. Then `to` and `load_state`
  // give the clone parameters of its own first.
  CloneOptions& share_weights(bool on);
  bool share_weights() const { return share_weights_; }
  // The clone runs the same plans, and compiles none; on by default. A frozen module's plans have its weights: they are
  // shared only with these.
  CloneOptions& share_plans(bool on);
  bool share_plans() const { return share_plans_; }

 private:
  bool share_weights_ = false;
  bool share_plans_ = true;
};

// A handle: a copy refers to the same module, with the same parameters and attributes.
//
// Threads: methods that write no attribute may run in any number of threads at the same time. Calls of a method that writes
// one (a counter, a cache) must take turns; a copy of the handle does not help, a `clone` does. `train`,
// `eval` and `to` must not run at the same time as a method. LibTorch has the same rules.
class Module {
 public:
  // No module, such as a new element of a map. Every function but assignment throws c10::Error.
  Module();
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
  // Returns name and type of each argument of a method, without the module. Throws c10::Error if there is no such method.
  std::vector<std::pair<std::string, c10::TypePtr>> input_types(const std::string& method) const;

  // Like `run_method`, on a thread of sconce's, in the caller's state (grad mode, autocast), with one thread inside
  // operators. The arguments are checked before it returns. The future has the result or the error.
  c10::intrusive_ptr<c10::ivalue::Future> run_async(const std::string& name, std::vector<c10::IValue> arguments,
                                                    const Kwargs& keyword_arguments = {}) const;

  // Calls a method with each list of arguments, some times, and waits for what these calls compile: later calls of such
  // kinds find it. The calls are for a clone and for copies of the arguments; the CPU's random generator is kept. With
  // gradients if grad mode is on. Throws what the model throws.
  void warm_up(const std::vector<std::vector<c10::IValue>>& calls, const std::string& method = "forward") const;
  // Returns what `method(name).explain().counters` has, but for refusals of what the method calls: quick enough for each
  // request of a server.
  Counters counters(const std::string& method) const;
  // Waits until the background thread has no compile of any method left.
  void wait_for_compiles() const;

  // Returns a copy with attributes, containers and buffers of its own, in submodules too.
  Module clone(const CloneOptions& options = {}) const;
  // Writes what `torch.jit.load` and `load` read. Throws c10::Error with one line if the file cannot be written.
  void save(const std::string& path, const ExtraFiles& extra_files = {}) const;
  void save(std::ostream& out, const ExtraFiles& extra_files = {}) const;

  std::vector<at::Tensor> parameters() const;
  NamedTensors named_parameters() const;
  NamedTensors named_buffers() const;
  // Returns an attribute of the module, or of a submodule: "encoder.state". Throws c10::Error if there is none.
  c10::IValue attr(const std::string& path) const;

  // These throw c10::Error if the module is frozen (Options::frozen) and one of its methods has been compiled: compiled
  // methods would not observe the change. `set_attr` may set what Options::preserve names.
  void train(bool on = true);
  void eval() { train(false); }
  void to(c10::Device device);
  void to(at::ScalarType dtype);  // of floating tensors
  // Throws c10::Error if there is no such attribute, or if it has another type.
  void set_attr(const std::string& path, const c10::IValue& value);
  // Copies the elements into parameters and buffers of these names. Throws c10::Error, and changes nothing, unless each has
  // exactly one, of equal sizes.
  void load_state(const NamedTensors& state);

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
  Impl& impl() const;
  std::shared_ptr<Impl> impl_;
};

// Loads the file that `torch.jit.script(model).save(path)` wrote. `extra_files`: names, which get the contents of the files
// that were saved with it. Throws c10::Error with one line that begins with the path.
Module load(const std::string& path, const Options& options = {}, ExtraFiles* extra_files = nullptr);
// The same from a stream, which is read to its end.
Module load(std::istream& in, const Options& options = {}, ExtraFiles* extra_files = nullptr);

// Wraps a module that is already in the program. The result shares its parameters and attributes.
Module accelerate(torch::jit::Module script_module, const Options& options = {});

}  // namespace sconce
