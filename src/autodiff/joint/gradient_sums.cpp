#include "autodiff/joint/gradient_sums.h"

#include "autodiff/joint/build_nodes.h"

#include <algorithm>

namespace sconce {

void merge_sources(std::vector<Value*>& into, const std::vector<Value*>& from) {
  std::copy_if(from.begin(), from.end(), std::back_inserter(into),
               [&](Value* source) { return std::find(into.begin(), into.end(), source) == into.end(); });
}

Gradient GradientSums::at(const Value* value) const {
  const auto found = sums_.find(value);
  return found == sums_.end() ? Gradient{} : found->second;
}

std::vector<Value*> sources_of(c10::ArrayRef<Gradient> gradients) {
  std::vector<Value*> sources;
  for (const Gradient& gradient : gradients) {
    merge_sources(sources, gradient.sources);
  }
  return sources;
}

void GradientSums::add(Value* value, const Gradient& gradient) {
  Gradient& sum = sums_[value];
  if (sum.value == nullptr) {
    sum = gradient;
    return;
  }
  sum.value = insert_sum_of_gradients(*value, sum.value, gradient.value, end_);
  sum.value->node()->set_location(value->node()->location());
  merge_sources(sum.sources, gradient.sources);
}

}  // namespace sconce
