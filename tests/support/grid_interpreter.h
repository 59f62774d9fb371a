// Runs grid programs on the CPU: the statements that the CUDA text is printed of, for all threads of a block in step.
#pragma once

#include "fusion/cuda/grid_program.h"
#include "plan/device/device.h"
#include "tests/support/scalars.h"

#include <cstdint>
#include <set>
#include <vector>

namespace sconce::testing {

// The arguments of a launch.
struct GridCall {
  std::vector<void*> first;  // elements of the operands: the inputs, then the outputs
  std::vector<int64_t> numbers;
  std::vector<int64_t> words;
};

// Fails the test where threads go wrong together: a barrier or a shuffle that not all of them reach, shared memory that one
// thread reads while another writes, an element that two threads store, an access that is not aligned, an index that does
// not fit its type.
class GridInterpreter {
 public:
  GridInterpreter(const GridProgram& grid, const LaunchShape& shape, const GridCall& call);
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
  void run_loop(size_t at, const Mask& mask);
  void run_statement(const GridStatement& each, const Mask& mask);
  Scalar value_of(const GridStatement& each, size_t thread);
  bool are_aligned(int64_t elements) const;
  void load(const GridStatement& each, size_t thread);
  void store(const GridStatement& each, size_t thread);
  char* shared(int64_t offset, size_t bytes, size_t thread, bool writes);
  Scalar shuffled(const GridStatement& each, size_t thread, const Mask& mask) const;

  Scalar& of(GridVariable variable, size_t thread) { return values_[variable][thread]; }
  c10::ScalarType type_of(GridVariable variable) const { return grid_.types[variable]; }

  const GridProgram& grid_;
  const LaunchShape shape_;
  const GridCall& call_;
  const size_t threads_;
  std::vector<size_t> ends_;                 // by statement that begins a range: the kEnd of it
  std::vector<std::vector<Scalar>> values_;  // by variable, then by thread
  std::vector<char> shared_;
  std::vector<Touch> touched_;  // by byte of shared memory
  size_t barriers_ = 1;
  uint32_t block_ = 0;
  std::set<const char*> stored_;  // elements, by all blocks
};

}  // namespace sconce::testing
