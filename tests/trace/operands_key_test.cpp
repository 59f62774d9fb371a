// Operands of a recording are known by their tensors, and by their key where these are others.
#include "trace/operands_key.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <vector>

namespace sconce::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

TEST(OperandsKey, LeavesTheSizesOfArgumentsOpen) {
  const Tensors own = {at::ones({3}), at::ones({2, 2})};
  OperandsKey key(Tensors{at::ones({4})}, own);
  EXPECT_TRUE(key.matches(Tensors{at::ones({4})}, own));
  EXPECT_TRUE(key.matches(Tensors{at::ones({9})}, own));
  EXPECT_FALSE(key.matches(Tensors{at::ones({4}, at::kDouble)}, own));
  EXPECT_FALSE(key.matches(Tensors{at::ones({4, 1})}, own));
  EXPECT_TRUE(key.matches(Tensors{at::ones({4})}, Tensors{at::zeros({3}), at::zeros({2, 2})})) << "others of the same form";
  EXPECT_FALSE(key.matches(Tensors{at::ones({4})}, Tensors{at::zeros({4}), at::zeros({2, 2})}));
  EXPECT_FALSE(key.matches(Tensors{at::ones({4})}, Tensors{at::zeros({3})}));
}

TEST(OperandsKey, SeesWhatHappensToATensor) {
  const Tensors arguments = {at::ones({4})};
  const Tensors own = {at::ones({6}), at::ones({2, 3})};
  OperandsKey key(arguments, own);
  ASSERT_TRUE(key.matches(arguments, own));
  own[0].set_requires_grad(true);
  EXPECT_FALSE(key.matches(arguments, own));
  own[0].set_requires_grad(false);
  EXPECT_TRUE(key.matches(arguments, own));
  own[1].t_();
  EXPECT_FALSE(key.matches(arguments, own));
  own[1].t_();
  EXPECT_TRUE(key.matches(arguments, own));
  own[0].set_(own[1].view({6}));
  EXPECT_FALSE(key.matches(arguments, own)) << "two share memory";
  own[0].set_(at::ones({6}));
  EXPECT_TRUE(key.matches(arguments, own));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(key.matches(arguments, own)) << "another state of the thread";
}

TEST(OperandsKey, SeesArgumentsThatShareMemory) {
  const Tensors own = {at::ones({6}), at::ones({2, 3})};
  OperandsKey apart(Tensors{at::ones({4}), at::ones({4})}, own);
  EXPECT_FALSE(apart.matches(Tensors{own[0].slice(0, 0, 4), at::ones({4})}, own));
  EXPECT_FALSE(apart.matches(Tensors{own[0], at::ones({4})}, own));
  const at::Tensor twice = at::ones({4});
  EXPECT_FALSE(apart.matches(Tensors{twice, twice}, own));
  EXPECT_TRUE(apart.matches(Tensors{at::ones({4}), at::ones({4})}, own));
  OperandsKey shared(Tensors{own[0], at::ones({4})}, own);
  EXPECT_TRUE(shared.matches(Tensors{own[0], at::ones({4})}, own));
  EXPECT_FALSE(shared.matches(Tensors{at::ones({6}), at::ones({4})}, own));
  EXPECT_FALSE(shared.matches(Tensors{own[1].view({6}), at::ones({4})}, own));
}

}  // namespace
}  // namespace sconce::testing
