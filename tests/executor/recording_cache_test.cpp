#include "executor/recording_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using Sizes = std::vector<int64_t>;

// Assumes a number.
struct OfANumber final : Recording {
  explicit OfANumber(int number) : assumed(number) {}
  bool is_ready() const override { return ready; }
  void wait_for_compile() const override { ++waits; }

  int assumed;
  bool ready = true;
  mutable int waits = 0;
};

// Calls of a program, in which each recorded one is inserted.
class Program {
 public:
  explicit Program(size_t capacity = 64) : table(capacity) {}

  // Returns "run", "refused", "recorded", or why the call was not recorded.
  std::string call(const std::string& structure, const Sizes& sizes = {}, int state = 0, bool records_first = true) {
    const RecordingKey key{structure, sizes};
    const auto holds = [&](Recording& plan) { return static_cast<OfANumber&>(plan).assumed == state; };
    const RecordingCache::Found found = table.find(key, holds);
    if (found.recording != nullptr && !found.recording->refusal.empty()) {
      return "refused";
    }
    if (found.recording != nullptr) {
      table.count_run(*found.recording);
      symbols = found.symbols;
      return "run";
    }
    const RecordingCache::Decision decision = table.decide(key, records_first);
    if (!decision.pattern) {
      table.count_eager(decision.why_not);
      return decision.why_not;
    }
    const auto made = std::make_shared<OfANumber>(state);
    made->pattern = *decision.pattern;
    made->refusal = refusal;
    made->ready = ready;
    table.count_recorded();
    table.insert(key, made, holds);
    return "recorded";
  }

  RecordingCache table;
  Sizes symbols;        // of the last run
  std::string refusal;  // of what is recorded next
  bool ready = true;
};

const std::string kFirst = "its kind came for the first time";
const std::string kUnstable = "what its recording assumes changes from call to call";

TEST(RecordingCache, RecordsTheFirstKindAtOnceAndLaterOnesAgain) {
  Program program;
  EXPECT_EQ(program.call("a"), "recorded");
  EXPECT_EQ(program.call("a"), "run");
  for (int kind = 0; kind < 1000; ++kind) {
    EXPECT_EQ(program.call("b" + std::to_string(kind)), kFirst);
  }
  EXPECT_EQ(program.table.recordings().size(), 1U);
  EXPECT_EQ(program.call("b7"), "recorded");
  EXPECT_EQ(program.call("b7"), "run");
  const ServedCalls served = program.table.served();
  EXPECT_EQ(served.by_plan, 2U);
  EXPECT_EQ(served.recorded, 2U);
  EXPECT_EQ(served.eager, 1000U);
  EXPECT_EQ(served.reasons, (std::vector<std::pair<std::string, uint64_t>>{{kFirst, 1000}}));
  Program patient;
  EXPECT_EQ(patient.call("a", {}, 0, /*records_first=*/false), kFirst);
  EXPECT_EQ(patient.call("a", {}, 0, /*records_first=*/false), "recorded");
}

TEST(RecordingCache, DropsWhatWasNotUsedForTheLongestTime) {
  Program program(3);
  for (const std::string kind : {"a", "b", "c", "d"}) {
    program.call(kind);
    program.call(kind);
    EXPECT_EQ(program.call(kind), "run");
    EXPECT_EQ(program.call("a"), "run");
  }
  EXPECT_EQ(program.table.recordings().size(), 3U);
  EXPECT_EQ(program.call("d"), "run");
  EXPECT_EQ(program.call("c"), "run");
  EXPECT_EQ(program.call("b"), "recorded");  // it has come before
  EXPECT_EQ(program.call("a"), "recorded");
}

TEST(RecordingCache, KeepsSeveralRecordingsOfAKind) {
  Program program;
  for (int state = 0; state < 3; ++state) {
    EXPECT_EQ(program.call("a", {}, state), "recorded");
    EXPECT_EQ(program.call("a", {}, state), "run");
  }
  for (int state = 0; state < 3; ++state) {
    EXPECT_EQ(program.call("a", {}, state), "run");
  }
}

TEST(RecordingCache, RecordsEverFewerCallsOfAKindWhoseRecordingsAreNotUsed) {
  Program program;
  int recorded = 0;
  for (int state = 0; state < 1000; ++state) {
    recorded += program.call("a", {}, state) == "recorded" ? 1 : 0;
  }
  EXPECT_GE(recorded, 4);
  EXPECT_LE(recorded, 14);
  EXPECT_EQ(program.table.served().reasons.front().first, kUnstable);
  std::string last;  // it settles
  for (int call = 0; call < 2000 && last != "run"; ++call) {
    last = program.call("a", {}, 1000);
  }
  EXPECT_EQ(last, "run");
  EXPECT_EQ(program.call("a", {}, 1001), "recorded");
}

// What is being compiled may yet be used.
TEST(RecordingCache, GivesRecordingsTimeToBeCompiled) {
  Program program;
  program.ready = false;
  for (int state = 0; state < 10; ++state) {
    EXPECT_EQ(program.call("a", {}, state), "recorded");
  }
}

TEST(RecordingCache, ARefusalStandsForItsKindButHidesNoPlan) {
  Program program;
  EXPECT_EQ(program.call("a", {}, 1), "recorded");
  program.refusal = "it cannot be";
  EXPECT_EQ(program.call("a", {}, 2), "recorded");
  EXPECT_EQ(program.call("a", {}, 3), "refused");
  EXPECT_EQ(program.call("a", {}, 1), "run");
}

TEST(RecordingCache, LeavesSizesOpenThatChange) {
  Program program;
  EXPECT_EQ(program.call("a", {4, 6}), "recorded");
  EXPECT_EQ(program.call("a", {4, 6}), "run");
  EXPECT_EQ(program.call("a", {8, 6}), "recorded");
  EXPECT_EQ(program.call("a", {100, 6}), "run");
  EXPECT_EQ(program.symbols, Sizes{100});
  EXPECT_EQ(program.call("a", {1, 6}), kFirst);  // sizes of 1 mean something else
  EXPECT_EQ(program.call("a", {1, 6}), "recorded");
  EXPECT_EQ(program.call("a", {4, 6}), "run");
}

TEST(RecordingCache, KeepsSizesWhereNoRecordingCanLeaveThemOpen) {
  Program program;
  EXPECT_EQ(program.call("a", {4}), "recorded");
  program.refusal = "it reads a size";
  EXPECT_EQ(program.call("a", {8}), "recorded");
  program.refusal.clear();
  EXPECT_EQ(program.table.why_sizes_are_fixed(), std::vector<std::string>{"it reads a size"});
  EXPECT_EQ(program.call("a", {8}), kFirst);
  EXPECT_EQ(program.call("a", {8}), "recorded");
  EXPECT_EQ(program.call("a", {8}), "run");
  EXPECT_EQ(program.call("a", {16}), kFirst);
}

// The sizes of a data set come once in an epoch, and there are more of them than recordings are kept.
TEST(RecordingCache, RecordsEverFewerSizesThatComeSeldom) {
  Program program;
  EXPECT_EQ(program.call("a", {4}), "recorded");
  program.refusal = "it reads a size";
  EXPECT_EQ(program.call("a", {8}), "recorded");
  program.refusal.clear();
  int recorded = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (int64_t size = 100; size < 200; ++size) {
      recorded += program.call("a", {size}) == "recorded" ? 1 : 0;
    }
  }
  EXPECT_GE(recorded, 16);
  EXPECT_LE(recorded, 100);
}

TEST(RecordingCache, CountsManyReasonsTogether) {
  Program program;
  for (int i = 0; i < 1000; ++i) {
    program.table.count_eager("reason " + std::to_string(i));
  }
  EXPECT_LE(program.table.served().reasons.size(), 65U);
  EXPECT_EQ(program.table.served().eager, 1000U);
}

TEST(RecordingCache, WaitsForAllAndForgetsAll) {
  Program program;
  program.call("a");
  const auto plan = program.table.recordings().front();
  program.table.wait_for_compiles();
  EXPECT_EQ(static_cast<const OfANumber&>(*plan).waits, 1);
  program.table.clear();
  EXPECT_TRUE(program.table.recordings().empty());
  EXPECT_EQ(program.table.served().recorded, 0U);
  EXPECT_EQ(program.call("a"), "recorded");
}

}  // namespace
}  // namespace sconce::testing
