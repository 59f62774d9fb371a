// GridWriter: writes the indices and the memory of a GridProgram.
#pragma once

#include "fusion/cuda/grid_program.h"
#include "fusion/program/loop_writer.h"

#include <optional>
#include <utility>
#include <vector>

namespace sconce {

class GridWriter : public LoopWriter {
 protected:
  GridWriter(const KernelProgram& program, const GridForm& form) : LoopWriter(program), form_(form) {}
  GridProgram take() { return {LoopWriter::take(), form_, shared_bytes_, shared_bytes_of_element_}; }
  const GridForm& form() const { return form_; }

  LoopVariable begin_for(LoopVariable first, LoopVariable end, LoopVariable step, bool is_rest = false) {
    return index(LoopOp::kFor, {first, end, step}, is_rest ? 1 : 0);
  }
  void barrier() { append({.op = LoopOp::kBarrier}); }
  LoopVariable shared(LoopVariable offset) { return index(LoopOp::kSharedAddress, {offset}); }
  void store_at(LoopVariable address, const Variables& values);
  Variables load_at(LoopVariable address, c10::ScalarType type, uint32_t count);

  // The words of the iteration, in the order in which grid_arguments.h gives them.
  struct Space {
    Variables sizes;                 // by dimension, the outermost first
    std::vector<Variables> strides;  // by dimension, then by operand
    std::optional<LoopVariable> segments;
    Variables segment_strides;
    // By dimension: the two words of the size's reciprocal; none where nothing is divided, or indices have 64 bits.
    std::vector<std::optional<std::pair<LoopVariable, LoopVariable>>> reciprocals;
  };
  Space read_space();
  // Returns a / size and a % size, where `size` is that of the dimension.
  std::pair<LoopVariable, LoopVariable> divided(const Space& space, size_t dim, LoopVariable a);
  // Returns, by operand, the bytes from its first element to the place `at` among the outer `dims` dimensions.
  Variables offsets_of(const Space& space, size_t dims, LoopVariable at);

  Variables loaded(const Elements& elements, const Instruction& load) override;
  // Stores one element, or one for each neighbor.
  void store(size_t operand, const Elements& elements, const Variables& values);

  size_t shared_bytes_ = 0;
  size_t shared_bytes_of_element_ = 0;

 private:
  LoopVariable address(size_t operand, LoopVariable offset) {
    return index(LoopOp::kAddress, {offset}, static_cast<int64_t>(operand));
  }

  const GridForm form_;
};

}  // namespace sconce
