// LlvmWriter: vector operations of element types as LLVM IR text.
#pragma once

#include "fusion/program/kernel_program.h"
#include "fusion/program/kernel_width.h"

#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sconce {

// A value in a register is a vector of `lanes` elements: of i1 for bool, of i16 for bfloat16. Functions that compute append
// lines and return the name of the result.
class LlvmWriter {
 public:
  explicit LlvmWriter(size_t lanes) : lanes_(lanes) {}

  size_t lanes() const { return lanes_; }
  static std::string register_type(c10::ScalarType type);
  static std::string memory_type(c10::ScalarType type);  // differs for bool: a byte
  std::string vector(const std::string& element) const;

  void line(const std::string& text) { body_ += text + "\n"; }
  // What is inserted stands where the text had this size.
  size_t size() const { return body_.size(); }
  void insert(size_t at, const std::string& lines) { body_.insert(at, lines); }
  std::string next_name() { return "%v" + std::to_string(next_++); }
  std::string value(const std::string& expression);
  // Returns the function with all that it declares.
  std::string module(const std::string& signature) const;

  std::string splat(const std::string& element, const std::string& scalar);
  // 0, 1, 2, …, with these bits flipped.
  std::string lane_numbers(const std::string& element, size_t flipped = 0) const;
  std::string literal(const Instruction& instruction) const;

  // Memory. An empty mask means all lanes.
  std::string load(c10::ScalarType type, const std::string& address, const std::string& mask);
  std::string gather(c10::ScalarType type, const std::string& addresses, const std::string& mask);
  void store(c10::ScalarType type, const std::string& value, const std::string& address, const std::string& mask);
  std::string from_memory(const std::string& value, c10::ScalarType type);
  std::string to_memory(const std::string& value, c10::ScalarType type);

  std::string convert(const std::string& value, c10::ScalarType from, c10::ScalarType to);
  // `type` is the operands' (of a selection, of what it selects).
  std::string compute(MachineOp op, c10::ScalarType type, const std::array<std::string, 3>& operands);
  // Calls `function`, of elements, for each lane.
  std::string call_for_each_lane(const std::string& function, c10::ScalarType type, size_t count,
                                 const std::array<std::string, 3>& operands);

 private:
  bool has_fma() const { return lanes_ != kGenericLanes; }
  std::string binary(const std::string& op, const std::string& element, const std::string& a, const std::string& b);
  std::string select(const std::string& element, const std::string& condition, const std::string& a, const std::string& b);
  // Declares the function and returns a call of it.
  using Operands = std::vector<std::pair<std::string, std::string>>;  // types and values
  std::string call(const std::string& result, const std::string& function, const Operands& operands);
  std::string intrinsic(const std::string& name, const std::string& element, std::initializer_list<std::string> operands);
  std::string library_call(MachineOp op, c10::ScalarType type, const std::array<std::string, 3>& operands);
  std::string compare(MachineOp op, c10::ScalarType type, const std::string& a, const std::string& b);
  std::string extremum(bool is_max, c10::ScalarType type, const std::string& a, const std::string& b);

  // Functions of float32, in line.
  struct Reduction {
    std::string n;        // rounded to an integer
    std::string shifted;  // an integer in the low bits of a float
    std::string rest;
  };
  Reduction reduce(const std::string& x);
  std::string times_power(const std::string& y, const Reduction& reduced);
  std::string exp_of(const Reduction& reduced);
  std::string exp(const std::string& x);
  std::string sigmoid(const std::string& x);
  std::string tanh(const std::string& x);
  std::string erf(const std::string& x);
  std::string normal_cdf(const std::string& x);
  std::string fma(const std::string& a, const std::string& b, const std::string& c);
  std::string polynomial(const std::string& x, std::initializer_list<double> coefficients);
  std::string bounded(const std::string& x, const char* comparison, double bound);
  std::string quotient(const std::string& a, const std::string& b);
  std::string bits_of(const std::string& x);
  std::string float_of(const std::string& bits);

  std::string float_constant(double value) const;
  std::string int_constant(const std::string& element, int64_t value) const;
  std::string constant(const std::string& element, const std::string& value) const;
  std::string suffix(const std::string& element) const;  // "v16f32"
  void declare(const std::string& declaration) { declarations_.insert(declaration); }

  const size_t lanes_;
  size_t next_ = 0;
  std::string body_;
  std::set<std::string> declarations_;
};

}  // namespace sconce
