#include "fusion/program/program_builder.h"

#include "base/assert.h"
#include "fusion/program/kernel_width.h"
#include "fusion/program/scalar_functions.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/overflows.h>

#include <algorithm>
#include <bit>

namespace sconce {

c10::ScalarType compute_type(c10::ScalarType dtype) { return c10::isReducedFloatingType(dtype) ? at::kFloat : dtype; }

bool is_kernel_type(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kBFloat16:
    case at::kHalf:
    case at::kLong:
    case at::kInt:
    case at::kByte:
    case at::kBool: return true;
    default: return false;
  }
}

bool fits_dtype(const c10::IValue& number, c10::ScalarType dtype) {
  const auto fits = [&]<typename To>(To /*type*/) {
    return number.isDouble() ? !c10::overflows<To>(number.toDouble())
                             : number.isBool() || !c10::overflows<To>(number.toInt());
  };
  switch (dtype) {
    case at::kFloat: return fits(float());
    case at::kDouble: return fits(double());
    case at::kBFloat16: return fits(c10::BFloat16());
    case at::kHalf: return fits(c10::Half());
    case at::kLong: return fits(int64_t());
    case at::kInt: return fits(int32_t());
    case at::kByte: return fits(uint8_t());
    default: return true;
  }
}

void ProgramBuilder::bind(Element number, c10::ScalarType dtype) {
  const BoundNumber bound{code_[number.id].index, dtype};
  if (std::find(bound_numbers_.begin(), bound_numbers_.end(), bound) == bound_numbers_.end()) {
    bound_numbers_.push_back(bound);
  }
}

bool ProgramBuilder::has_type(c10::ScalarType type) const {
  return std::any_of(code_.begin(), code_.end(), [type](const Instruction& each) { return each.type == type; });
}

Element ProgramBuilder::load(uint32_t input, c10::ScalarType type) {
  return add({.op = MachineOp::kLoad, .type = type, .index = input});
}

Element ProgramBuilder::number(uint32_t index, c10::ScalarType type) {
  return add({.op = MachineOp::kNumber, .type = type, .index = index});
}

Element ProgramBuilder::literal(double value, c10::ScalarType type) {
  if (type == at::kFloat) {
    value = static_cast<float>(value);
  }
  return add({.op = MachineOp::kLiteral, .type = type, .literal = value});
}

Element ProgramBuilder::integer(int64_t value, c10::ScalarType type) {
  return add({.op = MachineOp::kLiteral, .type = type, .integer = value});
}

Element ProgramBuilder::row_length(c10::ScalarType type) { return add({.op = MachineOp::kRowLength, .type = type}); }

Element ProgramBuilder::convert(Element value, c10::ScalarType type) {
  return value.type == type ? value : add({.op = MachineOp::kConvert, .type = type, .a = value.id});
}

Element ProgramBuilder::apply(MachineOp op, Element a) {
  SCONCE_ASSERT(operand_count(op) == 1, name_of(op));
  return add({.op = op, .type = a.type, .a = a.id});
}

Element ProgramBuilder::apply(MachineOp op, Element a, Element b) {
  SCONCE_ASSERT(operand_count(op) == 2 && a.type == b.type, name_of(op));
  const bool compares = op >= MachineOp::kEqual && op <= MachineOp::kGreaterEqual;
  return add({.op = op, .type = compares ? at::kBool : a.type, .a = a.id, .b = b.id});
}

Element ProgramBuilder::apply(MachineOp op, Element a, Element b, Element c) {
  SCONCE_ASSERT(operand_count(op) == 3 && b.type == c.type, name_of(op));
  return add({.op = op, .type = c.type, .a = a.id, .b = b.id, .c = c.id});
}

// The table of functions is itself compiled for AVX2. LibTorch compiles its floating functions with other flags, and
// computes some of them in vectors in another way.
uint32_t ProgramBuilder::called(std::string_view function, c10::ScalarType type) {
  calls_functions_ = true;
  may_differ_ = may_differ_ || c10::isFloatingType(type);
  return kernel_lanes() == kGenericLanes ? 0 : scalar_function(function);
}

Element ProgramBuilder::call(std::string_view function, Element a) {
  return add({.op = MachineOp::kCall, .type = a.type, .a = a.id, .index = called(function, a.type)});
}

Element ProgramBuilder::call(std::string_view function, Element a, Element b) {
  SCONCE_ASSERT(a.type == b.type, function);
  return add({.op = MachineOp::kCallOfTwo, .type = a.type, .a = a.id, .b = b.id, .index = called(function, a.type)});
}

Element ProgramBuilder::add(Instruction instruction) {
  const auto same = [&](const Instruction& other) {
    // Equality of doubles would merge 0 and -0.
    return other == instruction && std::bit_cast<uint64_t>(other.literal) == std::bit_cast<uint64_t>(instruction.literal);
  };
  // LibTorch's fmod in vectors has NaN where the quotient overflows.
  may_differ_ = may_differ_ || is_library_function(instruction.op) || instruction.op == MachineOp::kSum ||
                instruction.op == MachineOp::kProduct || instruction.op == MachineOp::kFmod;
  const auto found = std::find_if(code_.begin(), code_.end(), same);
  if (found == code_.end()) {
    code_.push_back(instruction);
    return {static_cast<uint32_t>(code_.size() - 1), instruction.type};
  }
  return {static_cast<uint32_t>(found - code_.begin()), instruction.type};
}

}  // namespace sconce
