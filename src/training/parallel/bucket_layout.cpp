#include "training/parallel/bucket_layout.h"

#include "trace/trace_key.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sconce {
namespace {

// Members begin at cache lines: kernels read and write them as vectors.
constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t elements, int64_t element_bytes) {
  const int64_t unit = std::max<int64_t>(1, kAlignment / element_bytes);
  return (elements + unit - 1) / unit * unit;
}

}  // namespace

BucketLayout BucketLayout::of(const std::vector<at::Tensor>& parameters, size_t first_bytes, size_t bytes, int64_t parts) {
  BucketLayout layout;
  std::vector<Bucket> open;  // one of each form
  for (size_t i = parameters.size(); i-- > 0;) {
    const at::Tensor& parameter = parameters[i];
    const auto has_its_form = [&](const Bucket& bucket) {
      return bucket.dtype == parameter.scalar_type() && bucket.device == parameter.device();
    };
    auto bucket = std::ranges::find_if(open, has_its_form);
    if (bucket == open.end()) {
      bucket = open.insert(open.end(), Bucket{parameter.scalar_type(), parameter.device(), {}, 0});
    }
    bucket->members.push_back({i, bucket->size});
    bucket->size = aligned(bucket->size + parameter.numel(), parameter.element_size());
    const size_t limit = layout.buckets.empty() ? first_bytes : bytes;
    if (static_cast<size_t>(bucket->size * parameter.element_size()) >= limit) {
      layout.buckets.push_back(std::move(*bucket));
      open.erase(bucket);
    }
  }
  std::ranges::move(open, std::back_inserter(layout.buckets));
  layout.first_flag = layout.buckets.back().size;
  layout.buckets.back().size += static_cast<int64_t>(parameters.size()) + 1;
  for (Bucket& bucket : layout.buckets) {
    bucket.size = aligned((bucket.size + parts - 1) / parts, static_cast<int64_t>(c10::elementSize(bucket.dtype))) * parts;
  }
  return layout;
}

std::string to_string(const BucketLayout& layout, const std::vector<at::Tensor>& parameters) {
  return std::to_string(parameters.size()) + " tensors in " + std::to_string(layout.buckets.size()) +
         " buckets: " + describe_inputs(parameters);
}

}  // namespace sconce
