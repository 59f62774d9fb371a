#include "executor/recording_cache.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <functional>
#include <iterator>

namespace sconce {
namespace {

constexpr size_t kMaxGeneral = 4;  // more would follow sizes that have no pattern
constexpr size_t kMaxUnused = 4;   // recordings of a kind in a row, for the same sizes
constexpr size_t kMaxSizes = 16;   // recordings of one size each; more have to pay
constexpr uint64_t kRunsThatPay = 8;
constexpr size_t kMaxReasons = 64;  // that are counted apart
constexpr const char* kOtherReasons = "other reasons";
constexpr const char* kFirstTime = "its kind came for the first time";
constexpr const char* kUnstable = "what its recording assumes changes from call to call";

uint64_t hash_of(const RecordingKey& key) {
  const std::string_view sizes(reinterpret_cast<const char*>(key.sizes.data()), key.sizes.size() * sizeof(int64_t));
  const std::hash<std::string_view> hash;
  return hash(key.structure) * 31 + hash(sizes);
}

}  // namespace

RecordingCache::Structure* RecordingCache::structure_of(const RecordingKey& key) {
  const auto found = structures_.find(key.structure);
  return found == structures_.end() ? nullptr : found->second.get();
}

RecordingCache::Found RecordingCache::find(const RecordingKey& key, Holds holds) {
  c10::SmallVector<Found, 2> fitting;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Structure* structure = structure_of(key);
    for (size_t i = 0; structure != nullptr && i < structure->uses.size(); ++i) {
      const Uses::iterator use = structure->uses[i];
      auto symbols = use->recording->pattern.match(key.sizes);
      if (symbols && (use->recording->guards == nullptr || use->recording->guards->hold(*symbols))) {
        uses_.splice(uses_.begin(), uses_, use);
        fitting.push_back({use->recording, std::move(*symbols)});
      }
    }
  }
  // A refusal stands for all calls of the kind, but for those that a recording serves all the same.
  Found refused;
  for (Found& each : fitting) {
    if (!each.recording->refusal.empty()) {
      refused = std::move(each);
    } else if (holds(*each.recording)) {
      return std::move(each);
    }
  }
  return refused;
}

RecordingCache::Decision RecordingCache::decide(const RecordingKey& key, bool records_first) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Structure* structure = structure_of(key);
  if (structure != nullptr && !structure->keeps_sizes) {
    SizePattern general(key.sizes, structure->first_sizes, structure->symbolic);
    if (general.has_symbols()) {
      return {std::move(general)};
    }
  }
  const bool is_first = records_first && seen_.is_empty();
  // The first recording of a structure is of any sizes: the next one leaves them open.
  const bool has_come =
      structure == nullptr && !key.sizes.empty() && (seen_.sees_again(hash_of(RecordingKey(key.structure))) || is_first);
  if (!seen_.sees_again(hash_of(key)) && !has_come && !is_first) {
    return {std::nullopt, kFirstTime};
  }
  if (structure != nullptr && !(sizes_pay(*structure) && were_used(*structure, key.sizes))) {
    if (!structure->patience.allows()) {
      return {std::nullopt, kUnstable};
    }
    structure->patience.lose();
  }
  return {SizePattern(key.sizes)};
}

// Returns whether recordings of one size each are worth their cost. Those of a data set whose sizes come once in an epoch
// are not.
bool RecordingCache::sizes_pay(const Structure& structure) {
  uint64_t runs = structure.dropped_runs;
  for (const Uses::iterator use : structure.uses) {
    runs += use->recording->pattern.has_symbols() ? 0 : use->recording->runs.load();
  }
  return structure.of_one_size < kMaxSizes || runs >= kRunsThatPay * structure.of_one_size;
}

// Returns whether one of the last recordings of these sizes has served a call, or still may.
bool RecordingCache::were_used(const Structure& structure, const std::vector<int64_t>& sizes) {
  size_t unused = 0;
  for (const Uses::iterator use : structure.uses) {
    if (use->recording->pattern.has_symbols() || !use->recording->pattern.match(sizes)) {
      continue;
    }
    if (use->recording->runs != 0 || !use->recording->is_ready()) {
      return true;
    }
    if (++unused >= kMaxUnused) {
      return false;
    }
  }
  return true;
}

void RecordingCache::insert(const RecordingKey& key, RecordingPtr recording, Holds holds) {
  Uses dropped;  // destroyed outside of the lock
  if (find(key, holds).recording != nullptr) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (structure_of(key) == nullptr) {
    auto made = std::make_unique<Structure>();
    made->key = key.structure;
    made->first_sizes = key.sizes;
    made->symbolic.resize(key.sizes.size());
    structures_.emplace(made->key, std::move(made));
  }
  Structure& structure = *structure_of(key);
  const bool is_general = recording->pattern.has_symbols();
  if (is_general) {
    const std::string& why = !recording->refusal.empty() ? recording->refusal : recording->why_sizes_are_fixed;
    if (!why.empty()) {
      structure.keeps_sizes = true;
      why_sizes_are_fixed_.insert(why);
    }
    if (!recording->refusal.empty()) {
      return;  // a recording of one size may not be refused
    }
    structure.keeps_sizes = structure.keeps_sizes || ++structure.general >= kMaxGeneral;
    const std::vector<bool> symbolic = recording->pattern.symbolic();
    std::transform(symbolic.begin(), symbolic.end(), structure.symbolic.begin(), structure.symbolic.begin(),
                   std::logical_or<>());
  }
  structure.of_one_size += is_general ? 0 : 1;
  if (uses_.size() >= capacity_) {
    drop(std::prev(uses_.end()), dropped, &structure);
  }
  uses_.push_front({std::move(recording), &structure});
  structure.uses.insert(is_general ? structure.uses.end() : structure.uses.begin(), uses_.begin());
}

void RecordingCache::drop(Uses::iterator use, Uses& dropped, const Structure* kept) {
  Structure& structure = *use->structure;
  structure.uses.erase(std::find(structure.uses.begin(), structure.uses.end(), use));
  structure.dropped_runs += use->recording->pattern.has_symbols() ? 0 : use->recording->runs.load();
  dropped.splice(dropped.begin(), uses_, use);
  if (structure.uses.empty() && &structure != kept) {
    structures_.erase(structures_.find(structure.key));
  }
}

void RecordingCache::keep_if(c10::function_ref<bool(const Recording&)> is_wanted) {
  Uses dropped;  // destroyed outside of the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto use = uses_.begin(); use != uses_.end();) {
    const auto next = std::next(use);
    if (!is_wanted(*use->recording)) {
      drop(use, dropped);
    }
    use = next;
  }
}

void RecordingCache::count_run(Recording& recording) {
  by_plan_.add();
  recording.runs.fetch_add(1, std::memory_order_relaxed);
}

void RecordingCache::count_eager(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_known = reasons_.size() < kMaxReasons || reasons_.count(reason) != 0;
  ++reasons_[is_known ? reason : kOtherReasons];
}

ServedCalls RecordingCache::served() const {
  ServedCalls served;
  served.by_plan = by_plan_.value();
  served.recorded = recorded_.value();
  const std::lock_guard<std::mutex> lock(mutex_);
  served.reasons.assign(reasons_.begin(), reasons_.end());
  for (const auto& [reason, times] : reasons_) {
    served.eager += times;
  }
  return served;
}

std::vector<std::string> RecordingCache::why_sizes_are_fixed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {why_sizes_are_fixed_.begin(), why_sizes_are_fixed_.end()};
}

std::vector<RecordingCache::RecordingPtr> RecordingCache::recordings() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<RecordingPtr> recordings;
  for (const Use& use : uses_) {
    recordings.push_back(use.recording);
  }
  return recordings;
}

void RecordingCache::wait_for_compiles() const {
  for (const RecordingPtr& recording : recordings()) {
    recording->wait_for_compile();
  }
}

void RecordingCache::clear() {
  Uses dropped;  // destroyed outside of the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  dropped.swap(uses_);
  structures_.clear();
  why_sizes_are_fixed_.clear();
  reasons_.clear();
  seen_ = SecondSight(kSeenKeys);
  by_plan_.reset();
  recorded_.reset();
}

}  // namespace sconce
