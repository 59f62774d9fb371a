// What a trace assumes about its sizes, and where later runs may have others.
#include "trace/sizes/symbolic_sizes.h"

#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <vector>

namespace sconce::testing {
namespace {

using Relation = SizeGuard::Relation;
using ::testing::HasSubstr;

const Dim kRows = Dim::symbol(1);
const Dim kColumns = Dim::symbol(2);

std::shared_ptr<SymbolicSizes> rows_and_columns(int64_t rows, int64_t columns) {
  return std::make_shared<SymbolicSizes>(std::vector<int64_t>{rows, columns});
}

using Numbers = std::vector<int64_t>;

int64_t read(const c10::SymInt& size) { return size.guard_int(__FILE__, __LINE__); }

FloatPtr half_of(Dim size) {
  const auto number = std::make_shared<const FloatOfSizes>(FloatOfSizes{FloatOfSizes::Operation::kSize, 0, size, {}, {}});
  const auto two = std::make_shared<const FloatOfSizes>(FloatOfSizes{FloatOfSizes::Operation::kNumber, 2});
  return std::make_shared<const FloatOfSizes>(
      FloatOfSizes{FloatOfSizes::Operation::kDivide, 0, Dim::unknown(), number, two});
}

TEST(SymbolicSizes, HoldForAllNumbersWhileNothingIsAsked) {
  const auto sizes = rows_and_columns(4, 8);
  const Dim area = sizes->arithmetic().multiply(kRows, kColumns);
  EXPECT_TRUE(sizes->hold({2, 3}));
  EXPECT_EQ(sizes->evaluate(area, Numbers{5, 7}), 35);
  EXPECT_EQ(sizes->evaluate(Dim::known(3), Numbers{5, 7}), 3);
  EXPECT_EQ(sizes->evaluate(Dim::unknown(), Numbers{5, 7}), std::nullopt);
  EXPECT_EQ(
      sizes->evaluate(sizes->arithmetic().floor_divide(kRows, sizes->arithmetic().subtract(kColumns, kRows)), Numbers{5, 5}),
      std::nullopt)
      << "it would divide by zero";
}

TEST(SymbolicSizes, AnswerForEveryRunOrGuardThisRun) {
  const auto sizes = rows_and_columns(4, 8);
  EXPECT_TRUE(sizes->decide(Relation::kLess, Dim::known(1), kRows, false)) << "every run has at least two rows";
  EXPECT_TRUE(sizes->hold({9, 3}));
  EXPECT_TRUE(sizes->decide(Relation::kLess, kRows, kColumns, true));
  EXPECT_FALSE(sizes->decide(Relation::kEqual, kColumns, Dim::known(5), false));
  EXPECT_TRUE(sizes->hold({3, 9}));
  EXPECT_FALSE(sizes->hold({9, 3}));
  EXPECT_FALSE(sizes->hold({3, 5}));
  EXPECT_EQ(sizes->why_pinned(), "") << "more than one number is left for each size";
}

TEST(SymbolicSizes, SayWhichSizeIsReadAsANumber) {
  const auto sizes = rows_and_columns(4, 8);
  const c10::SymInt columns = sizes->sym_int(kColumns, 8);
  EXPECT_EQ(read(columns), 8);
  EXPECT_THAT(sizes->why_pinned(), HasSubstr("which is 8"));
  EXPECT_TRUE(sizes->hold({99, 8}));
  EXPECT_FALSE(sizes->hold({4, 9}));

  const auto doubled = rows_and_columns(4, 8);
  EXPECT_EQ(read(doubled->sym_int(doubled->arithmetic().multiply(kRows, Dim::known(2)), 8)), 8);
  EXPECT_TRUE(doubled->hold({4, 99}));
  EXPECT_FALSE(doubled->hold({5, 8}));

  const auto as_float = rows_and_columns(4, 8);
  EXPECT_EQ(c10::SymFloat(as_float->sym_int(kRows, 4)).guard_float(__FILE__, __LINE__), 4.0);
  EXPECT_THAT(as_float->why_pinned(), HasSubstr("which is 4"));
}

TEST(SymbolicSizes, GuardNumbersOfFloatingPoint) {
  const auto sizes = rows_and_columns(5, 8);
  EXPECT_TRUE(sizes->decide(Relation::kLess, half_of(kRows), half_of(kColumns), true));
  EXPECT_TRUE(sizes->hold({6, 7}));
  EXPECT_FALSE(sizes->hold({7, 7}));
}

TEST(SymbolicSizes, KeepTheFirstReasonToRefuse) {
  const auto sizes = rows_and_columns(4, 8);
  sizes->note_unknown("aten::first");
  sizes->note_unknown("aten::second");
  EXPECT_EQ(sizes->refusal(), "") << "no code has asked for such a size";
  EXPECT_TRUE(sizes->decide(Relation::kEqual, Dim::unknown(), Dim::known(3), true)) << "this run's answer";
  EXPECT_THAT(sizes->refusal(), HasSubstr("a result of aten::first"));
  sizes->refuse("another reason");
  EXPECT_THAT(sizes->refusal(), HasSubstr("a result of aten::first"));
  EXPECT_EQ(read(rows_and_columns(4, 8)->sym_int(Dim::unknown(), 11)), 11);
}

TEST(SymbolicSizes, ReadNumbersOfAnyOrigin) {
  const auto sizes = rows_and_columns(4, 8);
  EXPECT_FALSE(sizes->sym_int(Dim::known(3), 3).is_heap_allocated()) << "no node for a plain number";
  EXPECT_EQ(SymbolicSizes::dim_of(c10::SymInt(3)), Dim::known(3));
  EXPECT_EQ(SymbolicSizes::dim_of(sizes->sym_int(kRows, 4)), kRows);
  EXPECT_EQ(SymbolicSizes::value_of(c10::SymFloat(1.5)), 1.5);
  EXPECT_EQ(SymbolicSizes::value_of(c10::SymFloat(sizes->sym_int(kRows, 4))), 4.0);
  EXPECT_EQ(SymbolicSizes::float_of(c10::SymFloat(1.5))->number, 1.5);
  EXPECT_EQ(SymbolicSizes::float_of(c10::SymFloat(sizes->sym_int(kRows, 4)))->size, kRows);
  EXPECT_TRUE(sizes->hold({9, 9}));
}

}  // namespace
}  // namespace sconce::testing
