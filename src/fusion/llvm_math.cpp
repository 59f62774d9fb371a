// Functions of the mathematical library: float32 exp, tanh and erf in line, the others by SLEEF, which LibTorch exports.
#include "fusion/llvm_writer.h"

#include <string>
#include <vector>

namespace sconce {
namespace {

// Returns the indices `first`, `first` + 1, … as a mask of shufflevector.
std::string indices(size_t first, size_t count) {
  std::string text = "<" + std::to_string(count) + " x i32> <";
  for (size_t i = 0; i < count; ++i) {
    text += (i == 0 ? "i32 " : ", i32 ") + std::to_string(first + i);
  }
  return text + ">";
}

}  // namespace

// A call takes as many elements as fit a register: half of the lanes for float64.
std::string LlvmWriter::library_call(MachineOp op, c10::ScalarType type, const std::array<std::string, 3>& operands) {
  const bool is_double = type == at::kDouble;
  const size_t width = is_double ? lanes_ / 2 : lanes_;
  const std::string part = "<" + std::to_string(width) + " x " + register_type(type) + ">";
  const std::string whole = vector(register_type(type));
  const std::string function = std::string("@Sleef_") + name_of(op) + (is_double ? "d" : "f") + std::to_string(width) +
                               (op == MachineOp::kErfc    ? "_u15"
                                : op == MachineOp::kHypot ? "_u05"
                                : op == MachineOp::kFmod  ? ""
                                                          : "_u10");
  const size_t count = operand_count(op);
  declare("declare " + part + " " + function + "(" + part + (count == 2 ? ", " + part : "") + ")");
  std::vector<std::string> results;
  for (size_t first = 0; first < lanes_; first += width) {
    std::string passed;
    for (size_t i = 0; i < count; ++i) {
      const std::string operand =
          is_double
              ? value("shufflevector " + whole + " " + operands[i] + ", " + whole + " poison, " + indices(first, width))
              : operands[i];
      passed += (passed.empty() ? "" : ", ") + part + " " + operand;
    }
    results.push_back(value("call " + part + " " + function + "(" + passed + ")"));
  }
  return is_double
             ? value("shufflevector " + part + " " + results[0] + ", " + part + " " + results[1] + ", " + indices(0, lanes_))
             : results[0];
}

// A function of its own calls the lanes in a loop, so that the kernel stays small.
std::string LlvmWriter::call_for_each_lane(const std::string& function, c10::ScalarType type, size_t count,
                                           const std::array<std::string, 3>& operands) {
  const std::string element = register_type(type);
  const std::string whole = vector(element);
  const std::string lanes = "@lanes_of_" + function;
  std::string taken;
  std::string passed;
  std::string stored;
  std::string loaded;
  std::string given;
  for (size_t i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    const std::string comma = i == 0 ? "" : ", ";
    taken += comma + whole + " %v" + n;
    passed += comma + element + " %x" + n;
    given += comma + whole + " " + operands[i];
    stored += "%m" + n + " = alloca " + whole + "\nstore " + whole + " %v" + n + ", ptr %m" + n + "\n";
    loaded += "%a" + n + " = getelementptr " + element + ", ptr %m" + n + ", i64 %i\n%x" + n + " = load " + element +
              ", ptr %a" + n + "\n";
  }
  declare("declare " + element + " @" + function + "(" + element + (count == 2 ? ", " + element : "") + ")");
  declare("define " + whole + " " + lanes + "(" + taken + ") {\nentry:\n" + stored + "%results = alloca " + whole +
          "\nbr label %lane\nlane:\n%i = phi i64 [ 0, %entry ], [ %next, %lane ]\n" + loaded + "%y = call " + element +
          " @" + function + "(" + passed + ")\n%to = getelementptr " + element + ", ptr %results, i64 %i\nstore " + element +
          " %y, ptr %to\n%next = add i64 %i, 1\n%more = icmp ult i64 %next, " + std::to_string(lanes_) +
          "\nbr i1 %more, label %lane, label %done\ndone:\n%all = load " + whole + ", ptr %results\nret " + whole +
          " %all\n}");
  return value("call " + whole + " " + lanes + "(" + given + ")");
}

// exp(x) = 2^n · exp(r), |r| <= log(2) / 2. The polynomial and the two parts of log(2) are those of Cephes' expf. About 1
// ulp.
std::string LlvmWriter::exp(const std::string& x) {
  const auto fma = [&](const std::string& a, const std::string& b, const std::string& c) {
    return intrinsic("fma", "float", {a, b, c});
  };
  const auto bounded = [&](const std::string& v, const char* comparison, double bound) {
    const std::string is_beyond = binary(std::string("fcmp ") + comparison, "float", v, float_constant(bound));
    return value("select " + vector("i1") + " " + is_beyond + ", " + vector("float") + " " + float_constant(bound) + ", " +
                 vector("float") + " " + v);  // NaN stays
  };
  const auto bits = [&](const std::string& v) {
    return value("bitcast " + vector("float") + " " + v + " to " + vector("i32"));
  };
  // Returns 2^v.
  const auto power = [&](const std::string& v) {
    const std::string exponent =
        binary("shl", "i32", binary("add", "i32", v, int_constant("i32", 127)), int_constant("i32", 23));
    return value("bitcast " + vector("i32") + " " + exponent + " to " + vector("float"));
  };
  const std::string in_range = bounded(bounded(x, "ogt", 89), "olt", -104);
  // Adding 1.5 · 2^23 rounds to an integer, which is then in the low bits.
  const std::string round = float_constant(12582912);
  const std::string shifted = fma(in_range, float_constant(1.44269504088896341), round);
  const std::string n = binary("fsub", "float", shifted, round);
  const std::string whole = binary("sub", "i32", bits(shifted), int_constant("i32", 0x4B400000));
  const std::string r = fma(n, float_constant(2.12194440e-4), fma(n, float_constant(-0.693359375), in_range));
  std::string p = float_constant(1.9875691500e-4);
  for (const double coefficient : {1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}) {
    p = fma(p, r, float_constant(coefficient));
  }
  const std::string y = binary("fadd", "float", fma(p, binary("fmul", "float", r, r), r), float_constant(1));
  // In two factors, because 2^n itself may be out of range where the result is not.
  const std::string half = binary("ashr", "i32", whole, int_constant("i32", 1));
  const std::string scaled = binary("fmul", "float", y, power(half));
  return binary("fmul", "float", scaled, power(binary("sub", "i32", whole, half)));
}

// Near 0 the polynomial of Cephes' tanhf, elsewhere 1 - 2 / (exp(2|x|) + 1) with the sign of x. About 2 ulp.
std::string LlvmWriter::tanh(const std::string& x) {
  const auto fma = [&](const std::string& a, const std::string& b, const std::string& c) {
    return intrinsic("fma", "float", {a, b, c});
  };
  const std::string size = intrinsic("fabs", "float", {x});
  const std::string square = binary("fmul", "float", x, x);
  std::string p = float_constant(-5.70498872745e-3);
  for (const double coefficient : {2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1}) {
    p = fma(p, square, float_constant(coefficient));
  }
  const std::string near = fma(binary("fmul", "float", p, square), x, x);
  const std::string e = exp(binary("fadd", "float", size, size));
  const std::string part = binary("fdiv", "float", float_constant(2), binary("fadd", "float", e, float_constant(1)));
  const std::string far = intrinsic("copysign", "float", {binary("fsub", "float", float_constant(1), part), x});
  const std::string is_near = binary("fcmp olt", "float", size, float_constant(0.625));
  return value("select " + vector("i1") + " " + is_near + ", " + vector("float") + " " + near + ", " + vector("float") +
               " " + far);
}

// Near 0 an odd polynomial, elsewhere 1 - exp(p(|x|)) with the sign of x. The polynomials are those of N. Juffa's erff
// ("Efficient faithfully rounded implementation of error function erff()", Stack Overflow 35148198). Below 2 ulp.
std::string LlvmWriter::erf(const std::string& x) {
  const auto fma = [&](const std::string& a, const std::string& b, const std::string& c) {
    return intrinsic("fma", "float", {a, b, c});
  };
  const std::string size = intrinsic("fabs", "float", {x});
  const std::string square = binary("fmul", "float", x, x);
  std::string near = float_constant(-5.96761703e-4);
  for (const double coefficient : {4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1}) {
    near = fma(near, square, float_constant(coefficient));
  }
  near = fma(near, x, x);
  const std::string high = fma(float_constant(-1.72853470e-5), size, float_constant(3.83197126e-4));
  const std::string low = fma(float_constant(-3.88396438e-3), size, float_constant(2.42546219e-2));
  std::string far = fma(high, square, low);
  for (const double coefficient : {-1.06777877e-1, -6.34846687e-1, -1.28717512e-1}) {
    far = fma(far, size, float_constant(coefficient));
  }
  const std::string exponent = fma(far, size, value("fneg " + vector("float") + " " + size));
  const std::string rest = binary("fsub", "float", float_constant(1), exp(exponent));
  const std::string signed_rest = intrinsic("copysign", "float", {rest, x});
  const std::string is_far = binary("fcmp ogt", "float", size, float_constant(0.921875));
  return value("select " + vector("i1") + " " + is_far + ", " + vector("float") + " " + signed_rest + ", " +
               vector("float") + " " + near);
}

}  // namespace sconce
