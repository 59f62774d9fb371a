// Settings of one loaded module. There are no process-wide settings.
#pragma once

#include <sconce/pass_pipeline.h>

#include <c10/core/Device.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// When plans for a single argument spec are compiled. Until there is one, the generic plan serves the spec.
//   kBackground  on a thread of sconce's, after the second call of the spec; no call waits for it
//   kBlocking    in the first call of the spec, which waits for it
//   kNever       not at all
enum class CompileMode { kBackground, kBlocking, kNever };

class Options {
 public:
  // Reads {"exact": true, "compile": "never"}: setters, `pass_plugins` (paths), `disabled_passes`. An empty text has no
  // field. Throws c10::Error with one line that names the field, or the line and the column.
  static Options from_json(const std::string& text);

  // Sets the device of the module's tensors: "cpu", "cuda", "cuda:1". Without it they stay on the device they were saved
  // from. Throws c10::Error if the name is not a device. For a CUDA device, `load` opens LibTorch's CUDA library. A program
  // that does not link this library must call `load` before it uses LibTorch otherwise (rule R9).
  Options& device(const std::string& name);
  const std::optional<c10::Device>& device() const { return device_; }

  // Turns optimization on or off; on by default. When off, every call runs a generic plan made by the required passes alone.
  // Nothing is specialized, and no call counts as a miss of the plan cache.
  Options& optimize(bool on) { return set(optimize_, on); }
  bool optimize() const { return optimize_; }

  // Computes the bits that LibTorch computes operator by operator on this machine, with as many threads and operands aligned
  // alike (16 bytes). By default exponentials, roots, sums, recurrent layers and small products may differ in the last bits.
  Options& exact(bool on) { return set(exact_, on); }
  bool exact() const { return exact_; }

  // Sets how many operators that gradients flow through a differentiable subgraph has at least. Operators outside of such
  // subgraphs, and all with 0 or with `exact`, record gradients one by one, as in eager execution. The default is 2.
  Options& min_differentiable_nodes(size_t nodes) { return set(min_differentiable_nodes_, nodes); }
  size_t min_differentiable_nodes() const { return min_differentiable_nodes_; }

  // Records a call with gradients together with its backward when the call repeats, and runs later calls of its kind by the
  // recording where that is faster than subgraphs. Off for `exact` and frozen modules. docs/training.md has more.
  Options& record_calls(bool on) { return set(record_calls_, on); }
  bool record_calls() const { return record_calls_ && optimize_ && !exact_ && !frozen_ && compile_ != CompileMode::kNever; }

  // Chooses when specialized plans and kernels are compiled. With kBackground, your passes at Stage::kSpecialize run on that
  // thread, and perhaps after the module was destroyed.
  Options& compile(CompileMode mode) { return set(compile_, mode); }
  CompileMode compile() const { return compile_; }

  // Turns CUDA graphs on or off; on by default. Plans on a GPU then record ranges of their steps, and replay them in later
  // runs. `explain` says which steps are recorded, and why others are not.
  Options& cuda_graphs(bool on) { return set(cuda_graphs_, on); }
  bool cuda_graphs() const { return cuda_graphs_; }

  // Turns packed weights on or off; on by default, but for `exact`. Calls without gradients then keep a copy of the weights
  // of convolutions and matrix products, in the order in which kernels read them, once the weights have stayed the same for
  // some calls. This takes up to as much memory as the weights.
  Options& pack_weights(bool on) { return set(pack_weights_, on); }
  bool pack_weights() const { return pack_weights_; }

  // Times, in the first calls without gradients, kernels that keep weights beside LibTorch's operators, and leaves to
  // LibTorch what it computes faster on this machine; on by default, but for `exact`. The choices are kept on disk, beside
  // compiled kernels. Without it, the first calls compute the same bits in each process.
  Options& time_choices(bool on) { return set(time_choices_, on); }
  bool time_choices() const { return time_choices_; }

  // Lets the weights of a frozen module leave memory once they are packed; on by default. They come back from temporary
  // files if a run reads them or the program asks for the module. docs/freezing.md has the details.
  Options& page_out_weights(bool on) { return set(page_out_weights_, on); }
  bool page_out_weights() const { return page_out_weights_; }

  // Limits the threads that one operator uses in this module's calls; 0, the default: as many as LibTorch's
  // (at::get_num_threads). Never more than those. Without a limit, too, calls of several threads share the cores, and stay
  // within the container's quota of CPU time (docs/performance.md). Throws c10::Error for a negative number.
  Options& intra_op_threads(int threads);
  int intra_op_threads() const { return intra_op_threads_; }

  // Limits the plans that one method keeps. A plan that no call has used for long is dropped first. Throws c10::Error for 0.
  Options& plan_cache_capacity(size_t plans);
  size_t plan_cache_capacity() const { return plan_cache_capacity_; }

  // Profiles the first `runs` calls of each method. A profiled call is slower; it records shapes, branches taken and
  // iterations of loops, which `explain` shows. The default is 0.
  Options& profiled_runs(size_t runs) { return set(profiled_runs_, runs); }
  size_t profiled_runs() const { return profiled_runs_; }

  // The passes that you add to sconce's, and those you disable.
  PassPipeline& passes() { return passes_; }
  const PassPipeline& passes() const { return passes_; }

  // Freezes the module when its first method is compiled. Requires evaluation mode. From then on
  //   - attributes that no method can change are constants; `explain` lists the others and says why;
  //   - gradients flow to the arguments, not to the parameters;
  //   - batch norms are folded into the convolutions before them, which changes rounding.
  // docs/freezing.md has the details.
  Options& frozen(bool on) { return set(frozen_, on); }
  bool frozen() const { return frozen_; }

  // Keeps attributes ("encoder.scale") and submodules ("encoder") of a frozen module readable in every call, because you
  // will change them. Adds to the names given before. Names of methods are accepted and have no effect: all methods stay.
  Options& preserve(const std::vector<std::string>& names);
  const std::vector<std::string>& preserved() const { return preserved_; }

 private:
  template <typename T>
  Options& set(T& field, T value) {
    field = value;
    return *this;
  }
  std::optional<c10::Device> device_;
  bool optimize_ = true;
  bool exact_ = false;
  size_t min_differentiable_nodes_ = 2;
  bool record_calls_ = true;
  CompileMode compile_ = CompileMode::kBackground;
  PassPipeline passes_;
  bool cuda_graphs_ = true;
  bool pack_weights_ = true;
  bool time_choices_ = true;
  bool page_out_weights_ = true;
  int intra_op_threads_ = 0;
  size_t plan_cache_capacity_ = 64;
  size_t profiled_runs_ = 0;
  bool frozen_ = false;
  std::vector<std::string> preserved_;
};

}  // namespace sconce
