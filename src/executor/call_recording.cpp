#include "executor/call_recording.h"

#include "base/storage_of.h"
#include "base/tensors_in.h"
#include "trace/undone_writes.h"

#include <algorithm>
#include <iterator>

namespace sconce {

CallRecording::CallRecording(const ModulePtr& module, const CallArguments& arguments, const SizePattern& of_sizes)
    : state_(module),
      structure_(arguments.values),
      sizes_(of_sizes.has_symbols() ? std::make_shared<SymbolicSizes>(of_sizes.values()) : nullptr) {
  state_.release_objects();
  pattern = of_sizes;
  guards = sizes_;
}

void CallRecording::check_call(Tracer& tracer, const ModulePtr& module, const CallArguments& arguments,
                               const std::vector<at::Tensor>& owned) {
  const bool is_changed = !state_.holds();
  if (replace_traced_values(*module) || is_changed) {
    tracer.refuse("a call changes an attribute of the module");
  }
  std::vector<at::Tensor> kept = tensors_in(c10::IValue(module));
  std::vector<at::Tensor> leaves = kept;  // of which a later call has other gradients
  leaves.insert(leaves.end(), arguments.tensors.begin(), arguments.tensors.end());
  for (const at::Tensor& leaf : leaves) {
    const auto is_gradient = [&](const at::Tensor& captured) { return leaf.grad().is_same(captured); };
    if (leaf.is_leaf() && leaf.grad().defined() && std::ranges::any_of(tracer.captured(), is_gradient)) {
      tracer.refuse("it reads the gradient of a parameter or of an argument");
    }
  }
  kept.insert(kept.end(), owned.begin(), owned.end());
  tracer.refuse_captured(kept);
  std::vector<at::Tensor> others;
  std::ranges::copy_if(tracer.captured(), std::back_inserter(others), [&](const at::Tensor& captured) {
    return std::ranges::none_of(kept, [&](const at::Tensor& tensor) { return tensor.is_same(captured); });
  });
  std::ranges::copy_if(kept, std::back_inserter(aliased_), [&](const at::Tensor& tensor) {
    const c10::StorageImpl* storage = storage_of(tensor);
    return storage != nullptr &&
           std::ranges::any_of(others, [&](const at::Tensor& other) { return storage_of(other) == storage; });
  });
  aliased_forms_ = BoundTensors(aliased_, {});
}

bool CallRecording::run_undoably(const Effects& effects, c10::function_ref<bool()> run) const {
  UndoneWrites undone(effects.written);
  if (!effects.draws) {
    undone.keep_generators();
  }
  bool reads_the_recorded = false;
  try {
    reads_the_recorded = run();
  } catch (const std::exception&) {
    // Other numbers may let the call do something else.
  }
  if (reads_the_recorded) {
    undone.keep();
    return true;
  }
  for (const at::Tensor& tensor : effects.marked) {
    tensor.set_requires_grad(false);
  }
  misses_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

}  // namespace sconce
