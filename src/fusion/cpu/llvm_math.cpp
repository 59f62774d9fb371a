// Functions of the mathematical library: some of float32 in line, the others by SLEEF, which LibTorch exports.
#include "fusion/cpu/llvm_writer.h"

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

// 1.5 · 2^23. Adding it rounds to an integer, which is then in the low bits.
constexpr double kRound = 12582912;

}  // namespace

// SLEEF's functions take as many elements as fit a register: half of the lanes for float64. It has none for 4 lanes, where
// LibTorch's kernels call the C library.
std::string LlvmWriter::library_call(MachineOp op, c10::ScalarType type, const std::array<std::string, 3>& operands) {
  const bool is_double = type == at::kDouble;
  if (!has_fma()) {
    return call_for_each_lane(std::string(name_of(op)) + (is_double ? "" : "f"), type, operand_count(op), operands);
  }
  const size_t width = is_double ? lanes_ / 2 : lanes_;
  const std::string part = "<" + std::to_string(width) + " x " + register_type(type) + ">";
  const std::string whole = vector(register_type(type));
  const std::string function = std::string("Sleef_") + name_of(op) + (is_double ? "d" : "f") + std::to_string(width) +
                               (op == MachineOp::kErfc    ? "_u15"
                                : op == MachineOp::kHypot ? "_u05"
                                : op == MachineOp::kFmod  ? ""
                                                          : "_u10");
  std::vector<std::string> results;
  for (size_t first = 0; first < lanes_; first += width) {
    Operands passed;
    for (size_t i = 0; i < operand_count(op); ++i) {
      const std::string& all = operands[i];
      passed.emplace_back(
          part, is_double ? value("shufflevector " + whole + " " + all + ", " + whole + " poison, " + indices(first, width))
                          : all);
    }
    results.push_back(value(call(part, function, passed)));
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

// ---- float32 in line ------------------------------------------------------------------------------------------------

std::string LlvmWriter::fma(const std::string& a, const std::string& b, const std::string& c) {
  return compute(MachineOp::kFma, at::kFloat, {a, b, c});
}

// The coefficient of the highest power comes first.
std::string LlvmWriter::polynomial(const std::string& x, std::initializer_list<double> coefficients) {
  std::string sum;
  for (const double coefficient : coefficients) {
    sum = sum.empty() ? float_constant(coefficient) : fma(sum, x, float_constant(coefficient));
  }
  return sum;
}

// Replaces x by the bound where it compares so. NaN stays.
std::string LlvmWriter::bounded(const std::string& x, const char* comparison, double bound) {
  const std::string is_beyond = binary(std::string("fcmp ") + comparison, "float", x, float_constant(bound));
  return select("float", is_beyond, float_constant(bound), x);
}

std::string LlvmWriter::bits_of(const std::string& x) {
  return value("bitcast " + vector("float") + " " + x + " to " + vector("i32"));
}

std::string LlvmWriter::float_of(const std::string& bits) {
  return value("bitcast " + vector("i32") + " " + bits + " to " + vector("float"));
}

// a / b, for a finite b of at least 1. AVX-512 divides slowly: there an estimate of 1 / b is taken, and the quotient is
// corrected by what is left of a.
std::string LlvmWriter::quotient(const std::string& a, const std::string& b) {
  if (lanes_ != kAvx512Lanes) {
    return binary("fdiv", "float", a, b);
  }
  const std::string whole = vector("float");
  const std::string inverse =
      value(call(whole, "llvm.x86.avx512.rcp14.ps.512", {{whole, b}, {whole, "zeroinitializer"}, {"i16", "-1"}}));
  const std::string near = binary("fmul", "float", a, inverse);
  const std::string left = fma(value("fneg " + whole + " " + b), near, a);
  return fma(left, inverse, near);
}

// x = n · log(2) + rest, |rest| <= log(2) / 2, for |x| below 2^21. The two parts of log(2) are those of Cephes' expf.
LlvmWriter::Reduction LlvmWriter::reduce(const std::string& x) {
  const std::string shifted = fma(x, float_constant(1.44269504088896341), float_constant(kRound));
  const std::string n = binary("fsub", "float", shifted, float_constant(kRound));
  const std::string rest = fma(n, float_constant(2.12194440e-4), fma(n, float_constant(-0.693359375), x));
  return {n, shifted, rest};
}

// y · 2^n, for y near 1.
std::string LlvmWriter::times_power(const std::string& y, const Reduction& reduced) {
  if (lanes_ == kAvx512Lanes) {
    const std::string whole = vector("float");
    // 4: rounds as all other operations do.
    return value(call(whole, "llvm.x86.avx512.mask.scalef.ps.512",
                      {{whole, y}, {whole, reduced.n}, {whole, "zeroinitializer"}, {"i16", "-1"}, {"i32", "4"}}));
  }
  const auto power = [&](const std::string& exponent) {
    return float_of(binary("shl", "i32", binary("add", "i32", exponent, int_constant("i32", 127)), int_constant("i32", 23)));
  };
  // In two factors, because 2^n itself may be out of range where the result is not.
  const std::string n = binary("sub", "i32", bits_of(reduced.shifted), int_constant("i32", 0x4B400000));
  const std::string half = binary("ashr", "i32", n, int_constant("i32", 1));
  const std::string scaled = binary("fmul", "float", y, power(half));
  return binary("fmul", "float", scaled, power(binary("sub", "i32", n, half)));
}

// 2^n · exp(rest). The polynomial is that of Cephes' expf. Below 1 ulp.
std::string LlvmWriter::exp_of(const Reduction& reduced) {
  const std::string& r = reduced.rest;
  const std::string p =
      polynomial(r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1});
  const std::string less_one = fma(p, binary("fmul", "float", r, r), r);
  return times_power(binary("fadd", "float", less_one, float_constant(1)), reduced);
}

// Where the result is zero, computes exp(0) instead: processors take a hundred times as long for results below the normal
// numbers, and masks add -inf or a large negative number before softmax.
std::string LlvmWriter::exp(const std::string& x) {
  const std::string is_zero = binary("fcmp olt", "float", x, float_constant(-104));
  const auto zero_or = [&](const std::string& other) { return select("float", is_zero, "zeroinitializer", other); };
  return zero_or(exp_of(reduce(zero_or(bounded(x, "ogt", 89)))));
}

// 1 / (1 + 2^t), t = -x · log2(e) = n + f, |f| <= 1/2. The polynomial of 2^f is fitted: it differs by at most 2e-9. Below
// 3 ulp, and 0 where LibTorch's exp(-x) overflows.
std::string LlvmWriter::sigmoid(const std::string& x) {
  const std::string one = float_constant(1);
  if (!has_fma()) {  // x · log2(e) would be rounded before n is subtracted
    return quotient(one, binary("fadd", "float", one, exp(value("fneg " + vector("float") + " " + x))));
  }
  constexpr double kOverflow = 88.7228394;
  constexpr double kLog2 = 1.44269502162933349609375;  // log2(e) in float32, and the rest of it
  constexpr double kRest = 1.9259629911266175e-8;
  const bool is_wide = lanes_ == kAvx512Lanes;
  // Beyond, 1 + 2^t is 1, or infinite. The rounding needs a small number.
  const std::string small = is_wide ? bounded(x, "ogt", 104) : bounded(bounded(x, "ogt", 86), "olt", -89);
  const std::string shifted = fma(small, float_constant(-kLog2), float_constant(kRound));
  const std::string n = binary("fsub", "float", shifted, float_constant(kRound));
  const std::string high = fma(small, float_constant(-kLog2), value("fneg " + vector("float") + " " + n));
  const std::string f = fma(small, float_constant(-kRest), high);
  const std::string y =
      polynomial(f, {1.535334474e-4, 1.339887582e-3, 9.618437427e-3, 5.550332467e-2, 2.402264791e-1, 6.931472029e-1, 1});
  if (is_wide) {
    const std::string sum = binary("fadd", "float", times_power(y, {n, shifted, f}), one);
    const std::string is_zero = binary("fcmp olt", "float", x, float_constant(-kOverflow));
    return select("float", is_zero, "zeroinitializer", quotient(one, sum));
  }
  // Half of 2^n, which itself may be out of range where the product with y is not.
  const std::string exponent = binary("sub", "i32", bits_of(shifted), int_constant("i32", 0x4B400000 - 126));
  const std::string half = binary("fmul", "float", y, float_of(binary("shl", "i32", exponent, int_constant("i32", 23))));
  return quotient(one, fma(half, float_constant(2), one));
}

// Near 0 the polynomial of Cephes' tanhf, elsewhere 1 - 2 / (exp(2|x|) + 1) with the sign of x. About 2 ulp.
std::string LlvmWriter::tanh(const std::string& x) {
  const std::string size = intrinsic("fabs", "float", {x});
  const std::string square = binary("fmul", "float", x, x);
  const std::string p =
      polynomial(square, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1});
  const std::string near = fma(binary("fmul", "float", p, square), x, x);
  const std::string e = exp_of(reduce(bounded(binary("fadd", "float", size, size), "ogt", 40)));
  const std::string part = quotient(float_constant(2), binary("fadd", "float", e, float_constant(1)));
  const std::string far = binary("fsub", "float", float_constant(1), part);
  const std::string is_near = binary("fcmp olt", "float", size, float_constant(0.625));
  const std::string either = select("float", is_near, near, far);
  // The polynomial of -0.0 is 0.0.
  return intrinsic("copysign", "float", {either, x});
}

// Near 0 an odd polynomial, elsewhere 1 - exp(p(|x|)) with the sign of x. The polynomials are those of N. Juffa's erff
// ("Efficient faithfully rounded implementation of error function erff()", Stack Overflow 35148198). Below 2 ulp.
std::string LlvmWriter::erf(const std::string& x) {
  const std::string size = intrinsic("fabs", "float", {x});
  const std::string square = binary("fmul", "float", x, x);
  const std::string near_x =
      polynomial(square, {-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1});
  const std::string near = fma(near_x, x, x);
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
  return select("float", is_far, signed_rest, near);
}

// 1/2 + (1 - c) / 2 with the sign of x, c = 2^p(|x|) = erfc(|x| / sqrt(2)). Both p and the polynomial of 2^f, |f| <= 1/2,
// are fitted: the differences are at most 2.3e-8 and 9.2e-8.
std::string LlvmWriter::normal_cdf(const std::string& x) {
  const std::string size = bounded(intrinsic("fabs", "float", {x}), "ogt", 6);
  const std::string p = polynomial(size, {-2.83491287e-06, 3.93776902e-05, -0.00018618023, -0.00013693641, 0.00706342019,
                                          -0.0524961784, -0.459208197, -1.15110521, 0});
  const std::string shifted = binary("fadd", "float", p, float_constant(kRound));
  const std::string n = binary("fsub", "float", shifted, float_constant(kRound));
  const std::string f = binary("fsub", "float", p, n);
  const std::string y = polynomial(f, {0.00132647269, 0.00967151266, 0.0555073374, 0.240222421, 0.693146978, 1});
  const std::string half = fma(times_power(y, {n, shifted, f}), float_constant(-0.5), float_constant(0.5));
  return binary("fadd", "float", float_constant(0.5), intrinsic("copysign", "float", {half, x}));
}

}  // namespace sconce
