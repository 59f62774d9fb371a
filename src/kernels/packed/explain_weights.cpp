#include "kernels/packed/explain_weights.h"

#include "base/paged_memory.h"
#include "kernels/packed/packed_weights.h"

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

}  // namespace sconce
