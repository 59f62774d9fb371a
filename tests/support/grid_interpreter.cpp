#include "tests/support/grid_interpreter.h"

#include "fusion/cuda/reciprocal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace sconce::testing {
namespace {

constexpr size_t kWarp = 32;

bool is_any(const std::vector<bool>& mask) { return std::find(mask.begin(), mask.end(), true) != mask.end(); }

}  // namespace

GridInterpreter::GridInterpreter(const GridProgram& grid, const LaunchShape& shape, const GridCall& call)
    : grid_(grid), shape_(shape), call_(call), threads_(shape.block[0]), ends_(grid.statements.size(), 0) {
  std::vector<size_t> open;
  for (size_t i = 0; i < grid.statements.size(); ++i) {
    const GridOp op = grid.statements[i].op;
    if (op == GridOp::kFor || op == GridOp::kIf) {
      open.push_back(i);
    } else if (op == GridOp::kEnd) {
      ends_[open.back()] = i;
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty()) << "a range has no end";
  EXPECT_EQ(call.words.size(), grid.words);
  EXPECT_EQ(shape.block[0], grid.form.threads);
}

void GridInterpreter::run() {
  for (uint32_t block = 0; block < shape_.grid[0] && !::testing::Test::HasFatalFailure(); ++block) {
    run_block(block);
  }
}

void GridInterpreter::run_block(uint32_t block) {
  block_ = block;
  barriers_ = 1;
  values_.assign(grid_.types.size(), std::vector<Scalar>(threads_));
  shared_.assign(shape_.shared_bytes, '\x5A');
  touched_.assign(shape_.shared_bytes, {});
  run_statements(0, grid_.statements.size(), Mask(threads_, true));
}

void GridInterpreter::run_statements(size_t begin, size_t end, const Mask& mask) {
  for (size_t i = begin; i < end && !::testing::Test::HasFatalFailure(); ++i) {
    const GridStatement& each = grid_.statements[i];
    if (each.op == GridOp::kFor) {
      run_loop(i, mask);
      i = ends_[i];
    } else if (each.op == GridOp::kIf) {
      Mask inner = mask;
      for (size_t thread = 0; thread < threads_; ++thread) {
        inner[thread] = mask[thread] && of(each.operands[0], thread).whole != 0;
      }
      run_statements(i + 1, ends_[i], inner);
      i = ends_[i];
    } else {
      run_statement(each, mask);
    }
  }
}

void GridInterpreter::run_loop(size_t at, const Mask& mask) {
  const GridStatement& loop = grid_.statements[at];
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

void GridInterpreter::run_statement(const GridStatement& each, const Mask& mask) {
  if (each.op == GridOp::kBarrier) {
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
      case GridOp::kLoad: load(each, thread); break;
      case GridOp::kStore: store(each, thread); break;
      case GridOp::kSharedStore: {
        const c10::ScalarType type = type_of(each.operands[1]);
        const size_t bytes = c10::elementSize(type);
        const size_t count = each.operands.size() - 1;
        char* const at = shared(of(each.operands[0], thread).whole, bytes * count, thread, true);
        for (size_t i = 0; at != nullptr && i < count; ++i) {
          scalar_to_memory(type, at + i * bytes, of(each.operands[i + 1], thread));
        }
        break;
      }
      case GridOp::kSharedLoad: {
        const c10::ScalarType type = type_of(each.results[0]);
        const size_t bytes = c10::elementSize(type);
        const char* const at = shared(of(each.operands[0], thread).whole, bytes * each.results.size(), thread, false);
        for (size_t i = 0; at != nullptr && i < each.results.size(); ++i) {
          of(each.results[i], thread) = scalar_from_memory(type, at + i * bytes);
        }
        break;
      }
      case GridOp::kShuffle: results[thread] = shuffled(each, thread, mask); break;
      default: results[thread] = value_of(each, thread); break;
    }
  }
  // All threads read before one writes: a shuffle.
  const bool has_result = each.op != GridOp::kLoad && each.op != GridOp::kStore && each.op != GridOp::kSharedLoad &&
                          each.op != GridOp::kSharedStore;
  for (size_t thread = 0; thread < threads_ && has_result; ++thread) {
    if (mask[thread]) {
      of(each.results[0], thread) = results[thread];
    }
  }
}

Scalar GridInterpreter::value_of(const GridStatement& each, size_t thread) {
  const auto operand = [&](size_t i) { return of(each.operands[i], thread); };
  const auto index = [&](int64_t value) -> Scalar {
    EXPECT_TRUE(grid_.form.is_wide ||
                (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()))
        << value;
    return {.whole = value};
  };
  switch (each.op) {
    case GridOp::kConstant: return index(each.number);
    case GridOp::kWord: return index(call_.words.at(static_cast<size_t>(each.number)));
    case GridOp::kThread: return index(static_cast<int64_t>(thread));
    case GridOp::kBlock: return index(block_);
    case GridOp::kBlocks: return index(shape_.grid[0]);
    case GridOp::kAdd: return index(operand(0).whole + operand(1).whole);
    case GridOp::kSubtract: return index(operand(0).whole - operand(1).whole);
    case GridOp::kMultiply: return index(operand(0).whole * operand(1).whole);
    case GridOp::kDivide: return index(operand(0).whole / operand(1).whole);
    case GridOp::kRemainder: return index(operand(0).whole % operand(1).whole);
    case GridOp::kQuotient: {
      EXPECT_FALSE(grid_.form.is_wide);
      EXPECT_GE(operand(0).whole, 0);
      return index(
          quotient(operand(0).whole, {static_cast<uint32_t>(operand(1).whole), static_cast<uint32_t>(operand(2).whole)}));
    }
    case GridOp::kMinimum: return index(std::min(operand(0).whole, operand(1).whole));
    case GridOp::kLess: return {.whole = operand(0).whole < operand(1).whole};
    case GridOp::kBoth: return {.whole = operand(0).whole != 0 && operand(1).whole != 0};
    case GridOp::kChoose: return operand(0).whole != 0 ? operand(1) : operand(2);
    case GridOp::kIsAligned: return {.whole = are_aligned(each.number)};
    case GridOp::kParameter: return scalar_of_number(type_of(each.results[0]), call_.numbers.at(each.number));
    case GridOp::kLength: return {.real = rounded_to(type_of(each.results[0]), static_cast<double>(operand(0).whole))};
    case GridOp::kAssign: return operand(0);
    case GridOp::kCompute: {
      const size_t count = each.operands.size();
      const size_t typed = each.instruction.op == MachineOp::kSelect ? 1 : 0;
      return compute_scalar(each.instruction, count == 0 ? each.instruction.type : type_of(each.operands[typed]),
                            count > 0 ? operand(0) : Scalar(), count > 1 ? operand(1) : Scalar(),
                            count > 2 ? operand(2) : Scalar(), /*fuses=*/true);
    }
    default: ADD_FAILURE() << "statement " << static_cast<int>(each.op); return {};
  }
}

bool GridInterpreter::are_aligned(int64_t elements) const {
  for (size_t k = 0; k < call_.first.size(); ++k) {
    const auto bytes = c10::elementSize(grid_.program.type_of_operand(k)) * static_cast<size_t>(elements);
    if (grid_.program.access_of_operand(k) == Access::kElements &&
        reinterpret_cast<uintptr_t>(call_.first[k]) % bytes != 0) {
      return false;
    }
  }
  return true;
}

void GridInterpreter::load(const GridStatement& each, size_t thread) {
  const auto operand = static_cast<size_t>(each.number);
  const c10::ScalarType type = grid_.program.type_of_operand(operand);
  const char* at = static_cast<const char*>(call_.first[operand]) + of(each.operands[0], thread).whole;
  ASSERT_EQ(reinterpret_cast<uintptr_t>(at) % (c10::elementSize(type) * each.results.size()), 0U) << "operand " << operand;
  for (const GridVariable result : each.results) {
    of(result, thread) = scalar_from_memory(type, at);
    at += c10::elementSize(type);
  }
}

void GridInterpreter::store(const GridStatement& each, size_t thread) {
  const auto operand = static_cast<size_t>(each.number);
  const c10::ScalarType type = grid_.program.type_of_operand(operand);
  char* at = static_cast<char*>(call_.first[operand]) + of(each.operands[0], thread).whole;
  const size_t count = each.operands.size() - 1;
  ASSERT_EQ(reinterpret_cast<uintptr_t>(at) % (c10::elementSize(type) * count), 0U) << "operand " << operand;
  for (size_t i = 1; i <= count; ++i) {
    ASSERT_TRUE(stored_.insert(at).second) << "two threads store one element of operand " << operand;
    scalar_to_memory(type, at, of(each.operands[i], thread));
    at += c10::elementSize(type);
  }
}

char* GridInterpreter::shared(int64_t offset, size_t bytes, size_t thread, bool writes) {
  const auto begin = static_cast<size_t>(offset);
  const bool is_inside = offset >= 0 && begin + bytes <= shared_.size() && begin % bytes == 0;
  EXPECT_TRUE(is_inside) << "byte " << offset << " of " << shared_.size();
  if (!is_inside) {
    return nullptr;
  }
  for (size_t i = begin; i < begin + bytes; ++i) {
    Touch& touch = touched_[i];
    EXPECT_FALSE(touch.written_at == barriers_ && touch.writer != thread) << "byte " << i << " is written meanwhile";
    EXPECT_FALSE(writes && touch.read_at == barriers_ && touch.reader != thread) << "byte " << i << " is read meanwhile";
    EXPECT_TRUE(writes || touch.written_at != 0) << "byte " << i << " has no value";
    (writes ? touch.written_at : touch.read_at) = barriers_;
    (writes ? touch.writer : touch.reader) = thread;
  }
  return shared_.data() + begin;
}

Scalar GridInterpreter::shuffled(const GridStatement& each, size_t thread, const Mask& mask) const {
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
