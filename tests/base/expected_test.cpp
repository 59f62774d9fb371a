#include "base/expected.h"

#include "tests/support/graphs.h"

#include <gtest/gtest.h>

#include <memory>

namespace sconce {
namespace {

const Refusal kRefusal{"it is too large", "%1 : Tensor = aten::relu(%x)", "model.py:2:8 in g\nmodel.py:9:4 in f"};

TEST(Expected, HoldsAValueOrTheRefusal) {
  const Expected<int> value = 3;
  const Expected<int> refused = kRefusal;
  ASSERT_TRUE(value);
  EXPECT_EQ(*value, 3);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.refusal().reason, "it is too large");
}

TEST(Expected, OfVoidSucceedsByDefault) {
  EXPECT_TRUE(Expected<void>());
  EXPECT_FALSE(Expected<void>(kRefusal));
  Expected<void>().value_or_throw("never");
}

TEST(Expected, TakesWhatConvertsToItsType) {
  Expected<std::shared_ptr<const int>> number = std::make_shared<int>(4);
  EXPECT_EQ(*std::move(number).value_or_throw("never"), 4);
}

TEST(Expected, ThrowsTheWholeRefusalWithItsContext) {
  const std::string message =
      "cannot run f: it is too large\n  node: %1 : Tensor = aten::relu(%x)\n"
      "  at:   model.py:2:8 in g\n        model.py:9:4 in f";
  EXPECT_EQ(testing::message_of([] { Expected<int>(kRefusal).value_or_throw("cannot run f"); }), message);
  EXPECT_EQ(testing::message_of([] { Expected<void>(kRefusal).value_or_throw("cannot run f"); }), message);
}

}  // namespace
}  // namespace sconce
