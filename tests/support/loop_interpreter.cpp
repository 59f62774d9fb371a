#include "tests/support/loop_interpreter.h"

#include "fusion/cuda/reciprocal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

namespace sconce::testing {
namespace {

constexpr size_t kWarp = 32;

bool is_any(const std::vector<bool>& mask) { return std::find(mask.begin(), mask.end(), true) != mask.end(); }

}  // namespace

LoopInterpreter::LoopInterpreter(const LoopProgram& loops, const LaunchShape& shape, const LoopCall& call, bool is_wide)
    : loops_(loops),
      shape_(shape),
      call_(call),
      is_wide_(is_wide),
      threads_(shape.block[0]),
      ends_(loops.statements.size(), 0) {
  std::vector<size_t> open;
  for (size_t i = 0; i < loops.statements.size(); ++i) {
    const LoopOp op = loops.statements[i].op;
    if (op == LoopOp::kFor || op == LoopOp::kLoop || op == LoopOp::kIf) {
      open.push_back(i);
    } else if (op == LoopOp::kEnd) {
      ends_[open.back()] = i;
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty()) << "a range has no end";
  EXPECT_EQ(call.words.size(), loops.words);
}

void LoopInterpreter::run() {
  for (uint32_t block = 0; block < shape_.grid[0] && !::testing::Test::HasFatalFailure(); ++block) {
    run_block(block);
  }
}

void LoopInterpreter::run_block(uint32_t block) {
  block_ = block;
  barriers_ = 1;
  values_.assign(loops_.types.size(), std::vector<Scalar>(threads_));
  shared_.assign(shape_.shared_bytes, '\x5A');
  touched_.assign(shape_.shared_bytes, {});
  run_statements(0, loops_.statements.size(), Mask(threads_, true));
}

void LoopInterpreter::run_statements(size_t begin, size_t end, const Mask& mask) {
  for (size_t i = begin; i < end && !::testing::Test::HasFatalFailure(); ++i) {
    const LoopStatement& each = loops_.statements[i];
    if (each.op == LoopOp::kFor || each.op == LoopOp::kLoop) {
      each.op == LoopOp::kFor ? run_for(i, mask) : run_loop(i, mask);
      i = ends_[i];
    } else if (each.op == LoopOp::kIf) {
      Mask inner = mask;
      for (size_t thread = 0; thread < threads_; ++thread) {
        inner[thread] = mask[thread] && of(each.operands[0], thread).whole != 0;
      }
      if (is_any(inner)) {
        run_statements(i + 1, ends_[i], inner);
      }
      i = ends_[i];
    } else {
      run_statement(each, mask);
    }
  }
}

void LoopInterpreter::run_for(size_t at, const Mask& mask) {
  const LoopStatement& loop = loops_.statements[at];
  Mask inner = mask;
  const auto update = [&](bool is_first) {
    for (size_t thread = 0; thread < threads_; ++thread) {
      if (inner[thread]) {
        Scalar& place = of(loop.results[0], thread);
        place.whole = is_first ? of(loop.operands[0], thread).whole : place.whole + of(loop.operands[2], thread).whole;
        inner[thread] = place.whole < of(loop.operands[1], thread).whole;
      }
    }
  };
  for (update(true); is_any(inner) && !::testing::Test::HasFatalFailure(); update(false)) {
    run_statements(at + 1, ends_[at], inner);
  }
}

void LoopInterpreter::run_loop(size_t at, const Mask& mask) {
  const size_t end = ends_[at];
  size_t leaves = at + 1;  // the kWhile of the loop, or its kEnd
  while (leaves < end && loops_.statements[leaves].op != LoopOp::kWhile) {
    leaves = std::max(leaves, ends_[leaves]) + 1;
  }
  run_statements(at + 1, leaves, mask);
  while (!::testing::Test::HasFatalFailure() && is_true(loops_.statements[leaves], mask)) {
    run_statements(leaves + 1, end, mask);
    run_statements(at + 1, leaves, mask);
  }
}

bool LoopInterpreter::is_true(const LoopStatement& each, const Mask& mask) {
  std::set<bool> answers;
  for (size_t thread = 0; thread < threads_; ++thread) {
    if (mask[thread]) {
      answers.insert(of(each.operands[0], thread).whole != 0);
    }
  }
  EXPECT_EQ(answers.size(), 1U) << "threads leave a loop in different turns";
  return answers.contains(true);
}

void LoopInterpreter::run_statement(const LoopStatement& each, const Mask& mask) {
  if (each.op == LoopOp::kBarrier) {
    ASSERT_TRUE(std::all_of(mask.begin(), mask.end(), [](bool is_active) { return is_active; })) << "a barrier";
    ++barriers_;
    return;
  }
  std::vector<Scalar> results(threads_);
  for (size_t thread = 0; thread < threads_; ++thread) {
    if (!mask[thread]) {
      continue;
    }
    switch (each.op) {
      case LoopOp::kLoad:
      case LoopOp::kLoadLanes: load(each, thread); break;
      case LoopOp::kStore:
      case LoopOp::kStoreLanes: store(each, thread); break;
      case LoopOp::kStoreOnce:
        if (thread == 0) {
          store(each, thread);
        }
        break;
      case LoopOp::kShuffle: results[thread] = shuffled(each, thread, mask); break;
      default: results[thread] = value_of(each, thread); break;
    }
  }
  // All threads read before one writes: a shuffle.
  const bool has_result = each.op < LoopOp::kLoad || each.op > LoopOp::kStoreOnce;
  for (size_t thread = 0; thread < threads_ && has_result; ++thread) {
    if (mask[thread]) {
      of(each.results[0], thread) = results[thread];
    }
  }
}

Scalar LoopInterpreter::value_of(const LoopStatement& each, size_t thread) {
  const auto operand = [&](size_t i) { return of(each.operands[i], thread); };
  const auto index = [&](int64_t value) -> Scalar {
    EXPECT_TRUE(is_wide_ || (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()))
        << value;
    return {.whole = value};
  };
  switch (each.op) {
    case LoopOp::kConstant: return index(each.number);
    case LoopOp::kWord: return index(call_.words.at(static_cast<size_t>(each.number)));
    case LoopOp::kThread: return index(static_cast<int64_t>(thread));
    case LoopOp::kBlock: return index(block_);
    case LoopOp::kBlocks: return index(shape_.grid[0]);
    case LoopOp::kAddress: {
      const void* const first = call_.first.at(static_cast<size_t>(each.number));
      return {.whole = reinterpret_cast<intptr_t>(first) + (each.operands.empty() ? 0 : operand(0).whole)};
    }
    case LoopOp::kSharedAddress: {
      const auto offset = static_cast<size_t>(operand(0).whole);
      EXPECT_LT(offset, shared_.size());
      return {.whole = reinterpret_cast<intptr_t>(shared_.data() + offset)};
    }
    case LoopOp::kAdd: return index(operand(0).whole + operand(1).whole);
    case LoopOp::kSubtract: return index(operand(0).whole - operand(1).whole);
    case LoopOp::kMultiply: return index(operand(0).whole * operand(1).whole);
    case LoopOp::kDivide: return index(operand(0).whole / operand(1).whole);
    case LoopOp::kRemainder: return index(operand(0).whole % operand(1).whole);
    case LoopOp::kQuotient: {
      EXPECT_FALSE(is_wide_);
      EXPECT_GE(operand(0).whole, 0);
      return index(
          quotient(operand(0).whole, {static_cast<uint32_t>(operand(1).whole), static_cast<uint32_t>(operand(2).whole)}));
    }
    case LoopOp::kMinimum: return index(std::min(operand(0).whole, operand(1).whole));
    case LoopOp::kLess: return {.whole = operand(0).whole < operand(1).whole};
    case LoopOp::kLessOrEqual: return {.whole = operand(0).whole <= operand(1).whole};
    case LoopOp::kBoth: return {.whole = operand(0).whole != 0 && operand(1).whole != 0};
    case LoopOp::kChoose: return operand(0).whole != 0 ? operand(1) : operand(2);
    case LoopOp::kIsAligned: return {.whole = are_aligned(each.number)};
    case LoopOp::kParameter: return scalar_of_number(type_of(each.results[0]), call_.numbers.at(each.number));
    case LoopOp::kLength: return {.real = rounded_to(type_of(each.results[0]), static_cast<double>(operand(0).whole))};
    case LoopOp::kAssign: return operand(0);
    case LoopOp::kCompute: {
      const size_t count = each.operands.size();
      const size_t typed = each.instruction.op == MachineOp::kSelect ? 1 : 0;
      return compute_scalar(each.instruction, count == 0 ? each.instruction.type : type_of(each.operands[typed]),
                            count > 0 ? operand(0) : Scalar(), count > 1 ? operand(1) : Scalar(),
                            count > 2 ? operand(2) : Scalar(), /*fuses=*/true);
    }
    default: ADD_FAILURE() << "statement " << static_cast<int>(each.op); return {};
  }
}

bool LoopInterpreter::are_aligned(int64_t elements) const {
  for (size_t k = 0; k < call_.first.size(); ++k) {
    const auto bytes = c10::elementSize(loops_.program.type_of_operand(k)) * static_cast<size_t>(elements);
    if (loops_.program.access_of_operand(k) == Access::kElements &&
        reinterpret_cast<uintptr_t>(call_.first[k]) % bytes != 0) {
      return false;
    }
  }
  return true;
}

char* LoopInterpreter::address_of(const LoopStatement& each, c10::ScalarType type, size_t neighbors, size_t thread) {
  const bool is_of_lane = each.op == LoopOp::kLoadLanes || each.op == LoopOp::kStoreLanes;
  const int64_t elements = is_of_lane ? of(each.operands[1], thread).whole + static_cast<int64_t>(thread) : 0;
  const auto bytes = static_cast<int64_t>(c10::elementSize(type));
  const int64_t at = of(each.operands[0], thread).whole + elements * bytes;
  const int64_t whole = bytes * static_cast<int64_t>(neighbors);
  EXPECT_EQ(at % whole, 0) << "of " << neighbors << " elements";
  char* const address = reinterpret_cast<char*>(at);
  if (is_shared(address)) {
    touch_shared(static_cast<size_t>(address - shared_.data()), static_cast<size_t>(whole), thread, each.results.empty());
  }
  return address;
}

void LoopInterpreter::load(const LoopStatement& each, size_t thread) {
  const c10::ScalarType type = type_of(each.results[0]);
  const char* at = address_of(each, type, each.results.size(), thread);
  for (const LoopVariable result : each.results) {
    of(result, thread) = scalar_from_memory(type, at);
    at += c10::elementSize(type);
  }
}

// A vector may store an element again, which it has read meanwhile: an output that serves as a buffer.
void LoopInterpreter::store(const LoopStatement& each, size_t thread) {
  const size_t first = each.op == LoopOp::kStoreLanes ? 2 : 1;
  const c10::ScalarType type = type_of(each.operands[first]);
  char* at = address_of(each, type, each.operands.size() - first, thread);
  for (size_t i = first; i < each.operands.size(); ++i) {
    const size_t writer = block_ * threads_ + thread;
    const bool is_alone = is_shared(at) || stored_.try_emplace(at, writer).first->second == writer;
    ASSERT_TRUE(is_alone) << "two threads store one element";
    scalar_to_memory(type, at, of(each.operands[i], thread));
    at += c10::elementSize(type);
  }
}

void LoopInterpreter::touch_shared(size_t begin, size_t bytes, size_t thread, bool writes) {
  ASSERT_LE(begin + bytes, shared_.size());
  for (size_t i = begin; i < begin + bytes; ++i) {
    Touch& touch = touched_[i];
    EXPECT_FALSE(touch.written_at == barriers_ && touch.writer != thread) << "byte " << i << " is written meanwhile";
    EXPECT_FALSE(writes && touch.read_at == barriers_ && touch.reader != thread) << "byte " << i << " is read meanwhile";
    EXPECT_TRUE(writes || touch.written_at != 0) << "byte " << i << " has no value";
    (writes ? touch.written_at : touch.read_at) = barriers_;
    (writes ? touch.writer : touch.reader) = thread;
  }
}

Scalar LoopInterpreter::shuffled(const LoopStatement& each, size_t thread, const Mask& mask) const {
  const size_t first = thread / kWarp * kWarp;
  const bool is_whole =
      std::all_of(mask.begin() + static_cast<std::ptrdiff_t>(first),
                  mask.begin() + static_cast<std::ptrdiff_t>(first + kWarp), [](bool is_active) { return is_active; });
  EXPECT_TRUE(is_whole) << "a warp shuffles in part";
  const size_t other = thread ^ static_cast<size_t>(each.number);
  EXPECT_EQ(other / kWarp, thread / kWarp);
  return values_[each.operands[0]][other];
}

}  // namespace sconce::testing
