// The integers, booleans and floating-point numbers that LibTorch's code computes with in a trace, beside plain ones.
#include "trace/sizes/size_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

using c10::SymFloat;
using c10::SymInt;

// A trace in which two sizes have symbols.
struct TwoSizes {
  explicit TwoSizes(int64_t first = 6, int64_t second = 9)
      : sizes(std::make_shared<SymbolicSizes>(std::vector<int64_t>{first, second})),
        a(sizes->sym_int(Dim::symbol(1), first)),
        b(sizes->sym_int(Dim::symbol(2), second)) {}

  bool hold(int64_t first, int64_t second) const { return sizes->hold({first, second}); }
  // What a size is in a run with other numbers.
  std::optional<int64_t> later(const SymInt& size, int64_t first, int64_t second) const {
    return sizes->evaluate(SymbolicSizes::dim_of(size), std::vector<int64_t>{first, second});
  }

  std::shared_ptr<SymbolicSizes> sizes;
  SymInt a, b;
};

c10::SymNode node_of(const SymInt& size) { return size.toSymNode(); }
int64_t guarded(const SymInt& size) { return size.guard_int(__FILE__, __LINE__); }
bool guarded(const c10::SymBool& question) { return question.guard_bool(__FILE__, __LINE__); }

int64_t floor_quotient_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
}

using OnIntegers = std::pair<std::function<SymInt(const SymInt&, const SymInt&)>, std::function<int64_t(int64_t, int64_t)>>;

void expect_same_integers(const std::vector<OnIntegers>& operations) {
  for (size_t i = 0; i < operations.size(); ++i) {
    const TwoSizes given;
    const SymInt result = operations[i].first(given.a, given.b);
    EXPECT_EQ(SymbolicSizes::value_of(result), operations[i].second(6, 9)) << "operation " << i;
    for (int64_t a = 2; a < 12; ++a) {
      for (int64_t b = 2; b < 12; ++b) {
        EXPECT_EQ(given.later(result, a, b), operations[i].second(a, b)) << "operation " << i << " of " << a << " and " << b;
      }
    }
    EXPECT_TRUE(given.hold(2, 100)) << "operation " << i << " has left a guard";
    EXPECT_EQ(given.sizes->refusal(), "") << "operation " << i;
  }
}

TEST(SizeNode, ComputesWhatPlainIntegersCompute) {
  expect_same_integers({
      {[](const SymInt& a, const SymInt& b) { return a + b * 2; }, [](int64_t a, int64_t b) { return a + b * 2; }},
      {[](const SymInt& a, const SymInt& b) { return b - a; }, [](int64_t a, int64_t b) { return b - a; }},
      {[](const SymInt& a, const SymInt& b) { return a * b - 7; }, [](int64_t a, int64_t b) { return a * b - 7; }},
      {[](const SymInt& a, const SymInt& b) { return a * b * 4 / b; }, [](int64_t a, int64_t) { return a * 4; }},
      {[](const SymInt& a, const SymInt& b) { return (a * 5) % b; }, [](int64_t a, int64_t b) { return (a * 5) % b; }},
      {[](const SymInt& a, const SymInt& b) { return a.min(b - 2); },
       [](int64_t a, int64_t b) { return std::min(a, b - 2); }},
      {[](const SymInt& a, const SymInt& b) { return a.max(b - 2); },
       [](int64_t a, int64_t b) { return std::max(a, b - 2); }},
      {[](const SymInt& a, const SymInt& b) { return -a + b.clone(); }, [](int64_t a, int64_t b) { return b - a; }},
  });
}

TEST(SizeNode, DividesAsPlainIntegersDo) {
  expect_same_integers({
      {[](const SymInt& a, const SymInt& b) { return a * b / 4; }, [](int64_t a, int64_t b) { return a * b / 4; }},
      {[](const SymInt& a, const SymInt& b) { return (a + 3) / b; }, [](int64_t a, int64_t b) { return (a + 3) / b; }},
      {[](const SymInt& a, const SymInt& b) { return 100 / a + b; }, [](int64_t a, int64_t b) { return 100 / a + b; }},
      {[](const SymInt& a, const SymInt& b) { return (a - b) / 4; },
       [](int64_t a, int64_t b) { return floor_quotient_of(a - b, 4); }},
  });
}

TEST(SizeNode, IsAPlainNumberWhereEveryRunHasIt) {
  const TwoSizes given;
  EXPECT_EQ((given.a - given.a).maybe_as_int(), 0);
  EXPECT_EQ((given.a * given.b / given.b - given.a + 4).maybe_as_int(), 4);
  EXPECT_EQ((given.a * 6 % 3).maybe_as_int(), 0);
  EXPECT_EQ(given.a.min(2).maybe_as_int(), 2);
  EXPECT_EQ((given.a + 1).maybe_as_int(), std::nullopt);
  EXPECT_EQ(node_of(given.a)->str(), "6");
  EXPECT_TRUE(given.hold(2, 2));
}

TEST(SizeNode, AnswersAsPlainIntegersAndGuardsTheAnswer) {
  using Sizes = c10::SymBool (SymInt::*)(const SymInt&) const;
  using Numbers = std::function<bool(int64_t, int64_t)>;
  const std::vector<std::pair<Sizes, Numbers>> relations = {
      {&SymInt::sym_eq, std::equal_to<>()}, {&SymInt::sym_ne, std::not_equal_to<>()},
      {&SymInt::sym_lt, std::less<>()},     {&SymInt::sym_le, std::less_equal<>()},
      {&SymInt::sym_gt, std::greater<>()},  {&SymInt::sym_ge, std::greater_equal<>()},
  };
  for (size_t i = 0; i < relations.size(); ++i) {
    const auto& [on_sizes, on_numbers] = relations[i];
    for (const int64_t in_trace : {5, 6, 7}) {
      for (const bool is_negated : {false, true}) {
        const TwoSizes given(in_trace, 6);
        const c10::SymBool question = (given.a.*on_sizes)(given.b);
        EXPECT_TRUE(given.hold(2, 9) && given.hold(9, 2)) << "a question is no guard, relation " << i;
        const bool answer = guarded(is_negated ? question.sym_not() : question);
        EXPECT_EQ(answer, on_numbers(in_trace, 6) != is_negated) << "relation " << i << " of " << in_trace << " and 6";
        for (int64_t a = 2; a < 12; ++a) {
          EXPECT_EQ(given.hold(a, 6), on_numbers(a, 6) == on_numbers(in_trace, 6))
              << "relation " << i << " of " << a << " and 6, traced with " << in_trace;
        }
      }
    }
  }
}

TEST(SizeNode, AsksNothingThatEveryRunAnswersAlike) {
  const TwoSizes given;
  EXPECT_TRUE(guarded(given.a.sym_ge(2)));
  EXPECT_FALSE(guarded(given.a.sym_eq(1)));
  EXPECT_TRUE(guarded((given.a + given.b).sym_gt(given.b)));
  EXPECT_TRUE(guarded((given.a * 2).sym_ne(given.a)));
  EXPECT_EQ(given.a.sym_ge(2).maybe_as_bool(), true);
  EXPECT_EQ(given.a.sym_ge(3).maybe_as_bool(), std::nullopt);
  EXPECT_TRUE(given.a.sym_ge(2).statically_known_true(__FILE__, __LINE__));
  EXPECT_FALSE(given.a.sym_ge(3).statically_known_true(__FILE__, __LINE__)) << "true in this run only";
  EXPECT_TRUE(given.hold(2, 2) && given.hold(100, 3));
}

// The guards of a combined question hold at least where the question has the same answer for the same reasons.
TEST(SizeNode, CombinesAnswers) {
  const auto is_even = [](const SymInt& size) { return (size % 2).sym_eq(0); };
  for (const int64_t a : {4, 5}) {
    for (const int64_t b : {6, 7}) {
      const TwoSizes either(a, b);
      const bool any = guarded(is_even(either.a).sym_or(is_even(either.b)));
      const TwoSizes both(a, b);
      const bool all = guarded(is_even(both.a).sym_and(is_even(both.b)));
      EXPECT_EQ(any, a % 2 == 0 || b % 2 == 0);
      EXPECT_EQ(all, a % 2 == 0 && b % 2 == 0);
      EXPECT_TRUE(either.hold(a + 2, b + 2) && both.hold(a + 2, b + 2));
      for (int64_t later_a = 2; later_a < 8; ++later_a) {
        for (int64_t later_b = 2; later_b < 8; ++later_b) {
          EXPECT_TRUE(!either.hold(later_a, later_b) || any == (later_a % 2 == 0 || later_b % 2 == 0));
          EXPECT_TRUE(!both.hold(later_a, later_b) || all == (later_a % 2 == 0 && later_b % 2 == 0));
        }
      }
    }
  }
}

TEST(SizeNode, LeavesAQuestionOpenThatAnotherOneDecides) {
  const TwoSizes given;
  const c10::SymBool open = given.a.sym_eq(6);
  EXPECT_TRUE(guarded(given.b.sym_ge(2).sym_or(open)));
  EXPECT_TRUE(guarded(open.sym_or(given.b.sym_ge(2))));
  EXPECT_FALSE(guarded(given.b.sym_lt(2).sym_and(open)));
  EXPECT_FALSE(guarded(open.sym_and(given.b.sym_lt(2))));
  EXPECT_TRUE(given.hold(7, 2)) << "no answer depends on the open question";
  EXPECT_TRUE(guarded(given.b.sym_lt(2).sym_or(open)));
  EXPECT_FALSE(given.hold(7, 2));
}

TEST(SizeNode, ChoosesByAQuestion) {
  for (const int64_t size : {6, 7}) {
    const TwoSizes given(size, 9);
    const c10::SymNode question = given.a.sym_lt(7).toSymNodeImpl();
    const SymInt chosen(question->sym_ite(node_of(given.a), node_of(given.b)));
    EXPECT_EQ(SymbolicSizes::value_of(chosen), size < 7 ? size : 9);
    EXPECT_EQ(SymbolicSizes::value_of(given.a.sym_lt(7).toSymInt()), size < 7 ? 1 : 0);
    EXPECT_EQ(given.later(chosen, 4, 5), size < 7 ? 4 : 5);
    EXPECT_EQ(given.hold(3, 9), size < 7);
    EXPECT_EQ(given.hold(12, 9), size >= 7);
  }
}

TEST(SizeNode, ComputesWhatPlainFloatingPointNumbersCompute) {
  using OnSizes = std::function<SymFloat(const SymFloat&, const SymFloat&)>;
  using OnNumbers = std::function<double(double, double)>;
  const std::vector<std::pair<OnSizes, OnNumbers>> operations = {
      {[](const SymFloat& a, const SymFloat& b) { return a / b + 0.3; }, [](double a, double b) { return a / b + 0.3; }},
      {[](const SymFloat& a, const SymFloat& b) { return (a - 0.7) * b; }, [](double a, double b) { return (a - 0.7) * b; }},
      {[](const SymFloat& a, const SymFloat& b) { return SymFloat(1.0) / (a * b); },
       [](double a, double b) { return 1.0 / (a * b); }},
      {[](const SymFloat& a, const SymFloat& b) { return SymFloat(a.toSymNodeImpl()->neg()) - b; },
       [](double a, double b) { return -a - b; }},
  };
  for (size_t i = 0; i < operations.size(); ++i) {
    const TwoSizes given;
    const SymFloat result = operations[i].first(given.a, given.b);
    const double expected = operations[i].second(6, 9);
    EXPECT_EQ(SymbolicSizes::value_of(result), expected) << "operation " << i;
    EXPECT_TRUE(given.hold(2, 100)) << "operation " << i << " has left a guard";
    EXPECT_EQ(result.guard_float(__FILE__, __LINE__), expected) << "operation " << i;
    EXPECT_TRUE(given.hold(6, 9)) << "operation " << i;
    for (int64_t a = 2; a < 12; ++a) {
      EXPECT_EQ(given.hold(a, 9), operations[i].second(static_cast<double>(a), 9) == expected) << "operation " << i;
    }
  }
}

TEST(SizeNode, GuardsQuestionsAboutFloatingPointNumbers) {
  const TwoSizes given;
  const SymFloat half = SymFloat(given.a) / 2.0;
  EXPECT_TRUE(half < 3.5 && half >= 2.5 && half != 4.5);
  for (int64_t a = 2; a < 12; ++a) {
    const double plain = static_cast<double>(a) / 2;
    EXPECT_EQ(given.hold(a, 9), plain < 3.5 && plain >= 2.5 && plain != 4.5) << a;
  }
}

// What cannot be followed is this run's number, and no other's.
TEST(SizeNode, PinsRootsAndRoundedNumbers) {
  const TwoSizes root;
  EXPECT_DOUBLE_EQ(SymbolicSizes::value_of(SymFloat(root.b).sqrt()), 3.0);
  const TwoSizes ceiling;
  EXPECT_EQ(SymbolicSizes::value_of(SymInt((SymFloat(ceiling.b) / 2.0).toSymNodeImpl()->ceil())), 5);
  const TwoSizes floor;
  EXPECT_EQ(SymbolicSizes::value_of(SymInt((SymFloat(floor.b) / 2.0).toSymNodeImpl()->floor())), 4);
  const TwoSizes power;
  EXPECT_EQ(SymbolicSizes::value_of(SymInt(node_of(power.b)->pow(node_of(power.a)->wrap_int(2)))), 81);
  for (const TwoSizes* given : {&root, &ceiling, &floor, &power}) {
    EXPECT_TRUE(given->hold(2, 9));
    EXPECT_FALSE(given->hold(6, 10));
  }
}

TEST(SizeNode, DividesByZeroWithoutAnException) {
  const TwoSizes given;
  const SymInt zero = given.a - given.a;
  EXPECT_EQ(SymbolicSizes::value_of(given.b / zero), 0);
  EXPECT_EQ(SymbolicSizes::value_of(given.b % zero), 0);
  EXPECT_EQ(given.sizes->refusal(), "") << "the number may be unused";
  guarded(given.b / zero);
  EXPECT_NE(given.sizes->refusal(), "") << "no later run can have that number";
}

}  // namespace
}  // namespace sconce::testing
