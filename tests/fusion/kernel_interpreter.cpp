#include "tests/fusion/kernel_interpreter.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sconce::testing {
namespace {

using Type = c10::ScalarType;

constexpr double kMaxUlps = 4;  // of functions of the mathematical library

}  // namespace

bool is_inexact(MachineOp op) {
  const bool is_rounded_reduction = op == MachineOp::kSum || op == MachineOp::kProduct;
  return is_rounded_reduction || (is_library_function(op) && !is_call(op));
}

bool is_inexact(const KernelProgram& program) {
  return std::any_of(program.code.begin(), program.code.end(), [](const Instruction& each) { return is_inexact(each.op); });
}

const char* KernelInterpreter::address(size_t operand, int64_t element) const {
  return static_cast<const char*>(frame_->operands[operand]) + row_ * frame_->row_steps[operand] +
         element % frame_->elements * frame_->element_steps[operand] +
         element / frame_->elements * frame_->segment_steps[operand];
}

KernelInterpreter::KernelInterpreter(const KernelProgram& program, bool fuses) : program_(program), fuses_(fuses) {
  for (const Instruction& each : program.code) {
    const std::array<uint32_t, 3> operands = {each.a, each.b, each.c};
    is_affected_.push_back(std::any_of(operands.begin(), operands.begin() + operand_count(each.op), [&](uint32_t operand) {
      return is_affected_[operand] || is_inexact(program.code[operand].op);
    }));
  }
}

// Returns the value, moved by so many ulps of 1.
double KernelInterpreter::perturbed(Type type, double value, double error) const {
  if (!direction_ || !std::isfinite(value)) {
    return value;
  }
  const double ulp = type == Type::Double ? 0x1p-52 : 0x1p-23;
  return rounded_to(type, value + direction_() * error * ulp);
}

Scalar KernelInterpreter::compute(const Instruction& each, const Values& values, int64_t element) const {
  switch (each.op) {
    case MachineOp::kLoad: return scalar_from_memory(each.type, address(each.index, element));
    case MachineOp::kNumber: return scalar_of_number(each.type, frame_->numbers[each.index]);
    case MachineOp::kRowLength:
      return {.real = rounded_to(each.type, static_cast<double>(frame_->elements * frame_->segments))};
    default: break;
  }
  const size_t count = operand_count(each.op);
  const Type operand = program_.code[each.op == MachineOp::kSelect ? each.b : each.a].type;
  const Scalar value = compute_scalar(each, operand, values[each.a], count > 1 ? values[each.b] : Scalar(),
                                      count > 2 ? values[each.c] : Scalar(), fuses_);
  if (is_call(each.op) || !c10::isFloatingType(each.type)) {
    return value;
  }
  if (is_library_function(each.op)) {
    const double size = each.op == MachineOp::kNormalCdf ? 1 : std::fabs(value.real);
    return {.real = perturbed(each.type, value.real, kMaxUlps * size)};
  }
  const bool is_rounded = (each.op >= MachineOp::kAdd && each.op <= MachineOp::kFma) || each.op == MachineOp::kSqrt;
  const bool is_affected = is_affected_[static_cast<size_t>(&each - program_.code.data())];
  return {.real = is_rounded && is_affected ? perturbed(each.type, value.real, std::fabs(value.real)) : value.real};
}

Scalar KernelInterpreter::reduced(const Instruction& reduction, const std::vector<Values>& row) const {
  double result = row[0][reduction.a].real;
  double scale = std::fabs(result);
  for (size_t i = 1; i < row.size(); ++i) {
    const double value = row[i][reduction.a].real;
    scale += std::fabs(value);
    switch (reduction.op) {
      case MachineOp::kSum: result += value; break;
      case MachineOp::kProduct: result *= value; break;
      case MachineOp::kLargest: result = result > value || std::isnan(result) ? result : value; break;
      default: result = result < value || std::isnan(result) ? result : value; break;
    }
  }
  result = rounded_to(reduction.type, result);
  if (!is_inexact(reduction.op)) {
    return {.real = result};
  }
  const double size = reduction.op == MachineOp::kSum ? scale : std::fabs(result) * static_cast<double>(row.size());
  return {.real = perturbed(reduction.type, result, kMaxUlps * size)};
}

// Computes one instruction after the other for the whole row: a reduction needs its operand for all elements.
void KernelInterpreter::run(const KernelCallFrame& frame) {
  frame_ = &frame;
  for (row_ = 0; row_ < frame.rows; ++row_) {
    std::vector<Values> row(static_cast<size_t>(frame.elements * frame.segments), Values(program_.code.size()));
    for (size_t i = 0; i < program_.code.size(); ++i) {
      const Instruction& each = program_.code[i];
      const Scalar whole_row = is_reduction(each.op) ? reduced(each, row) : Scalar();
      for (size_t element = 0; element < row.size(); ++element) {
        row[element][i] = is_reduction(each.op) ? whole_row : compute(each, row[element], static_cast<int64_t>(element));
      }
    }
    for (size_t k = 0; k < program_.outputs.size(); ++k) {
      const KernelOutput& output = program_.outputs[k];
      const bool is_of_row = output.access == Access::kOne;
      for (size_t element = 0; element < (is_of_row ? 1 : row.size()); ++element) {
        const Scalar& value = row[element][output.value];
        char* const at = const_cast<char*>(address(program_.inputs.size() + k, static_cast<int64_t>(element)));
        scalar_to_memory(output.type, at, value);
      }
    }
  }
}

}  // namespace sconce::testing
