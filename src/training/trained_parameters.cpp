#include "training/trained_parameters.h"

#include "base/flat_map.h"

namespace sconce {

TrainedParameters trained_parameters(torch::optim::Optimizer& optimizer) {
  TrainedParameters trained;
  FlatSet<const c10::TensorImpl*> listed;  // a tied weight may stand there twice
  const auto& groups = optimizer.param_groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const at::Tensor& parameter : groups[group].params()) {
      if (!parameter.requires_grad()) {
        continue;
      }
      if (listed.insert(parameter.unsafeGetTensorImpl()).second) {
        trained.tensors.push_back(parameter);
        trained.groups.push_back(group);
      } else {
        trained.has_repeated = true;
      }
    }
  }
  TORCH_CHECK(!trained.tensors.empty(), "the optimizer has no parameter that requires a gradient");
  return trained;
}

}  // namespace sconce
