// A plan and what ran before take turns, and the faster one stays.
#include "base/plan_race.h"

#include <gtest/gtest.h>

namespace sconce {
namespace {

// Runs calls until the race is over. Returns how many they were.
int run(PlanRace& race, double seconds_of_plan, double seconds_of_others) {
  int calls = 0;
  for (; race.is_on() && calls < 100; ++calls) {
    const PlanRace::Side side = race.next();
    race.note(side, side == PlanRace::Side::kPlan ? seconds_of_plan : seconds_of_others);
  }
  return calls;
}

TEST(PlanRace, EndsSoonIfThePlanIsClearlyFaster) {
  PlanRace race(/*is_held=*/true);
  EXPECT_EQ(run(race, 1, 2), 19);
  EXPECT_FALSE(race.has_lost());
  EXPECT_EQ(race.next(), PlanRace::Side::kPlan);
}

TEST(PlanRace, LeavesCallsToTheOthersIfTheyAreFaster) {
  PlanRace race(/*is_held=*/true);
  EXPECT_EQ(run(race, 2, 1), 24);
  EXPECT_TRUE(race.has_lost());
  EXPECT_EQ(race.next(), PlanRace::Side::kOthers);
}

// A program that makes several calls in a step, and a backward after the last one.
TEST(PlanRace, IsFairInProgramsWithSeveralCallsInAStep) {
  for (const int calls_in_step : {2, 3, 4}) {
    for (const bool is_plan_faster : {false, true}) {
      PlanRace race(/*is_held=*/true);
      for (int call = 0; race.is_on(); ++call) {
        const double backward = call % calls_in_step == calls_in_step - 1 ? 10 : 0;
        const PlanRace::Side side = race.next();
        race.note(side, backward + ((side == PlanRace::Side::kPlan) == is_plan_faster ? 1 : 2));
      }
      EXPECT_EQ(race.has_lost(), !is_plan_faster) << calls_in_step << " calls";
    }
  }
}

TEST(PlanRace, TakesALittleForNoise) {
  PlanRace race(/*is_held=*/true);
  run(race, 1.02, 1);
  EXPECT_FALSE(race.has_lost());
}

TEST(PlanRace, IsNotHeldWhereThePlanShallRun) {
  PlanRace race(/*is_held=*/false);
  EXPECT_FALSE(race.is_on());
  EXPECT_EQ(race.next(), PlanRace::Side::kPlan);
}

// The plan wins a race without times, as when several threads call.
TEST(PlanRace, EndsWithoutTimes) {
  PlanRace race(/*is_held=*/true);
  for (int call = 0; call < 24; ++call) {
    race.next();
  }
  EXPECT_EQ(race.next(), PlanRace::Side::kPlan);
}

}  // namespace
}  // namespace sconce
