#include "executor/module_copy.h"

#include "base/deep_copy.h"
#include "base/outside_inference_mode.h"
#include "base/storage_of.h"
#include "base/tensors_in.h"

#include <ATen/core/class_type.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <unordered_set>

namespace sconce {

torch::jit::Module copy_of(const torch::jit::Module& module, bool shares_weights) {
  const torch::autograd::AutoGradMode no_grad(false);
  const OutsideInferenceMode normal;
  DeepCopy copier;
  if (shares_weights) {
    for (const at::Tensor& parameter : module.parameters()) {
      copier.share(parameter);
    }
  }
  const torch::jit::Module copy(copier.copy(module._ivalue()).toObject());
  // LibTorch's copies have parameters that are no leaves.
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.defined() && !shares_weights) {
      copier.copy(parameter).toTensor().set_requires_grad(parameter.requires_grad());
    }
  }
  return copy;
}

// Lists and dicts may hold parameters, too.
void copy_parameters(torch::jit::Module& module) {
  const torch::autograd::AutoGradMode no_grad(false);
  const OutsideInferenceMode normal;
  std::unordered_set<const c10::StorageImpl*> memory;
  for (const at::Tensor& parameter : module.parameters()) {
    memory.insert(storage_of(parameter));
  }
  DeepCopy copier;
  for (const at::Tensor& tensor : tensors_in(module._ivalue())) {
    if (!memory.contains(storage_of(tensor))) {
      copier.share(tensor);
    }
  }
  for (const torch::jit::Module& each : module.modules()) {
    copier.share(each._ivalue());
  }
  for (const torch::jit::Module& each : module.modules()) {
    const c10::intrusive_ptr<c10::ivalue::Object> object = each._ivalue();
    for (size_t slot = 0; slot < object->slots().size(); ++slot) {
      object->setSlot(slot, copier.copy(object->getSlot(slot)));
    }
  }
}

}  // namespace sconce
