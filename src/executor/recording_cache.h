// RecordingCache: what has been recorded, by the calls that it serves.
#pragma once

#include "base/patience.h"
#include "executor/plan_cache/striped_counter.h"
#include "trace/sizes/size_pattern.h"
#include "trace/sizes/symbolic_sizes.h"

#include <c10/util/FunctionRef.h>

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sconce {

// A kind of calls. Refers to what it is made of.
struct RecordingKey {
  RecordingKey(std::string_view bytes, const std::vector<int64_t>& open) : structure(bytes), sizes(open) {}
  // Recordings of the kind leave no size open.
  explicit RecordingKey(std::string_view bytes) : RecordingKey(bytes, kNoSizes) {}

  std::string_view structure;         // what a recording depends on, as bytes
  const std::vector<int64_t>& sizes;  // what it may leave open

 private:
  static inline const std::vector<int64_t> kNoSizes;
};

// The recording of calls with one key: its plan, or the reason why there is none.
class Recording {
 public:
  virtual ~Recording() = default;
  // Returns whether there is a plan. It may be compiled in the background.
  virtual bool is_ready() const = 0;
  virtual void wait_for_compile() const = 0;

  SizePattern pattern;
  std::shared_ptr<const SymbolicSizes> guards;  // of the pattern's symbols; null if it has none
  std::string refusal;                          // why calls of this kind cannot be recorded; empty if they can
  std::string why_sizes_are_fixed;              // although the pattern leaves them open
  std::atomic<uint64_t> runs{0};                // of the plan
};

// How calls were served.
struct ServedCalls {
  uint64_t by_plan = 0;
  uint64_t recorded = 0;  // by the operators themselves, which were recorded
  uint64_t eager = 0;     // by the operators themselves, for these reasons
  std::vector<std::pair<std::string, uint64_t>> reasons;
};

// Maps keys of calls to recordings. A key may have several recordings, which assume different things; the owner checks what
// a recording assumes beyond its key (`Holds`). Recording costs as much as many calls. So the first key is recorded at once,
// a later key on its second call, and recordings that go unused make the table back off exponentially. The least recently
// used recording is dropped when the table is full. Thread-safe.
class RecordingCache {
 public:
  using RecordingPtr = std::shared_ptr<Recording>;
  // Returns whether what the recording assumes is so in this call. Asked without a lock, and not if the kind is refused.
  using Holds = c10::function_ref<bool(Recording&)>;
  struct Found {
    RecordingPtr recording;        // null if nothing is known of the call
    std::vector<int64_t> symbols;  // of its pattern
  };
  struct Decision {
    std::optional<SizePattern> pattern;  // of the sizes for which to record the call
    const char* why_not = nullptr;       // if it is not to be recorded
  };

  // `capacity`: how many recordings are kept.
  explicit RecordingCache(size_t capacity) : capacity_(capacity) {}

  Found find(const RecordingKey& key, Holds holds);
  // Decides about a call for which nothing was found. `records_first`: false if even the first kind must come again.
  Decision decide(const RecordingKey& key, bool records_first = true);
  // Keeps the recording, unless another thread has inserted one that serves the call.
  void insert(const RecordingKey& key, RecordingPtr recording, Holds holds);

  void count_run(Recording& recording);
  void count_recorded() { recorded_.add(); }
  void count_eager(const std::string& reason);

  ServedCalls served() const;
  std::vector<std::string> why_sizes_are_fixed() const;
  // Returns what was used last first.
  std::vector<RecordingPtr> recordings() const;
  void wait_for_compiles() const;
  void clear();
  // Drops the recordings that `is_wanted` does not want.
  void keep_if(c10::function_ref<bool(const Recording&)> is_wanted);

 private:
  struct Structure;
  struct Use {
    RecordingPtr recording;
    Structure* structure;
  };
  using Uses = std::list<Use>;
  // The recordings with one structure.
  struct Structure {
    std::string key;
    std::vector<Uses::iterator> uses;                          // those of one size first, the newest of them first
    std::vector<int64_t> first_sizes;                          // for which the first one was recorded
    std::vector<bool> symbolic;                                // which sizes one leaves open
    size_t general = 0;                                        // how many leave sizes open
    bool keeps_sizes = false;                                  // no recording can leave sizes open
    size_t of_one_size = 0;                                    // how many have been made
    uint64_t dropped_runs = 0;                                 // of those of one size that are no longer kept
    Patience patience{{.losses = 1, .rest = 1, .growth = 2}};  // with recordings that are not used
  };
  struct HashOfText {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  static constexpr size_t kSeenKeys = 1024;

  Structure* structure_of(const RecordingKey& key);
  static bool sizes_pay(const Structure& structure);
  static bool were_used(const Structure& structure, const std::vector<int64_t>& sizes);
  // Moves a recording to `dropped`, and removes its structure if that has no other one, and is not `kept`.
  void drop(Uses::iterator use, Uses& dropped, const Structure* kept = nullptr);

  const size_t capacity_;
  StripedCounter by_plan_;
  StripedCounter recorded_;
  mutable std::mutex mutex_;  // guards what follows
  Uses uses_;                 // those used last first
  std::unordered_map<std::string, std::unique_ptr<Structure>, HashOfText, std::equal_to<>> structures_;
  std::map<std::string, uint64_t> reasons_;
  std::set<std::string> why_sizes_are_fixed_;
  SecondSight seen_{kSeenKeys};
};

}  // namespace sconce
