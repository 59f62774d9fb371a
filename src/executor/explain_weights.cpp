#include "executor/explain_weights.h"

#include "base/paged_memory.h"
#include "kernels/packed/packed_weights.h"

#include <algorithm>
#include <unordered_set>

namespace sconce {

WeightsExplanation explain_weights(const std::vector<at::Tensor>& weights) {
  WeightsExplanation explanation;
  std::unordered_set<const void*> elements;
  std::unordered_set<const PagedMemory*> paged;
  for (const at::Tensor& weight : weights) {
    if (!weight.defined() || !weight.has_storage()) {
      continue;
    }
    elements.insert(weight.unsafeGetTensorImpl()->data());
    const PagedMemory* memory = PagedMemory::of(weight.storage().data_ptr());
    if (memory != nullptr && paged.insert(memory).second) {
      explanation.in_files_bytes += memory->bytes_in_file();
    }
  }
  explanation.packed_bytes = bytes_packed_of(elements);
  return explanation;
}

std::optional<RefusalExplanation> why_not_packed(const std::vector<at::Tensor>& attributes, const Options& options) {
  const bool has_inference_weight = std::any_of(attributes.begin(), attributes.end(), [](const at::Tensor& each) {
    return each.defined() && each.is_inference() && each.dim() >= 2 && each.scalar_type() == at::kFloat;
  });
  // A frozen module has constants instead.
  if (!has_inference_weight || options.frozen() || options.exact() || !options.pack_weights()) {
    return std::nullopt;
  }
  return RefusalExplanation{.what = "packing of weights",
                            .reason =
                                "weights are inference tensors, of which LibTorch counts no writes; load the module by "
                                "sconce::load, or outside of c10::InferenceMode",
                            .node = {},
                            .source = {}};
}

}  // namespace sconce
