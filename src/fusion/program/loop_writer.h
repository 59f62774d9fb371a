// LoopWriter: appends statements to a LoopProgram, and writes what a kernel program computes for elements.
#pragma once

#include "fusion/program/loop_program.h"
#include "fusion/program/schedule.h"

#include <initializer_list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace sconce {

class LoopWriter {
 protected:
  using Variables = std::vector<LoopVariable>;

  explicit LoopWriter(const KernelProgram& program) : schedule_(schedule_of(program)) { loops_.program = program; }
  virtual ~LoopWriter() = default;
  LoopProgram take();

  const KernelProgram& program() const { return loops_.program; }
  size_t operand_count() const { return program().operand_count(); }
  const Instruction& code(uint32_t instruction) const { return program().code[instruction]; }

  void append(LoopStatement statement) { loops_.statements.push_back(std::move(statement)); }
  LoopVariable variable(c10::ScalarType type);

  // ---- indices
  LoopVariable constant(int64_t number);
  LoopVariable next_word();
  LoopVariable index(LoopOp op, std::initializer_list<LoopVariable> operands, int64_t number = 0);
  LoopVariable answer(LoopOp op, std::initializer_list<LoopVariable> operands);
  LoopVariable add(LoopVariable a, LoopVariable b) { return index(LoopOp::kAdd, {a, b}); }
  LoopVariable multiply(LoopVariable a, LoopVariable b) { return index(LoopOp::kMultiply, {a, b}); }
  LoopVariable subtract(LoopVariable a, LoopVariable b) { return index(LoopOp::kSubtract, {a, b}); }
  LoopVariable less(LoopVariable a, LoopVariable b) { return answer(LoopOp::kLess, {a, b}); }

  // ---- order
  void begin_if(LoopVariable condition) { append({.op = LoopOp::kIf, .operands = {condition}}); }
  void begin_loop() { append({.op = LoopOp::kLoop}); }
  void leave_unless(LoopVariable condition) { append({.op = LoopOp::kWhile, .operands = {condition}}); }
  void end() { append({.op = LoopOp::kEnd}); }
  void end_loop(LoopVariable condition) { append({.op = LoopOp::kEnd, .operands = {condition}}); }
  void assign(LoopVariable to, LoopVariable from) { append({.op = LoopOp::kAssign, .results = {to}, .operands = {from}}); }

  // ---- elements
  LoopVariable element(LoopOp op, c10::ScalarType type, std::initializer_list<LoopVariable> operands, int64_t number = 0);
  LoopVariable compute(const Instruction& instruction, Variables operands);

  // What is known of `count` neighbors. A value that they share is one variable.
  struct Elements {
    Variables places{};  // of the first, by operand: the bytes from the operand's first element; on the CPU, the address
    uint32_t count = 1;
    Variables strides{};                     // in bytes from one to the next, by operand; used if there are several
    LoopVariable row_length = 0;             // the number of elements of a row
    std::map<uint32_t, Variables> values{};  // by instruction
  };
  const Variables& values_of(Elements& elements, uint32_t instruction);
  virtual Variables computed(Elements& elements, uint32_t instruction);
  virtual Variables loaded(const Elements& elements, const Instruction& load) = 0;

  // ---- rows
  // Computes what is known of the row after `stage` passes: here, because a loop over its elements would compute it again.
  void compute_row_values(Elements& row, uint32_t stage);
  // Returns the outputs whose elements a pass stores.
  std::vector<size_t> outputs_of(uint32_t pass) const;
  // A reduction so far, in parts that are combined later: of neighbors, or of vectors.
  struct Reduction {
    uint32_t instruction;
    Variables parts;
  };
  using Reductions = std::vector<Reduction>;
  // Returns the reductions of a pass, with the neutral element in each part.
  Reductions begin_reductions(uint32_t pass, size_t parts);
  LoopVariable combined(uint32_t reduction, LoopVariable a, LoopVariable b);
  // Combines the values of `threads` neighbors: each thread has the result.
  LoopVariable combined_over(uint32_t threads, uint32_t reduction, LoopVariable value);

  LoopProgram loops_;
  const Schedule schedule_;

 private:
  // Numbers and words come first, so that statements in any loop may use them.
  std::vector<LoopStatement> first_;
  std::map<int64_t, LoopVariable> constants_;
};

}  // namespace sconce
