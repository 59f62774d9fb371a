// Tensors of a recording are known as objects, and by their key where they are others.
#include "trace/bound_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace sconce::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

bool serve(BoundTensors& bound, const Tensors& arguments, const Tensors& own) {
  return bound.hold(own, arguments) || bound.rebind(own, arguments);
}

TEST(BoundTensors, LeavesTheSizesOfArgumentsOpen) {
  const Tensors own = {at::ones({3}), at::ones({2, 2})};
  BoundTensors bound(own, Tensors{at::ones({4})});
  EXPECT_TRUE(serve(bound, Tensors{at::ones({4})}, own));
  EXPECT_TRUE(serve(bound, Tensors{at::ones({9})}, own));
  const Tensors others = {at::zeros({3}), at::zeros({2, 2})};
  EXPECT_FALSE(bound.hold(others, Tensors{at::ones({4})}));
  EXPECT_TRUE(bound.rebind(others, Tensors{at::ones({4})})) << "of the same form";
  EXPECT_TRUE(bound.hold(others, Tensors{at::ones({4})}));
  EXPECT_FALSE(serve(bound, Tensors{at::ones({4})}, Tensors{at::zeros({4}), at::zeros({2, 2})}));
  EXPECT_FALSE(serve(bound, Tensors{at::ones({4})}, Tensors{at::zeros({3})}));
}

TEST(BoundTensors, SeesWhatHappensToATensor) {
  const Tensors arguments = {at::ones({4})};
  const Tensors own = {at::ones({6}), at::ones({2, 3})};
  BoundTensors bound(own, arguments);
  ASSERT_TRUE(serve(bound, arguments, own));
  own[0].set_requires_grad(true);
  EXPECT_FALSE(serve(bound, arguments, own));
  own[0].set_requires_grad(false);
  EXPECT_TRUE(serve(bound, arguments, own));
  own[1].t_();
  EXPECT_FALSE(serve(bound, arguments, own));
  own[1].t_();
  EXPECT_TRUE(serve(bound, arguments, own));
  own[0].set_(own[1].view({6}));
  EXPECT_FALSE(serve(bound, arguments, own)) << "two share memory";
  own[0].set_(at::ones({6}));
  EXPECT_TRUE(serve(bound, arguments, own));
}

TEST(BoundTensors, SeesArgumentsThatShareMemory) {
  const Tensors own = {at::ones({6}), at::ones({2, 3})};
  BoundTensors apart(own, Tensors{at::ones({4}), at::ones({4})});
  EXPECT_FALSE(serve(apart, Tensors{own[0].slice(0, 0, 4), at::ones({4})}, own));
  EXPECT_FALSE(serve(apart, Tensors{own[0], at::ones({4})}, own));
  EXPECT_TRUE(serve(apart, Tensors{at::ones({4}), at::ones({4})}, own));
  BoundTensors shared(own, Tensors{own[0], at::ones({4})});
  EXPECT_TRUE(serve(shared, Tensors{own[0], at::ones({4})}, own));
  EXPECT_FALSE(serve(shared, Tensors{at::ones({6}), at::ones({4})}, own));
  EXPECT_FALSE(serve(shared, Tensors{own[1].view({6}), at::ones({4})}, own));
}

}  // namespace
}  // namespace sconce::testing
