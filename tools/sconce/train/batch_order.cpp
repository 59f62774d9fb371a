#include "tools/sconce/train/batch_order.h"

#include "tools/sconce/report/errors.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randperm.h>

#include <algorithm>

namespace sconce::cli {

BatchOrder::BatchOrder(int64_t examples, const TrainSettings& settings, Placement placement)
    : examples_(examples),
      size_(static_cast<int64_t>(settings.batch)),
      accumulate_(static_cast<int64_t>(settings.accumulate)),
      epochs_(settings.epochs),
      seed_(settings.seed),
      shuffles_(!settings.no_shuffle),
      drops_last_(settings.drop_last),
      placement_(placement) {
  if (steps_per_epoch() == 0) {
    const int64_t batches = drops_last_ ? examples / size_ : (examples + size_ - 1) / size_;
    throw UserError("an epoch of " + std::to_string(examples) + " examples has " + std::to_string(batches) + " batches of " +
                    std::to_string(size_) + ", too few for one step of " + std::to_string(accumulate_ * placement_.world) +
                    "; lower --batch or --accumulate");
  }
}

size_t BatchOrder::steps_from(int64_t example) const {
  const int64_t call = size_ * placement_.world;
  const int64_t left = examples_ - example;
  return static_cast<size_t>((drops_last_ ? left / call : (left + call - 1) / call) / accumulate_);
}

size_t BatchOrder::steps(const Progress& now) const {
  const size_t epochs_left = epochs_ - std::min(epochs_, now.epoch);
  return now.step + (epochs_left == 0 ? 0 : steps_left_in_epoch(now) + (epochs_left - 1) * steps_per_epoch());
}

Progress BatchOrder::after_step(const Progress& now) const {
  const bool ends_epoch = steps_left_in_epoch(now) <= 1;
  return {.step = now.step + 1,
          .epoch = now.epoch + (ends_epoch ? 1 : 0),
          .example = ends_epoch ? 0 : now.example + accumulate_ * placement_.world * size_};
}

std::pair<int64_t, int64_t> BatchOrder::place_of(const Progress& now, size_t call, int64_t rank) const {
  const int64_t of_call = placement_.world * size_;
  const int64_t begin = std::min(examples_, now.example + static_cast<int64_t>(call) * of_call);
  const int64_t count = std::min(examples_ - begin, of_call);
  const auto [first, last] = Placement{rank, placement_.world}.part_of(count);
  return {begin + first, begin + last};
}

std::vector<int64_t> BatchOrder::sizes(const Progress& now, size_t call) const {
  std::vector<int64_t> sizes;
  for (int64_t rank = 0; rank < placement_.world; ++rank) {
    const auto [begin, end] = place_of(now, call, rank);
    sizes.push_back(end - begin);
  }
  return sizes;
}

std::set<int64_t> BatchOrder::kinds() const {
  const auto whole_steps = static_cast<int64_t>(steps_per_epoch()) - 1;
  const Progress last{.example = whole_steps * accumulate_ * placement_.world * size_};
  std::set<int64_t> kinds;
  for (const Progress& step : {Progress(), last}) {
    for (int64_t call = 0; call < accumulate_; ++call) {
      const std::vector<int64_t> sizes_of_call = sizes(step, static_cast<size_t>(call));
      kinds.insert(sizes_of_call.begin(), sizes_of_call.end());
    }
  }
  kinds.erase(0);
  return kinds;
}

bool BatchOrder::has_empty_batches() const {
  const auto whole_steps = static_cast<int64_t>(steps_per_epoch()) - 1;
  const std::vector<int64_t> last =
      sizes({.example = whole_steps * accumulate_ * placement_.world * size_}, static_cast<size_t>(accumulate_ - 1));
  return std::ranges::find(last, 0) != last.end();
}

at::Tensor BatchOrder::batch(const Progress& now, size_t call) {
  if (!order_ || order_->first != now.epoch) {
    constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // far apart for neighboring epochs and seeds
    const at::Generator generator = at::detail::createCPUGenerator(seed_ ^ (kGoldenRatio * (now.epoch + 1)));
    order_ = {now.epoch, shuffles_ ? at::randperm(examples_, generator) : at::arange(examples_)};
  }
  const auto [begin, end] = place_of(now, call, placement_.rank);
  return order_->second.slice(0, begin, end);
}

}  // namespace sconce::cli
