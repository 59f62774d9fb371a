// Calls of kernel programs on random operands, and what the interpreter computes for them.
#pragma once

#include "fusion/cpu/llvm_text.h"
#include "fusion/program/iteration.h"
#include "tests/fusion/kernel_interpreter.h"

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace sconce::testing {

struct ProgramSizes {
  int64_t rows;
  int64_t elements;
  int64_t segments = 1;
};
std::string to_string(const ProgramSizes& sizes);

// A call of a program on random operands: what lies side by side has gaps around it, strided operands have elements in
// between. With `gap`, 3 elements that no kernel may touch lie between rows.
class ProgramCall {
 public:
  ProgramCall(const KernelProgram& program, ProgramSizes sizes, uint64_t seed, int64_t gap = 3);

  // Return the outputs that each computes: all of their memory, with its gaps.
  std::vector<at::Tensor> compiled(const std::function<std::remove_pointer_t<KernelFunction>>& function);
  // By the loops that the code is printed of, statement by statement.
  std::vector<at::Tensor> interpreted_loops(size_t lanes);
  std::vector<at::Tensor> interpreted(bool fuses, const std::function<int()>& perturbation = nullptr);
  // The outputs after `run` has written them.
  std::vector<at::Tensor> computed(const std::function<void(const KernelCallFrame&)>& run);

  // The loops, rows in one dimension or, if `splits` divides them, in two.
  Iteration iteration(int64_t splits = 1) const;

 private:
  bool has_columns() const { return program_.order == LoopOrder::kColumns; }
  // The elements of all lanes that lie side by side, with a gap.
  int64_t width(int64_t stride) const;
  int64_t elements_of(int64_t stride) const;
  at::Tensor values(int64_t count, at::ScalarType type, size_t operand, uint64_t seed) const;
  void add_operand(const at::Tensor& tensor, int64_t stride, bool is_of_row);

  const KernelProgram& program_;
  const int64_t gap_;
  bool is_tame_ = false;  // values for which functions are well conditioned, and end
  KernelCallFrame frame_;
  std::vector<at::Tensor> tensors_;
};

// Compares results with those of the interpreter: bit for bit, and where functions of the mathematical library or sums of
// rows are computed, as close as their own precision allows.
void expect_close(const KernelProgram& program, ProgramCall& call, const std::vector<at::Tensor>& got, bool fuses,
                  const std::string& what);

}  // namespace sconce::testing
