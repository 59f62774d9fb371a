// Operators that LibTorch's registry has, but not as a node means them.
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>

namespace sconce {
namespace {

using testing::agree;
using ::testing::HasSubstr;
using testing::message_of;
using testing::run;

std::string quotient_text(const std::string& op, const std::string& type) {
  return "graph(%a : " + type + ", %b : " + type + "):\n  %c : " + type + " = " + op + "(%a, %b)\n  return (%c)\n";
}

// Each would end the process with a floating-point exception.
TEST(Builtins, RefuseDivisionsOfIntegersThatHaveNoResult) {
  for (const char* const op : {"aten::remainder", "aten::__round_to_zero_floordiv"}) {
    EXPECT_THAT(message_of([&] { run(quotient_text(op, "int"), {6, 0}); }), HasSubstr("integer division or modulo by zero"));
  }
  EXPECT_THAT(message_of([&] { run(quotient_text("aten::remainder", "Scalar"), {6, 0}); }),
              HasSubstr("integer division or modulo by zero"));
  const int64_t least = std::numeric_limits<int64_t>::min();
  for (const char* const op : {"aten::remainder", "aten::__round_to_zero_floordiv", "aten::floordiv"}) {
    EXPECT_THAT(message_of([&] { run(quotient_text(op, "int"), {least, -1}); }), HasSubstr("integer overflow"));
    EXPECT_TRUE(agree(run(quotient_text(op, "int"), {6, -1}), {op == std::string("aten::remainder") ? 0 : -6}));
  }
}

// LibTorch's kernels would read elements that they have just moved away.
TEST(Builtins, ExtendAListByItself) {
  for (const char* const write : {"  %w : int[] = aten::add_(%l, %l)\n", "   = aten::extend(%l, %l)\n"}) {
    const std::string text =
        "graph(%n : int):\n  %l : int[] = prim::ListConstruct(%n, %n, %n)\n" + std::string(write) + "  return (%l)\n";
    EXPECT_TRUE(agree(run(text, {7}), {c10::List<int64_t>({7, 7, 7, 7, 7, 7})})) << write;
  }
}

TEST(Builtins, DivideNumbersAsPythonDoes) {
  EXPECT_TRUE(agree(run(quotient_text("aten::remainder", "int"), {-7, 3}), {2}));
  EXPECT_TRUE(agree(run(quotient_text("aten::remainder", "int"), {7, -3}), {-2}));
  EXPECT_TRUE(agree(run(quotient_text("aten::__round_to_zero_floordiv", "int"), {-7, 3}), {-2}));
  EXPECT_TRUE(agree(run(quotient_text("aten::remainder", "Scalar"), {7.5, -2.0}), {-0.5}));
}

TEST(Builtins, GiveATensorAsNestedLists) {
  const std::string text =
      "graph(%x : Tensor, %depth : int, %kind : int):\n"
      "  %list : float[][] = prim::tolist(%x, %depth, %kind)\n"
      "  return (%list)\n";
  const c10::IValue list = run(text, {at::arange(6, at::kFloat).reshape({2, 3}).t(), 2, 1})[0];
  const auto rows = list.toListRef();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[2].toDoubleVector(), (std::vector<double>{2, 5}));
  const c10::IValue negated = run(text, {at::imag(at::complex(at::zeros({1, 1}), at::ones({1, 1})).conj()), 2, 1})[0];
  EXPECT_EQ(negated.toListRef()[0].toDoubleVector(), std::vector<double>{-1});
  EXPECT_THAT(message_of([&] { run(text, {at::zeros({3}), 2, 1}); }), HasSubstr("list dimension"));
  EXPECT_THAT(message_of([&] { run(text, {at::zeros({1, 1}, at::kLong), 2, 1}); }), HasSubstr("Float vs Long"));
}

TEST(Builtins, GiveComplexNumbersOfEveryWidthAsLists) {
  const std::string text =
      "graph(%x : Tensor, %depth : int, %kind : int):\n"
      "  %list : complex[] = prim::tolist(%x, %depth, %kind)\n"
      "  return (%list)\n";
  for (const at::ScalarType dtype : {at::kComplexFloat, at::kComplexDouble}) {
    const c10::complex<double> number(1.5, -2);
    const c10::IValue list = run(text, {at::full({1}, number, dtype).conj(), 1, 3})[0];
    EXPECT_EQ(list.toListRef()[0].toComplexDouble(), std::conj(number));
  }
}

// LibTorch's kernels read a dtype that is not there.
TEST(Builtins, CopyWithoutNewDtypeOrDevice) {
  const std::string begin =
      "graph(%x : Tensor, %copy : bool):\n  %none : NoneType = prim::Constant()\n  %no : bool = prim::Constant[value=0]()\n";
  const at::Tensor x = at::arange(6, at::kChar).reshape({2, 3}).t();
  for (const char* const operands : {"%x, %none, %none, %no, %copy", "%x, %none, %no, %copy", "%x, %no, %copy"}) {
    const std::string text = begin + "  %y : Tensor = aten::to(" + operands + ")\n  return (%y)\n";
    const at::Tensor copy = run(text, {x, true})[0].toTensor();
    EXPECT_TRUE(agree({c10::IValue(copy)}, {c10::IValue(x)}));
    EXPECT_EQ(copy.strides(), x.strides());
    EXPECT_FALSE(copy.is_alias_of(x));
    EXPECT_TRUE(run(text, {x, false})[0].toTensor().is_same(x));
  }
}

}  // namespace
}  // namespace sconce
