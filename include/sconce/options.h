// Settings of one loaded module. There are no process-wide settings.
#pragma once

#include <sconce/pass_pipeline.h>

#include <c10/core/Device.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

class Options {
 public:
  // Where the module's tensors are put when it is loaded: "cpu", "cuda", "cuda:1". As saved when not set. Throws c10::Error
  // on a name that is no device. With a CUDA device, `load` brings LibTorch's CUDA library into the process; unless the
  // program links it, that must come before other uses of LibTorch.
  Options& device(const std::string& name);
  const std::optional<c10::Device>& device() const { return device_; }

  // false: every call runs the generic plan, made by required passes alone; nothing is counted as a miss.
  Options& optimize(bool on) { return set(optimize_, on); }
  bool optimize() const { return optimize_; }

  // The most plans that one method keeps; the least recently used go first. At least 1.
  Options& plan_cache_capacity(size_t plans);
  size_t plan_cache_capacity() const { return plan_cache_capacity_; }

  // So many first calls of each method are profiled: shapes, branches and rounds of loops are recorded, at the price of a
  // slower call, and shown by `explain`. 0: none.
  Options& profiled_runs(size_t runs) { return set(profiled_runs_, runs); }
  size_t profiled_runs() const { return profiled_runs_; }

  // Passes of your own, and which of sconce's are left out.
  PassPipeline& passes() { return passes_; }
  const PassPipeline& passes() const { return passes_; }

  // true: methods run with the module as it is when the first of them is asked for. Attributes that no method can change are
  // constants from then on, gradients flow to the arguments alone, batch norms become part of the convolutions before them
  // (which changes results by rounding). The module must be in evaluation mode. `explain` tells what stays an attribute, and
  // why; docs/freezing.md has it all.
  Options& frozen(bool on) { return set(frozen_, on); }
  bool frozen() const { return frozen_; }

  // Of a frozen module: the names of attributes ("encoder.scale") and submodules ("encoder") that are read in every call all
  // the same, because you will change them. Methods may be named, too; all of them stay. Adds to what was named before.
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
  PassPipeline passes_;
  size_t plan_cache_capacity_ = 64;
  size_t profiled_runs_ = 0;
  bool frozen_ = false;
  std::vector<std::string> preserved_;
};

}  // namespace sconce
