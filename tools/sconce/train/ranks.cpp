#include "tools/sconce/train/ranks.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <cstring>

namespace sconce::cli {

Ranks::Ranks(const DataParallel& group) {
  if (group.world_size() > 1) {
    placement_ = {.rank = group.rank(), .world = group.world_size()};
    group_ = group;
  }
}

Ranks Ranks::of_environment() {
  const bool is_started = std::getenv("RANK") != nullptr || std::getenv("WORLD_SIZE") != nullptr;
  return is_started ? Ranks(DataParallel::from_environment()) : Ranks();
}

std::vector<double> Ranks::sum(const std::vector<double>& numbers) const {
  if (is_alone()) {
    return numbers;
  }
  const at::Tensor sums = at::tensor(numbers, at::kDouble);
  group_->sum(sums);
  return {sums.const_data_ptr<double>(), sums.const_data_ptr<double>() + sums.numel()};
}

// Each process adds its bytes to zeros, at its place.
std::vector<std::string> Ranks::gather(const std::string& bytes) const {
  if (is_alone()) {
    return {bytes};
  }
  std::vector<double> lengths(static_cast<size_t>(placement_.world));
  lengths[static_cast<size_t>(placement_.rank)] = static_cast<double>(bytes.size());
  lengths = sum(lengths);
  std::vector<int64_t> begins = {0};
  for (const double length : lengths) {
    begins.push_back(begins.back() + static_cast<int64_t>(length));
  }
  const at::Tensor all = at::zeros({begins.back()}, at::kByte);
  std::memcpy(all.mutable_data_ptr<uint8_t>() + begins[static_cast<size_t>(placement_.rank)], bytes.data(), bytes.size());
  group_->sum(all);
  const char* const data = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
  std::vector<std::string> of_ranks;
  for (size_t i = 0; i < lengths.size(); ++i) {
    of_ranks.emplace_back(data + begins[i], data + begins[i + 1]);
  }
  return of_ranks;
}

void Ranks::broadcast(const std::vector<at::Tensor>& tensors) const {
  if (!is_alone()) {
    group_->broadcast(tensors);
  }
}

void Ranks::leave(const std::string& reason) const {
  if (!is_alone()) {
    group_->leave(reason);
  }
}

}  // namespace sconce::cli
