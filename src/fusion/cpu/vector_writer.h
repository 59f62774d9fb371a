// VectorWriter: writes the memory and the values of a LoopProgram whose threads are the lanes of a vector. The loops around
// them are those of row_loops.cpp and column_loops.cpp.
#pragma once

#include "fusion/program/loop_writer.h"

#include <vector>

namespace sconce {

class VectorWriter : public LoopWriter {
 protected:
  // The elements that the lanes take in a pass.
  struct Vector : Elements {
    uint32_t pass = 0;
    LoopVariable index = 0;  // of the first lane, from the addresses
  };

  // Writes what comes before all loops.
  VectorWriter(const KernelProgram& program, size_t lanes);

  bool has_columns() const { return program().order == LoopOrder::kColumns; }
  LoopVariable after_vectors(LoopVariable index, size_t count) {
    return count == 0 ? index : add(index, constant(static_cast<int64_t>(count * lanes_)));
  }
  // An index that is assigned to later.
  LoopVariable counter(int64_t first = 0) { return index(LoopOp::kConstant, {}, first); }
  LoopVariable less_or_equal(LoopVariable a, LoopVariable b) { return answer(LoopOp::kLessOrEqual, {a, b}); }

  // Writes a loop over full vectors, `count` at a time, from `at` to the last that fits below `last`. Leaves `at` behind it.
  template <typename Body>
  void for_full_vectors(LoopVariable at, size_t count, LoopVariable last, const Body& body) {
    begin_loop();
    const LoopVariable next = after_vectors(at, count);
    leave_unless(less_or_equal(next, last));
    body();
    assign(at, next);
    end();
  }
  // Writes what the lanes below `last` do, if there are any.
  template <typename Body>
  void for_rest(LoopVariable at, LoopVariable last, const Body& body) {
    begin_if(less(at, last));
    begin_if(less(thread_, subtract(last, at)));
    body();
    end();
    end();
  }
  // Ends a loop that takes `last` turns, at least one: its addresses go on by the steps.
  void end_turns(LoopVariable turn, LoopVariable last, const Variables& addresses, const Variables& steps);

  // Computes what is known of the row, or of the rows that the lanes take, after `stage` passes, and stores what is an
  // output.
  void write_row_values(Vector& row, uint32_t stage);
  // Combines the elements with a part of the reductions, and stores those of outputs and buffers.
  void write_elements(Vector vector, const Reductions& reductions, size_t part);

  const size_t lanes_;
  // Before the operands: LLVM takes registers in this order.
  const LoopVariable row_ = counter();
  const LoopVariable thread_ = index(LoopOp::kThread, {});
  LoopVariable rows_ = 0;
  LoopVariable elements_ = 0;
  LoopVariable segments_ = 0;
  // By operand: inputs, outputs, buffers.
  Variables row_steps_;
  Variables element_steps_;
  Variables segment_steps_;
  Vector first_;  // the operands' first elements, and what is known of all rows

 private:
  Variables computed(Elements& elements, uint32_t instruction) override;
  Variables loaded(const Elements& elements, const Instruction& load) override;
  size_t operand_of_buffer(size_t buffer) const;

  Variables lane_offsets_;  // by operand: of strided ones, the bytes from the first lane to each
};

// Return the loops of a program with LoopOrder::kColumns, and of one with another order.
LoopProgram column_loops(const KernelProgram& program, size_t lanes);
LoopProgram row_loops(const KernelProgram& program, size_t lanes);

}  // namespace sconce
