// ProgramBuilder: writes a KernelProgram, each value once.
#pragma once

#include "fusion/program/kernel_program.h"

#include <ATen/core/ivalue.h>

namespace sconce {

// A value of the current element.
struct Element {
  uint32_t id = 0;
  c10::ScalarType type = c10::ScalarType::Undefined;
};

// Returns the type in which an operator computes values of a dtype: float32 for bfloat16 and float16, else the dtype.
c10::ScalarType compute_type(c10::ScalarType dtype);
// Returns whether kernels can compute with values of the dtype. Those of CPUs cannot with float16.
bool is_kernel_type(c10::ScalarType dtype);

// Returns whether LibTorch converts the number to the dtype without overflow. Infinities and NaN are values of floating
// dtypes.
bool fits_dtype(const c10::IValue& number, c10::ScalarType dtype);

class ProgramBuilder {
 public:
  Element load(uint32_t input, c10::ScalarType type);
  Element number(uint32_t index, c10::ScalarType type);
  Element literal(double value, c10::ScalarType type);
  Element integer(int64_t value, c10::ScalarType type);
  Element row_length(c10::ScalarType type);
  // Returns the value in another type, converted as at::Tensor::to converts.
  Element convert(Element value, c10::ScalarType type);
  // Operands must have one type; for kSelect, `a` is a bool.
  Element apply(MachineOp op, Element a);
  Element apply(MachineOp op, Element a, Element b);
  Element apply(MachineOp op, Element a, Element b, Element c);

  // Calls the scalar function of this name (scalar_functions.h).
  Element call(std::string_view function, Element a);
  Element call(std::string_view function, Element a, Element b);

  // Returns whether the program may compute other bits than the operators: by library functions, by scalar functions, by
  // sums in another order, or as a rule has said.
  bool may_differ() const { return may_differ_; }
  void set_may_differ() { may_differ_ = true; }
  // Returns whether the program has values of the type.
  bool has_type(c10::ScalarType type) const;
  // Returns whether the program calls scalar functions. No processor without AVX2 can run it.
  bool calls_functions() const { return calls_functions_; }
  // Whether the program is for the default dtype of now.
  bool& takes_default_dtype() { return takes_default_dtype_; }
  // A number that each call gives, and a dtype that it must fit (fits_dtype).
  struct BoundNumber {
    uint32_t index;
    c10::ScalarType dtype;
    bool operator==(const BoundNumber&) const = default;
  };
  // Restricts the calls that the program serves to those whose number, a value of `number`, fits the dtype.
  void bind(Element number, c10::ScalarType dtype);
  const std::vector<BoundNumber>& bound_numbers() const { return bound_numbers_; }
  std::vector<Instruction> take() { return std::move(code_); }

 private:
  uint32_t called(std::string_view function, c10::ScalarType type);
  Element add(Instruction instruction);

  std::vector<Instruction> code_;
  std::vector<BoundNumber> bound_numbers_;
  bool may_differ_ = false;
  bool calls_functions_ = false;
  bool takes_default_dtype_ = false;
};

}  // namespace sconce
