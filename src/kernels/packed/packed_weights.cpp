#include "kernels/packed/packed_weights.h"

#include "base/paged_memory.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>

namespace sconce {
namespace {

// The packed weights in use.
struct Registry {
  std::mutex mutex;
  std::map<std::vector<int64_t>, std::weak_ptr<PackedWeights>> by_key;

  std::vector<std::shared_ptr<PackedWeights>> in_use() {
    std::vector<std::shared_ptr<PackedWeights>> found;
    const std::lock_guard lock(mutex);
    for (const auto& [key, entry] : by_key) {
      if (std::shared_ptr<PackedWeights> packed = entry.lock()) {
        found.push_back(std::move(packed));
      }
    }
    return found;
  }

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
    earned_ = std::min<Clock::duration>(earned_ + (now - std::exchange(asked_, now)) / 4, kMaxEarned);
    return earned_ > Clock::duration::zero();
  }
  static void spend(Clock::duration spent) { earned_ -= spent; }

 private:
  static constexpr std::chrono::milliseconds kMaxEarned{20};  // during a pause
  static thread_local Clock::time_point asked_;
  static thread_local Clock::duration earned_;
};

thread_local PackingTime::Clock::time_point PackingTime::asked_ = PackingTime::Clock::now();
thread_local PackingTime::Clock::duration PackingTime::earned_ = {};

std::atomic<uint64_t> times_announced = 0;

}  // namespace

std::shared_ptr<PackedWeights> PackedWeights::find(const std::vector<int64_t>& form, WeightTensors tensors, bool may_make) {
  auto versions = WeightVersions::of(tensors);
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
  if (found != nullptr && found->versions_.are_still(tensors) && found->have_elements_of(tensors)) {
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

const float* PackedWeights::fill_once(WeightTensors tensors, int64_t elements, c10::function_ref<void(float*)> fill) {
  const std::lock_guard lock(creating_);
  if (!is_filled_) {
    weight_ = Checksums(*tensors.weight);
    bias_ = tensors.bias == nullptr ? Checksums() : Checksums(*tensors.bias);
    bytes_ = static_cast<size_t>(elements) * sizeof(float);
    // Large ones in whole pages: else what the heap frees while weights are packed would not go back to the system.
    memory_ =
        bytes_ < PagedMemory::kMinBytes ? c10::GetDefaultCPUAllocator()->allocate(bytes_) : PagedMemory::allocate(bytes_);
    auto* const packed = static_cast<float*>(memory_.get());
    fill(packed);
    are_finite_ = std::all_of(packed, packed + elements, [](float element) { return std::isfinite(element); });
    is_filled_ = true;
  }
  return static_cast<const float*>(memory_.get());
}

size_t PackedWeights::bytes() {
  const std::lock_guard lock(creating_);
  return bytes_;
}

bool PackedWeights::have_elements_of(WeightTensors tensors) {
  const std::lock_guard lock(creating_);
  return !is_filled_ || (weight_.are_still(*tensors.weight, 0, weight_.blocks()) &&
                         (tensors.bias == nullptr || bias_.are_still(*tensors.bias, 0, bias_.blocks())));
}

bool PackedWeights::have_some_elements_of(WeightTensors tensors, int64_t blocks, int64_t& position) const {
  // The blocks of the bias come after those of the weight.
  const int64_t all = weight_.blocks() + bias_.blocks();
  const int64_t first = position < all ? position : 0;
  position = std::min(all, first + blocks);
  const int64_t of_weight = weight_.blocks();
  return weight_.are_still(*tensors.weight, std::min(first, of_weight), std::min(position, of_weight)) &&
         (tensors.bias == nullptr ||
          bias_.are_still(*tensors.bias, std::max(first, of_weight) - of_weight, std::max(position, of_weight) - of_weight));
}

void note_weights_changed() { times_announced.fetch_add(1, std::memory_order_relaxed); }

void note_written(const at::Tensor& weight) {
  // WriteStamps take a new accumulator for a new graph. A tensor that requires no gradient gets none.
  if (torch::autograd::impl::grad_accumulator(weight) == nullptr) {
    note_weights_changed();
  }
}

WeightElements elements_of(WeightTensors tensors) {
  return {static_cast<const float*>(tensors.weight->data()),
          tensors.bias == nullptr ? nullptr : static_cast<const float*>(tensors.bias->data())};
}

size_t packed_weights_in_use() { return Registry::instance().in_use().size(); }

size_t bytes_packed() {
  size_t bytes = 0;
  for (const auto& packed : Registry::instance().in_use()) {
    bytes += packed->bytes();
  }
  return bytes;
}

size_t bytes_packed_of(const std::unordered_set<const void*>& elements) {
  size_t bytes = 0;
  for (const auto& packed : Registry::instance().in_use()) {
    bytes += elements.contains(packed->weight_data()) ? packed->bytes() : 0;
  }
  return bytes;
}

PackedOperator::WriteStamps::WriteStamps(WeightTensors tensors)
    : weight(*tensors.weight), changes_announced(times_announced.load(std::memory_order_relaxed)) {
  if (tensors.bias != nullptr) {
    bias.emplace(*tensors.bias);
  }
}

bool PackedOperator::WriteStamps::are_still(WeightTensors tensors) const {
  return weight.is_still(*tensors.weight) && (tensors.bias == nullptr || bias->is_still(*tensors.bias)) &&
         changes_announced == times_announced.load(std::memory_order_relaxed);
}

// Compares what LibTorch may not have counted: all elements after training, else some of them.
bool PackedOperator::have_packed_elements(WeightTensors tensors) {
  if (stamps_->are_still(tensors)) {
    return packed_->have_some_elements_of(tensors, compared_, position_);
  }
  stamps_.emplace(tensors);  // before the elements are compared: they may be written meanwhile
  return packed_->have_elements_of(tensors);
}

bool PackedOperator::are_unchanged(WeightTensors tensors, bool are_constants) {
  if (!versions_) {
    return false;
  }
  if (are_constants) {
    return versions_->are_counted_still(tensors);  // their pages may have left, and would come back
  }
  return versions_->are_still(tensors) && (!is_made_ || have_packed_elements(tensors));
}

bool PackedOperator::find(const KernelArguments& arguments, size_t weight_position, std::optional<size_t> bias_position) {
  const bool has_bias = bias_position && arguments.is_tensor(*bias_position);
  const KernelArguments::Weight weight = arguments.weight(weight_position);
  const KernelArguments::Weight bias = has_bias ? arguments.weight(*bias_position) : KernelArguments::Weight{};
  const WeightTensors tensors = {weight.tensor, bias.tensor};
  if (weight.tensor == nullptr || (has_bias && bias.tensor == nullptr)) {
    return false;
  }
  if (!patience_.allows()) {
    return false;
  }
  const bool are_constants = weight.is_constant && (!has_bias || bias.is_constant);
  const bool pages_out = are_constants && arguments.pages_out_weights();
  if (are_unchanged(tensors, are_constants)) {
    ++runs_;
    patience_.win_all();
    if (!is_made_ && runs_ >= runs_to_pack_ && !is_refused_ &&
        PackingTime::may_pack(static_cast<size_t>(weight.tensor->numel()) * sizeof(float))) {
      const auto begin = PackingTime::Clock::now();
      find_packed(tensors, /*may_pack=*/true, pages_out);
      PackingTime::spend(PackingTime::Clock::now() - begin);
      is_refused_ = !is_made_;
    }
    return is_made_;
  }
  if (is_made_ && runs_ < kRunsThatPay) {
    runs_to_pack_ = std::min(runs_to_pack_ * 4, kMaxRunsToPack);
  }
  forget();
  patience_.lose();
  if (patience_.is_exhausted()) {
    return false;
  }
  versions_ = WeightVersions::of(tensors);
  if (versions_) {
    find_packed(tensors, /*may_pack=*/false, pages_out);
  }
  return is_made_;
}

void PackedOperator::find_packed(WeightTensors tensors, bool may_pack, bool pages_out) {
  stamps_.emplace(tensors);
  packed_ = PackedWeights::find(form_, tensors, may_pack);
  is_made_ = packed_ != nullptr && make(*packed_, tensors);
  if (is_made_ && pages_out) {
    page_out_later(tensors.weight->storage());
  }
}

void PackedOperator::set_multiplications(int64_t multiplications) {
  // At most a fiftieth of a run's time: an element is read from memory in the time of about 20 multiplications.
  compared_ = std::max<int64_t>(1, multiplications / (1024 * Checksums::kElements));
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
