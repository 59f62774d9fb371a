// GridWriter: appends statements to a GridProgram, and writes what a kernel program computes for elements.
#pragma once

#include "fusion/cuda/grid_program.h"
#include "fusion/program/schedule.h"

#include <initializer_list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace sconce {

class GridWriter {
 public:
  GridWriter(const KernelProgram& program, const GridForm& form);
  GridProgram take();

 protected:
  using Variables = std::vector<GridVariable>;
  // Byte offsets of the operands: inputs, then outputs.
  using Offsets = std::vector<GridVariable>;

  const KernelProgram& program() const { return grid_.program; }
  const GridForm& form() const { return grid_.form; }
  size_t operand_count() const { return program().operand_count(); }

  // ---- indices
  GridVariable constant(int64_t number);
  GridVariable next_word();
  GridVariable index(GridOp op, std::initializer_list<GridVariable> operands, int64_t number = 0);
  GridVariable answer(GridOp op, std::initializer_list<GridVariable> operands);
  GridVariable add(GridVariable a, GridVariable b) { return index(GridOp::kAdd, {a, b}); }
  GridVariable multiply(GridVariable a, GridVariable b) { return index(GridOp::kMultiply, {a, b}); }

  // ---- order
  GridVariable begin_for(GridVariable first, GridVariable end, GridVariable step, bool is_rest = false);
  void begin_if(GridVariable condition) { append({.op = GridOp::kIf, .operands = {condition}}); }
  void end() { append({.op = GridOp::kEnd}); }
  void barrier() { append({.op = GridOp::kBarrier}); }

  // ---- elements
  GridVariable element(GridOp op, c10::ScalarType type, std::initializer_list<GridVariable> operands, int64_t number = 0);
  GridVariable compute(const Instruction& instruction, Variables operands);
  GridVariable combine(MachineOp op, c10::ScalarType type, GridVariable a, GridVariable b);
  void assign(GridVariable to, GridVariable from) { append({.op = GridOp::kAssign, .results = {to}, .operands = {from}}); }
  void store_shared(GridVariable offset, const Variables& values);
  Variables load_shared(GridVariable offset, c10::ScalarType type, uint32_t count);

  // The words of the iteration, in the order in which grid_arguments.h gives them.
  struct Space {
    std::vector<GridVariable> sizes;                 // by dimension, the outermost first
    std::vector<std::vector<GridVariable>> strides;  // by dimension, then by operand
    std::optional<GridVariable> segments;
    Offsets segment_strides;
    // By dimension: the two words of the size's reciprocal; none where nothing is divided, or indices have 64 bits.
    std::vector<std::optional<std::pair<GridVariable, GridVariable>>> reciprocals;
  };
  Space read_space();
  // Returns a / size and a % size, where `size` is that of the dimension.
  std::pair<GridVariable, GridVariable> divided(const Space& space, size_t dim, GridVariable a);
  // Adds to the offsets what the place `at` among the outer `dims` dimensions adds.
  Offsets offsets_of(const Space& space, size_t dims, GridVariable at);

  // What is known of `count` neighbors. A value that they share is one variable.
  struct Elements {
    Offsets offsets;  // of the first
    uint32_t count = 1;
    Offsets strides{};  // in bytes from one to the next, by operand; used if there are several
    GridVariable row_length = 0;
    std::map<uint32_t, Variables> values{};  // by instruction
  };
  const Variables& values_of(Elements& elements, uint32_t instruction);
  // Stores one element, or one for each neighbor.
  void store(size_t operand, const Elements& elements, const Variables& values);

  GridProgram grid_;

 private:
  void append(GridStatement statement) { grid_.statements.push_back(std::move(statement)); }
  GridVariable variable(c10::ScalarType type);
  Variables loaded(const Elements& elements, const Instruction& load);
  Variables computed(Elements& elements, const Instruction& instruction);

  // Numbers and words come first, so that statements in any loop may use them.
  std::vector<GridStatement> first_;
  std::map<int64_t, GridVariable> constants_;
};

}  // namespace sconce
