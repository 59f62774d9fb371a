// ElementWriter: writes what a program computes for the elements of a vector, as LLVM IR. The loops around it are those of
// row_loops.h.
#pragma once

#include "fusion/cpu/llvm_writer.h"
#include "fusion/program/kernel_program.h"
#include "fusion/program/schedule.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sconce {

class ElementWriter {
 protected:
  using Values = std::map<uint32_t, std::string>;  // by instruction
  // A vector of elements in a pass.
  struct Vector {
    uint32_t pass;
    std::string pointers;  // the prefix of the names of the operands' pointers
    std::string index;     // of the first lane from there
    std::string mask;      // empty: all lanes
    Values* of_row;        // what is known of the row, or of the rows that the lanes take
    Values values = {};
  };

  ElementWriter(const KernelProgram& program, size_t lanes);

  // Loads the operands' pointers into %first0 and so on, steps and numbers.
  void write_entry();
  std::string module() const;

  const std::string& value_of(Vector& vector, uint32_t value);
  // Writes what is known of the row after `stage` passes, and the outputs that are.
  void write_row_values(Vector& vector, uint32_t stage);
  // Writes the outputs and buffers that the pass stores.
  void write_stores(Vector& vector);

  // ---- reductions
  std::vector<uint32_t> reductions_of(uint32_t pass) const;
  // Returns whether values are computed in less time than the sums take to which the pass adds them.
  bool are_cheap(const std::vector<uint32_t>& reductions) const;
  std::string type_of(uint32_t reduction) const;
  std::string start_of(uint32_t reduction) const;
  std::string combined(uint32_t reduction, const std::string& a, const std::string& b);
  std::string with_lanes_combined(uint32_t reduction, const std::string& value);
  // Returns what the reduction has so far, combined with the element.
  std::string reduced(Vector& vector, uint32_t reduction, const std::string& so_far);
  // Gives a value the name that a phi has used before.
  void define(const std::string& name, uint32_t reduction, const std::string& value);
  // Masks the lanes below the number of elements that are left.
  std::string mask_of(const std::string& left);

  static std::string named(const char* prefix, size_t number) { return prefix + std::to_string(number); }

  LlvmWriter w_;
  const KernelProgram& program_;
  const Schedule schedule_;
  const size_t operands_;  // inputs, outputs and buffers

 private:
  std::string computed(Vector& vector, const Instruction& each, const std::array<std::string, 3>& operands);
  std::string load(const Vector& vector, const Instruction& each);
  std::string address(const Vector& vector, size_t operand, c10::ScalarType type);
  size_t operand_of_buffer(size_t buffer) const;

  std::vector<std::string> numbers_;
};

}  // namespace sconce
