// Runs loop programs: the statements that CUDA text and LLVM IR are printed of, for all threads of a block, or all lanes of
// a vector, in step.
#pragma once

#include "fusion/program/loop_program.h"
#include "plan/device/device.h"
#include "tests/support/scalars.h"

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace sconce::testing {

// The arguments of a launch.
struct LoopCall {
  std::vector<void*> first;  // elements of the operands: the inputs, then the outputs
  std::vector<int64_t> numbers;
  std::vector<int64_t> words;
};

// Fails the test where threads go wrong together: a barrier or a shuffle that not all of them reach, shared memory that one
// thread reads while another writes, an element that two threads store, an access that is not aligned, an index that does
// not fit its type.
class LoopInterpreter {
 public:
  // `is_wide`: indices have 64 bits.
  LoopInterpreter(const LoopProgram& loops, const LaunchShape& shape, const LoopCall& call, bool is_wide);
  void run();

 private:
  using Mask = std::vector<bool>;  // by thread of the block
  // The last write and the last read of a byte of shared memory: the thread, and the number of barriers before it.
  struct Touch {
    size_t written_at = 0;
    size_t writer = 0;
    size_t read_at = 0;
    size_t reader = 0;
  };

  void run_block(uint32_t block);
  void run_statements(size_t begin, size_t end, const Mask& mask);
  void run_for(size_t at, const Mask& mask);
  void run_loop(size_t at, const Mask& mask);
  bool is_true(const LoopStatement& each, const Mask& mask);
  void run_statement(const LoopStatement& each, const Mask& mask);
  Scalar value_of(const LoopStatement& each, size_t thread);
  bool are_aligned(int64_t elements) const;
  void load(const LoopStatement& each, size_t thread);
  void store(const LoopStatement& each, size_t thread);
  char* address_of(const LoopStatement& each, c10::ScalarType type, size_t neighbors, size_t thread);
  bool is_shared(const char* at) const {
    return !std::less<>()(at, shared_.data()) && std::less<>()(at, shared_.data() + shared_.size());
  }
  void touch_shared(size_t begin, size_t bytes, size_t thread, bool writes);
  Scalar shuffled(const LoopStatement& each, size_t thread, const Mask& mask) const;

  Scalar& of(LoopVariable variable, size_t thread) { return values_[variable][thread]; }
  c10::ScalarType type_of(LoopVariable variable) const { return loops_.types[variable]; }

  const LoopProgram& loops_;
  const LaunchShape shape_;
  const LoopCall& call_;
  const bool is_wide_;
  const size_t threads_;
  std::vector<size_t> ends_;                 // by statement that begins a range: the kEnd of it
  std::vector<std::vector<Scalar>> values_;  // by variable, then by thread
  std::vector<char> shared_;
  std::vector<Touch> touched_;  // by byte of shared memory
  size_t barriers_ = 1;
  uint32_t block_ = 0;
  std::map<const char*, size_t> stored_;  // by element: the thread of the grid
};

}  // namespace sconce::testing
