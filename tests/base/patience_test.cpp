#include "base/patience.h"

#include <gtest/gtest.h>

#include <vector>

namespace sconce {
namespace {

// Returns the numbers of the runs, from 1, in which an attempt that always fails is made.
std::vector<int> attempts(Patience patience, int runs) {
  std::vector<int> made;
  for (int run = 1; run <= runs; ++run) {
    if (patience.allows()) {
      made.push_back(run);
      patience.lose();
    }
  }
  return made;
}

TEST(Patience, WithoutARestEndsForGood) { EXPECT_EQ(attempts(Patience({.losses = 3}), 100), (std::vector{1, 2, 3})); }

TEST(Patience, BearsHalfAsMuchAfterARest) {
  EXPECT_EQ(attempts(Patience({.losses = 4, .rest = 10}), 30), (std::vector{1, 2, 3, 4, 14, 15, 25, 26}));
}

TEST(Patience, RestsGrow) {
  EXPECT_EQ(attempts(Patience({.losses = 1, .rest = 1, .growth = 2}), 40), (std::vector{1, 2, 4, 8, 16, 32}));
}

TEST(Patience, WinsTakeLossesBack) {
  Patience patience({.losses = 3});
  patience.lose();
  patience.lose();
  patience.win(5);
  patience.lose();
  patience.lose();
  EXPECT_TRUE(patience.allows());
  patience.lose();
  EXPECT_FALSE(patience.allows());
  patience.win_all();
  EXPECT_TRUE(patience.allows());
}

TEST(SecondSight, RemembersTheLastOnes) {
  SecondSight seen(2);
  EXPECT_FALSE(seen.sees_again(1));
  EXPECT_FALSE(seen.sees_again(2));
  EXPECT_TRUE(seen.sees_again(1));
  EXPECT_FALSE(seen.sees_again(3));  // in place of 1
  EXPECT_TRUE(seen.sees_again(2));
  EXPECT_FALSE(seen.has_seen(1));
}

}  // namespace
}  // namespace sconce
