#include "fusion/program/kernel_program.h"

#include "fusion/program/scalar_functions.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

namespace sconce {
namespace {

struct OpTraits {
  const char* name;
  size_t operands;
  bool is_library_function = false;
};

// By MachineOp.
constexpr std::array<OpTraits, static_cast<size_t>(MachineOp::kRowLength) + 1> kTraits = {{
    {"load", 0},          {"number", 0},      {"literal", 0},     {"convert", 1},    {"add", 2},          {"sub", 2},
    {"mul", 2},           {"div", 2},         {"fma", 3},         {"neg", 1},        {"abs", 1},          {"sqrt", 1},
    {"floor", 1},         {"ceil", 1},        {"trunc", 1},       {"round", 1},      {"copysign", 2},     {"min", 2},
    {"max", 2},           {"equal", 2},       {"not_equal", 2},   {"less", 2},       {"less_equal", 2},   {"greater", 2},
    {"greater_equal", 2}, {"and", 2},         {"or", 2},          {"xor", 2},        {"not", 1},          {"select", 3},
    {"exp", 1, true},     {"exp2", 1, true},  {"expm1", 1, true}, {"log", 1, true},  {"log1p", 1, true},  {"log2", 1, true},
    {"log10", 1, true},   {"tanh", 1, true},  {"erf", 1, true},   {"erfc", 1, true}, {"sin", 1, true},    {"cos", 1, true},
    {"tan", 1, true},     {"asin", 1, true},  {"acos", 1, true},  {"atan", 1, true}, {"sinh", 1, true},   {"cosh", 1, true},
    {"atanh", 1, true},   {"atan2", 2, true}, {"fmod", 2, true},  {"pow", 2, true},  {"lgamma", 1, true}, {"hypot", 2, true},
    {"sigmoid", 1, true}, {"cdf", 1, true},   {"call", 1, true},  {"call", 2, true}, {"shift_left", 2},   {"shift_right", 2},
    {"remainder", 2},     {"sum", 1},         {"product", 1},     {"largest", 1},    {"smallest", 1},     {"row_length", 0},
}};

const OpTraits& traits_of(MachineOp op) { return kTraits[static_cast<size_t>(op)]; }

const char* name_of(Access access) {
  switch (access) {
    case Access::kElements: return "elements";
    case Access::kOne: return "one";
    case Access::kStrided: return "strided";
  }
  return "";
}

// Returns digits that stand for this number and no other.
std::string exact_text(double number) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.17g", number);
  return text.data();
}

}  // namespace

const char* name_of(MachineOp op) { return traits_of(op).name; }
size_t operand_count(MachineOp op) { return traits_of(op).operands; }
bool is_library_function(MachineOp op) { return traits_of(op).is_library_function; }
bool is_call(MachineOp op) { return op == MachineOp::kCall || op == MachineOp::kCallOfTwo; }
bool is_reduction(MachineOp op) { return op >= MachineOp::kSum && op <= MachineOp::kSmallest; }

MachineOp combining_op(MachineOp reduction) {
  switch (reduction) {
    case MachineOp::kSum: return MachineOp::kAdd;
    case MachineOp::kProduct: return MachineOp::kMul;
    case MachineOp::kLargest: return MachineOp::kMax;
    default: return MachineOp::kMin;
  }
}

double neutral_element(MachineOp reduction) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (reduction) {
    case MachineOp::kSum: return 0;
    case MachineOp::kProduct: return 1;
    case MachineOp::kLargest: return -kInfinity;
    default: return kInfinity;
  }
}

c10::SmallVector<uint32_t, 3> operands_of(const Instruction& instruction) {
  const std::array<uint32_t, 3> all = {instruction.a, instruction.b, instruction.c};
  return {all.begin(), all.begin() + static_cast<ptrdiff_t>(operand_count(instruction.op))};
}

bool KernelProgram::has_reductions() const {
  return std::any_of(code.begin(), code.end(), [](const Instruction& each) { return is_reduction(each.op); });
}

// Every preparation of a kernel writes the text, to find the code: by hand, because a stream takes several times as long.
std::string KernelProgram::text() const {
  std::string out;
  out.reserve(32 * (inputs.size() + numbers.size() + outputs.size() + code.size()));
  const auto write = [&out](const auto&... parts) { (out.append(parts), ...); };
  const auto number = [](auto value) { return std::to_string(value); };
  if (order != LoopOrder::kRows) {
    write(order == LoopOrder::kColumns ? "columns\n" : "segments\n");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    write("input ", number(i), ": ", c10::toString(inputs[i].type), " ", name_of(inputs[i].access),
          inputs[i].is_of_row ? " of the row\n" : "\n");
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    write("number ", number(i), ": ", c10::toString(numbers[i]), "\n");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    write("output ", number(i), ": ", c10::toString(outputs[i].type), " = %", number(outputs[i].value),
          outputs[i].access == Access::kOne ? " one\n" : "\n");
  }
  for (size_t i = 0; i < code.size(); ++i) {
    const Instruction& each = code[i];
    write("  %", number(i), " = ", name_of(each.op), ".", c10::toString(each.type));
    if (is_call(each.op)) {
      write(" ", scalar_functions()[each.index].name);
    }
    if (each.op == MachineOp::kLoad || each.op == MachineOp::kNumber) {
      write(" ", number(each.index));
    } else if (each.op == MachineOp::kLiteral) {
      write(" ", c10::isFloatingType(each.type) ? exact_text(each.literal) : number(each.integer));
    }
    for (const uint32_t operand : operands_of(each)) {
      write(" %", number(operand));
    }
    write("\n");
  }
  return out;
}

}  // namespace sconce
