#include "plan/prepared/packed/packed_weights.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

namespace sconce {
namespace {

// The packed weights in use.
struct Registry {
  std::mutex mutex;
  std::map<std::vector<int64_t>, std::weak_ptr<PackedWeights>> by_key;

  static Registry& instance() {
    static auto* const registry = new Registry;  // frames may outlive static objects
    return *registry;
  }
};

// Spreads packing over calls: it takes at most a quarter of the time of a thread, so that no call is much slower than
// before. Small weights are packed at once.
class PackingTime {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns whether the thread may pack weights of that many bytes now.
  static bool may_pack(size_t bytes) {
    constexpr size_t kSmall = 256 * 1024;
    if (bytes <= kSmall) {
      return true;
    }
    const Clock::time_point now = Clock::now();
    earned_ = std::min<Clock::duration>(earned_ + (now - std::exchange(asked_, now)) / 4, kMostEarned);
    return earned_ > Clock::duration::zero();
  }
  static void spend(Clock::duration spent) { earned_ -= spent; }

 private:
  static constexpr std::chrono::milliseconds kMostEarned{20};  // during a pause
  static thread_local Clock::time_point asked_;
  static thread_local Clock::duration earned_;
};

thread_local PackingTime::Clock::time_point PackingTime::asked_ = PackingTime::Clock::now();
thread_local PackingTime::Clock::duration PackingTime::earned_ = {};

std::atomic<uint64_t> training_runs = 0;

uint64_t checksum_of_both(const c10::TensorImpl& weight, const c10::TensorImpl* bias) {
  return checksum_of(weight) + (bias == nullptr ? 0 : 3 * checksum_of(*bias));
}

}  // namespace

PackedWeights::PackedWeights(WeightVersions versions) : versions_(std::move(versions)), compared_at_(training_runs.load()) {}

std::shared_ptr<PackedWeights> PackedWeights::find(const std::vector<int64_t>& form, const c10::TensorImpl& weight,
                                                   const c10::TensorImpl* bias, bool may_make) {
  auto versions = WeightVersions::of(weight, bias);
  if (!versions) {
    return nullptr;
  }
  std::vector<int64_t> key = form;
  key.push_back(reinterpret_cast<int64_t>(versions->weight_data()));
  key.push_back(reinterpret_cast<int64_t>(versions->bias_data()));
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  const auto entry = registry.by_key.find(key);
  std::shared_ptr<PackedWeights> found = entry == registry.by_key.end() ? nullptr : entry->second.lock();
  if (found != nullptr && found->versions_.are_still(weight, bias) && found->have_elements_of(weight, bias)) {
    return found;
  }
  if (!may_make) {
    return nullptr;
  }
  std::erase_if(registry.by_key, [](const auto& other) { return other.second.expired(); });
  found = std::make_shared<PackedWeights>(*std::move(versions));
  registry.by_key[key] = found;
  return found;
}

bool PackedWeights::have_elements_of(const c10::TensorImpl& weight, const c10::TensorImpl* bias) {
  const uint64_t runs = training_runs.load(std::memory_order_relaxed);
  const bool has_gradient = weight.grad().defined() || (bias != nullptr && bias->grad().defined());
  if (!has_gradient && compared_at_.load(std::memory_order_relaxed) == runs) {
    return true;
  }
  const std::lock_guard lock(creating_);
  if (is_filled_ && checksum_of_both(weight, bias) != checksum_) {
    return false;
  }
  if (!has_gradient) {  // else the optimizer's step may be still to come
    compared_at_.store(runs, std::memory_order_relaxed);
  }
  return true;
}

void note_training_run() { training_runs.fetch_add(1, std::memory_order_relaxed); }

const float* PackedWeights::fill_once(const c10::TensorImpl& weight, const c10::TensorImpl* bias, int64_t elements,
                                      c10::function_ref<void(float*)> fill) {
  const std::lock_guard lock(creating_);
  if (!is_filled_) {
    checksum_ = checksum_of_both(weight, bias);
    memory_ = c10::GetDefaultCPUAllocator()->allocate(static_cast<size_t>(elements) * sizeof(float));
    auto* const packed = static_cast<float*>(memory_.get());
    fill(packed);
    are_finite_ = std::all_of(packed, packed + elements, [](float element) { return std::isfinite(element); });
    is_filled_ = true;
  }
  return static_cast<const float*>(memory_.get());
}

WeightElements elements_of(const c10::TensorImpl& weight, const c10::TensorImpl* bias) {
  return {static_cast<const float*>(weight.data()), bias == nullptr ? nullptr : static_cast<const float*>(bias->data())};
}

size_t packed_weights_in_use() {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  return static_cast<size_t>(std::count_if(registry.by_key.begin(), registry.by_key.end(),
                                           [](const auto& entry) { return !entry.second.expired(); }));
}

bool PackedOperator::find(const KernelArguments& arguments, size_t weight_position, std::optional<size_t> bias_position) {
  const bool has_bias = bias_position && arguments.is_tensor(*bias_position);
  const c10::TensorImpl* weight = arguments.impl(weight_position);
  const c10::TensorImpl* bias = has_bias ? arguments.impl(*bias_position) : nullptr;
  if (weight == nullptr || (has_bias && bias == nullptr)) {
    return false;
  }
  if (left_alone_ > 0) {
    --left_alone_;
    return false;
  }
  if (versions_ && versions_->are_still(*weight, bias) && (!is_made_ || packed_->have_elements_of(*weight, bias))) {
    ++runs_;
    changes_ = 0;
    if (!is_made_ && runs_ >= runs_to_pack_ && !is_refused_ &&
        PackingTime::may_pack(static_cast<size_t>(weight->numel()) * sizeof(float))) {
      const auto begin = PackingTime::Clock::now();
      find_packed(*weight, bias, /*may_pack=*/true);
      PackingTime::spend(PackingTime::Clock::now() - begin);
      is_refused_ = !is_made_;
    }
    return is_made_;
  }
  if (is_made_ && runs_ < kRunsThatPay) {
    runs_to_pack_ = std::min(runs_to_pack_ * 4, kMostRunsToPack);
  }
  forget();
  if (++changes_ > kMostChanges) {
    changes_ = 0;
    left_alone_ = kRunsLeftAlone;
    return false;
  }
  versions_ = WeightVersions::of(*weight, bias);
  if (versions_) {
    find_packed(*weight, bias, /*may_pack=*/false);
  }
  return is_made_;
}

void PackedOperator::find_packed(const c10::TensorImpl& weight, const c10::TensorImpl* bias, bool may_pack) {
  packed_ = PackedWeights::find(form_, weight, bias, may_pack);
  is_made_ = packed_ != nullptr && make(*packed_, weight, bias);
}

void PackedOperator::set_form(std::vector<int64_t> form) {
  if (form != form_) {
    forget();
    form_ = std::move(form);
  }
}

void PackedOperator::forget() {
  drop();
  is_made_ = false;
  packed_.reset();
  versions_.reset();
  runs_ = 0;
  is_refused_ = false;
}

}  // namespace sconce
