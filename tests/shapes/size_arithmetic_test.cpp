#include "shapes/size_arithmetic.h"

#include <gtest/gtest.h>

#include <random>

namespace sconce {
namespace {

const Dim kH = Dim::symbol(1);
const Dim kW = Dim::symbol(2);

Dim number(int64_t value) { return Dim::known(value); }

TEST(SizeArithmetic, EqualSizesHaveEqualSymbolsHoweverTheyWereComputed) {
  SizeArithmetic sizes(2);
  const Dim a = sizes.multiply(sizes.add(kH, kW), sizes.subtract(kH, kW));
  const Dim b = sizes.subtract(sizes.multiply(kH, kH), sizes.multiply(kW, kW));
  EXPECT_EQ(a, b);
  EXPECT_EQ(sizes.subtract(a, b), number(0));
  EXPECT_EQ(sizes.subtract(sizes.add(kH, number(3)), number(3)), kH);
}

// Two ways to halve an image: a kernel of 3 with a border of 1, and one of 1 without.
TEST(SizeArithmetic, TheSizesOfTwoWaysThroughAResidualBlockAreOne) {
  SizeArithmetic sizes(1);
  const auto convolved = [&](Dim size, int64_t kernel, int64_t border) {
    const Dim room = sizes.subtract(sizes.add(size, number(2 * border)), number(kernel));
    return sizes.add(sizes.floor_divide(room, number(2)), number(1));
  };
  EXPECT_EQ(convolved(kH, 3, 1), convolved(kH, 1, 0));
  EXPECT_NE(convolved(kH, 3, 0), convolved(kH, 1, 0));
}

TEST(SizeArithmetic, DivisionUndoesMultiplication) {
  SizeArithmetic sizes(2);
  const Dim longer = sizes.add(kW, number(1));
  EXPECT_EQ(sizes.floor_divide(sizes.multiply(sizes.multiply(kH, longer), number(12)), longer),
            sizes.multiply(kH, number(12)));
  EXPECT_EQ(sizes.remainder(sizes.multiply(kH, number(12)), number(4)), number(0));
  EXPECT_EQ(sizes.floor_divide(sizes.floor_divide(kH, number(2)), number(3)), sizes.floor_divide(kH, number(6)));
}

TEST(SizeArithmetic, WhatRaisesOrOverflowsIsUnknown) {
  SizeArithmetic sizes(1);
  EXPECT_TRUE(sizes.floor_divide(kH, number(0)).is_unknown());
  EXPECT_TRUE(sizes.remainder(kH, number(0)).is_unknown());
  EXPECT_TRUE(sizes.multiply(number(INT64_MAX), number(2)).is_unknown());
  EXPECT_TRUE(sizes.add(Dim::unknown(), kH).is_unknown());
  EXPECT_EQ(sizes.multiply(Dim::unknown(), number(0)), number(0));
}

TEST(SizeArithmetic, DecidesWhatHoldsForEverySize) {
  SizeArithmetic sizes(2);
  EXPECT_EQ(sizes.equal(kH, number(-1)), false);
  EXPECT_EQ(sizes.less(kH, number(0)), false);
  EXPECT_EQ(sizes.less(kH, sizes.add(kH, number(1))), true);
  EXPECT_EQ(sizes.less(number(INT64_MAX), kH), false);
  EXPECT_EQ(sizes.equal(kH, kW), std::nullopt);
  EXPECT_EQ(sizes.equal(kH, number(1)), std::nullopt);
  sizes.set_not_one(kH);
  EXPECT_EQ(sizes.equal(kH, number(1)), false);
}

// As in the shape function of expand, where a dim of one element takes the size that is asked for.
TEST(SizeArithmetic, ChoosesBetweenEqualSizes) {
  SizeArithmetic sizes(2);
  EXPECT_EQ(sizes.if_equal(kH, number(1), number(1), kH), kH);
  EXPECT_EQ(sizes.if_equal(kH, number(1), kH, number(1)), number(1));
  EXPECT_NE(sizes.if_equal(kH, number(1), number(2), kH), kH);
}

TEST(SizeArithmetic, BroadcastsWhatIsKnownToBeLongerThanOne) {
  SizeArithmetic sizes(2);
  EXPECT_EQ(sizes.broadcast(kH, number(1)), kH);
  EXPECT_EQ(sizes.broadcast(number(8), kH), number(8));
  EXPECT_TRUE(sizes.broadcast(kH, kW).is_unknown());
  sizes.set_not_one(kW);
  EXPECT_EQ(sizes.broadcast(kH, kW), kW);
}

// Random expressions: the example of the result is the result of the examples.
TEST(SizeArithmetic, AgreesWithNumbers) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    SizeArithmetic sizes(2);
    std::vector<std::pair<Dim, int64_t>> known;
    for (const Dim symbol : {kH, kW}) {
      const auto value = static_cast<int64_t>(random() % 20);
      sizes.set_example(symbol, value);
      known.emplace_back(symbol, value);
    }
    for (const int64_t value : {1, 2, 3, 7}) {
      known.emplace_back(number(value), value);
    }
    for (int step = 0; step < 12; ++step) {
      const auto [a, x] = known[random() % known.size()];
      const auto [b, y] = known[random() % known.size()];
      const auto [c, z] = known[random() % known.size()];
      Dim result = Dim::unknown();
      int64_t expected = 0;
      const int64_t quotient = y > 0 ? (x >= 0 ? x / y : -((-x + y - 1) / y)) : 0;
      switch (random() % 8) {
        case 0: result = sizes.add(a, b), expected = x + y; break;
        case 1: result = sizes.subtract(a, b), expected = x - y; break;
        case 2: result = sizes.multiply(a, b), expected = x * y; break;
        case 3: result = y > 0 ? sizes.floor_divide(a, b) : a, expected = y > 0 ? quotient : x; break;
        case 4: result = y > 0 ? sizes.remainder(a, b) : a, expected = y > 0 ? x - quotient * y : x; break;
        case 5: result = sizes.maximum(a, b), expected = std::max(x, y); break;
        case 6: result = sizes.if_less(a, b, c, a), expected = x < y ? z : x; break;
        default: result = sizes.if_equal(a, b, c, b), expected = x == y ? z : y; break;
      }
      if (result.is_unknown()) {
        continue;
      }
      ASSERT_EQ(sizes.example(result), expected) << "round " << round << ", step " << step;
      ASSERT_NE(sizes.less(result, number(expected)), true);
      ASSERT_NE(sizes.less(number(expected), result), true);
      ASSERT_NE(sizes.equal(result, number(expected)), false);
      known.emplace_back(result, expected);
    }
  }
}

}  // namespace
}  // namespace sconce
