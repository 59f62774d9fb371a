#include "fusion/cpu/llvm_writer.h"

#include "base/assert.h"

#include <bit>
#include <cstdio>

namespace sconce {
namespace {

bool is_floating(const std::string& element) { return element == "float" || element == "double"; }

std::string hexadecimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%016llX", static_cast<unsigned long long>(std::bit_cast<uint64_t>(value)));
  return text;
}

}  // namespace

std::string LlvmWriter::register_type(c10::ScalarType type) {
  switch (type) {
    case at::kFloat: return "float";
    case at::kDouble: return "double";
    case at::kLong: return "i64";
    case at::kInt: return "i32";
    case at::kByte: return "i8";
    case at::kBFloat16: return "i16";
    case at::kBool: return "i1";
    default: SCONCE_ASSERT(false, "kernels do not compute with ", c10::toString(type)); return "";
  }
}

std::string LlvmWriter::memory_type(c10::ScalarType type) { return type == at::kBool ? "i8" : register_type(type); }

std::string LlvmWriter::vector(const std::string& element) const {
  return "<" + std::to_string(lanes_) + " x " + element + ">";
}

std::string LlvmWriter::value(const std::string& expression) {
  std::string name = next_name();
  line(name + " = " + expression);
  return name;
}

std::string LlvmWriter::module(const std::string& signature) const {
  std::string text;
  for (const std::string& declaration : declarations_) {
    text += declaration + "\n";
  }
  return text + signature + " {\n" + body_ + "}\n";
}

std::string LlvmWriter::splat(const std::string& element, const std::string& scalar) {
  const std::string one = value("insertelement " + vector(element) + " poison, " + element + " " + scalar + ", i64 0");
  return value("shufflevector " + vector(element) + " " + one + ", " + vector(element) + " poison, " + vector("i32") +
               " zeroinitializer");
}

std::string LlvmWriter::constant(const std::string& element, const std::string& value) const {
  return "splat (" + element + " " + value + ")";
}

std::string LlvmWriter::lane_numbers(const std::string& element, size_t flipped) const {
  std::string text = "<";
  for (size_t lane = 0; lane < lanes_; ++lane) {
    text += (lane == 0 ? "" : ", ") + element + " " + std::to_string(lane ^ flipped);
  }
  return text + ">";
}

std::string LlvmWriter::float_constant(double value) const {
  return constant("float", hexadecimal(static_cast<double>(static_cast<float>(value))));
}

std::string LlvmWriter::int_constant(const std::string& element, int64_t value) const {
  return constant(element, std::to_string(value));
}

std::string LlvmWriter::literal(const Instruction& instruction) const {
  const std::string element = register_type(instruction.type);
  return is_floating(element) ? constant(element, hexadecimal(instruction.literal))
                              : int_constant(element, instruction.integer);
}

std::string LlvmWriter::suffix(const std::string& element) const {
  const std::string short_name = element == "float" ? "f32" : element == "double" ? "f64" : element;
  return "v" + std::to_string(lanes_) + short_name;
}

std::string LlvmWriter::call(const std::string& result, const std::string& function, const Operands& operands) {
  std::string types;
  std::string passed;
  for (const auto& [type, operand] : operands) {
    types += (types.empty() ? "" : ", ") + type;
    passed += (passed.empty() ? "" : ", ") + type + " " + operand;
  }
  declare("declare " + result + " @" + function + "(" + types + ")");
  return "call " + result + " @" + function + "(" + passed + ")";
}

// ---- memory ---------------------------------------------------------------------------------------------------------

std::string LlvmWriter::load(c10::ScalarType type, const std::string& address, const std::string& mask) {
  const std::string lanes = vector(memory_type(type));
  const std::string size = std::to_string(c10::elementSize(type));
  return mask.empty() ? value("load " + lanes + ", ptr " + address + ", align " + size)
                      : value(call(lanes, "llvm.masked.load." + suffix(memory_type(type)) + ".p0",
                                   {{"ptr", address}, {"i32", size}, {vector("i1"), mask}, {lanes, "zeroinitializer"}}));
}

std::string LlvmWriter::gather(c10::ScalarType type, const std::string& addresses, const std::string& mask) {
  const std::string lanes = vector(memory_type(type));
  return value(call(lanes, "llvm.masked.gather." + suffix(memory_type(type)) + ".v" + std::to_string(lanes_) + "p0",
                    {{vector("ptr"), addresses},
                     {"i32", std::to_string(c10::elementSize(type))},
                     {vector("i1"), mask.empty() ? constant("i1", "true") : mask},
                     {lanes, "zeroinitializer"}}));
}

void LlvmWriter::store(c10::ScalarType type, const std::string& value, const std::string& address, const std::string& mask) {
  const std::string lanes = vector(memory_type(type));
  const std::string size = std::to_string(c10::elementSize(type));
  line(mask.empty() ? "store " + lanes + " " + value + ", ptr " + address + ", align " + size
                    : call("void", "llvm.masked.store." + suffix(memory_type(type)) + ".p0",
                           {{lanes, value}, {"ptr", address}, {"i32", size}, {vector("i1"), mask}}));
}

std::string LlvmWriter::from_memory(const std::string& loaded, c10::ScalarType type) {
  return type == at::kBool ? value("icmp ne " + vector("i8") + " " + loaded + ", zeroinitializer") : loaded;
}

std::string LlvmWriter::to_memory(const std::string& computed, c10::ScalarType type) {
  return type == at::kBool ? value("zext " + vector("i1") + " " + computed + " to " + vector("i8")) : computed;
}

// ---- conversions ----------------------------------------------------------------------------------------------------

std::string LlvmWriter::convert(const std::string& v, c10::ScalarType from, c10::ScalarType to) {
  if (from == to) {
    return v;
  }
  if (from == at::kBFloat16) {
    const std::string wide = value("zext " + vector("i16") + " " + v + " to " + vector("i32"));
    const std::string shifted = binary("shl", "i32", wide, int_constant("i32", 16));
    return convert(float_of(shifted), at::kFloat, to);
  }
  if (to == at::kBFloat16) {
    // Rounds to nearest, ties to even. NaN becomes the quiet NaN.
    const std::string x = convert(v, from, at::kFloat);
    const std::string bits = bits_of(x);
    const std::string last =
        binary("and", "i32", binary("lshr", "i32", bits, int_constant("i32", 16)), int_constant("i32", 1));
    const std::string rounded = binary("add", "i32", bits, binary("add", "i32", last, int_constant("i32", 0x7FFF)));
    const std::string high = binary("lshr", "i32", rounded, int_constant("i32", 16));
    const std::string is_nan = value("fcmp uno " + vector("float") + " " + x + ", " + x);
    const std::string chosen = select("i32", is_nan, int_constant("i32", 0x7FC0), high);
    return value("trunc " + vector("i32") + " " + chosen + " to " + vector("i16"));
  }
  const std::string a = register_type(from);
  const std::string b = register_type(to);
  const auto cast = [&](const char* how) {
    return value(std::string(how) + " " + vector(a) + " " + v + " to " + vector(b));
  };
  if (to == at::kBool) {
    return value((is_floating(a) ? "fcmp une " : "icmp ne ") + vector(a) + " " + v + ", zeroinitializer");
  }
  const bool is_unsigned = from == at::kBool || from == at::kByte;
  if (is_floating(a) && is_floating(b)) {
    return cast(from == at::kFloat ? "fpext" : "fptrunc");
  }
  if (is_floating(a)) {
    return value(call(vector(b), "llvm.fptosi.sat." + suffix(b) + "." + suffix(a), {{vector(a), v}}));
  }
  if (is_floating(b)) {
    return cast(is_unsigned ? "uitofp" : "sitofp");
  }
  return cast(c10::elementSize(to) < c10::elementSize(from) ? "trunc" : is_unsigned ? "zext" : "sext");
}

// ---- operations -----------------------------------------------------------------------------------------------------

std::string LlvmWriter::binary(const std::string& op, const std::string& element, const std::string& a,
                               const std::string& b) {
  return value(op + " " + vector(element) + " " + a + ", " + b);
}

std::string LlvmWriter::intrinsic(const std::string& name, const std::string& element,
                                  std::initializer_list<std::string> operands) {
  Operands passed;
  for (const std::string& operand : operands) {
    passed.emplace_back(vector(element), operand);
  }
  return value(call(vector(element), "llvm." + name + "." + suffix(element), passed));
}

std::string LlvmWriter::select(const std::string& element, const std::string& condition, const std::string& a,
                               const std::string& b) {
  return value("select " + vector("i1") + " " + condition + ", " + vector(element) + " " + a + ", " + vector(element) + " " +
               b);
}

std::string LlvmWriter::compare(MachineOp op, c10::ScalarType type, const std::string& a, const std::string& b) {
  static constexpr std::array<const char*, 6> kFloating = {"oeq", "une", "olt", "ole", "ogt", "oge"};
  static constexpr std::array<const char*, 6> kSigned = {"eq", "ne", "slt", "sle", "sgt", "sge"};
  static constexpr std::array<const char*, 6> kUnsigned = {"eq", "ne", "ult", "ule", "ugt", "uge"};
  const size_t which = static_cast<size_t>(op) - static_cast<size_t>(MachineOp::kEqual);
  const std::string element = register_type(type);
  if (is_floating(element)) {
    return binary(std::string("fcmp ") + kFloating[which], element, a, b);
  }
  const bool is_unsigned = type == at::kByte || type == at::kBool;
  return binary(std::string("icmp ") + (is_unsigned ? kUnsigned : kSigned)[which], element, a, b);
}

// A NaN of either operand is the result. Comparisons with a NaN are false: one in `b` is taken where `a` is not, and one in
// `a` is asked for.
std::string LlvmWriter::extremum(bool is_max, c10::ScalarType type, const std::string& a, const std::string& b) {
  const std::string element = register_type(type);
  std::string takes_a = compare(is_max ? MachineOp::kGreater : MachineOp::kLess, type, a, b);
  if (is_floating(element)) {
    takes_a = binary("or", "i1", takes_a, value("fcmp uno " + vector(element) + " " + a + ", " + a));
  }
  return select(element, takes_a, a, b);
}

std::string LlvmWriter::compute(MachineOp op, c10::ScalarType type, const std::array<std::string, 3>& operands) {
  const auto& [a, b, c] = operands;
  const std::string element = register_type(type);
  const bool is_float = is_floating(element);
  const bool is_unsigned = type == at::kByte;
  // Without fused products and sums, the polynomials are not precise enough.
  const auto is_in_line = [this](c10::ScalarType of) { return of == at::kFloat && has_fma(); };
  const auto arithmetic = [&](const char* name) { return binary((is_float ? "f" : "") + std::string(name), element, a, b); };
  switch (op) {
    case MachineOp::kAdd: return arithmetic("add");
    case MachineOp::kSub: return arithmetic("sub");
    case MachineOp::kMul: return arithmetic("mul");
    case MachineOp::kDiv: return binary(is_float ? "fdiv" : is_unsigned ? "udiv" : "sdiv", element, a, b);
    case MachineOp::kRemainder: return binary(is_unsigned ? "urem" : "srem", element, a, b);
    case MachineOp::kShiftLeft: return binary("shl", element, a, b);
    case MachineOp::kShiftRight: return binary(is_unsigned ? "lshr" : "ashr", element, a, b);
    case MachineOp::kFma:
      // Without such an instruction, LibTorch's kernels round twice.
      return has_fma() ? intrinsic("fma", element, {a, b, c}) : binary("fadd", element, binary("fmul", element, a, b), c);
    case MachineOp::kNeg:
      return is_float ? value("fneg " + vector(element) + " " + a) : binary("sub", element, "zeroinitializer", a);
    case MachineOp::kAbs:
      if (!is_float) {
        const std::string negative = binary("icmp slt", element, a, "zeroinitializer");
        const std::string opposite = binary("sub", element, "zeroinitializer", a);
        return select(element, negative, opposite, a);
      }
      return intrinsic("fabs", element, {a});
    case MachineOp::kSqrt: return intrinsic("sqrt", element, {a});
    case MachineOp::kFloor: return intrinsic("floor", element, {a});
    case MachineOp::kCeil: return intrinsic("ceil", element, {a});
    case MachineOp::kTrunc: return intrinsic("trunc", element, {a});
    case MachineOp::kRound: return intrinsic("roundeven", element, {a});
    case MachineOp::kCopysign: return intrinsic("copysign", element, {a, b});
    case MachineOp::kMin: return extremum(false, type, a, b);
    case MachineOp::kMax: return extremum(true, type, a, b);
    case MachineOp::kEqual:
    case MachineOp::kNotEqual:
    case MachineOp::kLess:
    case MachineOp::kLessEqual:
    case MachineOp::kGreater:
    case MachineOp::kGreaterEqual: return compare(op, type, a, b);
    case MachineOp::kAnd: return binary("and", element, a, b);
    case MachineOp::kOr: return binary("or", element, a, b);
    case MachineOp::kXor: return binary("xor", element, a, b);
    case MachineOp::kNot: return binary("xor", element, a, int_constant(element, -1));
    case MachineOp::kSelect: return select(element, a, b, c);
    case MachineOp::kExp: return is_in_line(type) ? exp(a) : library_call(op, type, operands);
    case MachineOp::kErf: return is_in_line(type) ? erf(a) : library_call(op, type, operands);
    case MachineOp::kTanh: return is_in_line(type) ? tanh(a) : library_call(op, type, operands);
    case MachineOp::kSigmoid: return sigmoid(a);
    case MachineOp::kNormalCdf: return normal_cdf(a);
    default: return library_call(op, type, operands);
  }
}

}  // namespace sconce
