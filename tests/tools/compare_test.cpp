#include "tools/sconce/values/compare.h"

#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/value_walk.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>

#include <cmath>

namespace sconce::cli {
namespace {

std::string first_difference(const c10::IValue& got, const c10::IValue& expected, CompareOptions options = {}) {
  const auto mismatches = compare(got, expected, options);
  return mismatches.empty() ? "" : to_string(mismatches.front());
}

c10::IValue tuple(std::vector<c10::IValue> elements) { return c10::ivalue::Tuple::create(std::move(elements)); }

// An object of a class made for the call: as two loads of one model give two classes.
c10::IValue pair_object(const std::string& class_name, const at::Tensor& first, int64_t second) {
  auto unit = std::make_shared<torch::jit::CompilationUnit>();
  auto type = c10::ClassType::create(c10::QualifiedName(class_name), unit);
  type->addAttribute("first", c10::TensorType::get());
  type->addAttribute("second", c10::IntType::get());
  auto object = c10::ivalue::Object::create(c10::StrongTypePtr(unit, type), 2);
  object->setSlot(0, first);
  object->setSlot(1, second);
  return object;
}

TEST(Compare, EqualTensorsAgree) {
  EXPECT_EQ(first_difference(at::ones({2, 3}), at::ones({2, 3})), "");
  EXPECT_EQ(first_difference(at::ones({0}), at::ones({0})), "");
  EXPECT_EQ(first_difference(at::Tensor(), at::Tensor()), "");
}

TEST(Compare, ToleratesErrorsWithinBoundsOnly) {
  const at::Tensor expected = at::full({4}, 100.0);
  EXPECT_EQ(first_difference(expected + 0.09, expected), "");
  EXPECT_NE(first_difference(expected + 0.2, expected), "");
  EXPECT_NE(first_difference(expected + 0.09, expected, {1e-5, 1e-5, true}), "");
}

TEST(Compare, IntegersAndBoolsMustBeEqual) {
  EXPECT_NE(first_difference(at::full({1}, 100001, at::kLong), at::full({1}, 100000, at::kLong)), "");
  EXPECT_NE(first_difference(at::ones({1}, at::kBool), at::zeros({1}, at::kBool)), "");
}

TEST(Compare, NaNEqualsNaNAndInfinityItself) {
  const at::Tensor special = at::tensor({NAN, INFINITY, -INFINITY, 1.0});
  EXPECT_EQ(first_difference(special, special.clone()), "");
  EXPECT_NE(first_difference(at::tensor({NAN}), at::tensor({1.0})), "");
  EXPECT_NE(first_difference(at::tensor({1.0}), at::tensor({NAN})), "");
  EXPECT_NE(first_difference(at::tensor({1.0}), at::tensor({INFINITY})), "");
  EXPECT_NE(first_difference(at::tensor({-INFINITY}), at::tensor({INFINITY})), "");
}

TEST(Compare, ReportsDtypeShapeAndRequiresGrad) {
  EXPECT_EQ(first_difference(at::ones({2}, at::kDouble), at::ones({2})), "out: dtype is float64 instead of float32");
  EXPECT_EQ(first_difference(at::ones({2, 1}), at::ones({2})), "out: shape is [2, 1] instead of [2]");
  EXPECT_EQ(first_difference(at::ones({2}).requires_grad_(), at::ones({2})), "out: requires grad, and should not");
  EXPECT_EQ(first_difference(at::ones({2}).requires_grad_(), at::ones({2}), {1e-3, 1e-4, false}), "");
  EXPECT_EQ(first_difference(at::Tensor(), at::ones({2})), "out: is undefined instead of a tensor");
}

TEST(Compare, NamesFirstDifferingIndexAndLargestErrors) {
  at::Tensor got = at::ones({2, 3});
  got[1][0] = 2.0;
  got[1][2] = 5.0;
  const auto mismatches = compare(got, at::ones({2, 3}), {});
  ASSERT_EQ(mismatches.size(), 1);
  EXPECT_EQ(mismatches[0].first_index, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(mismatches[0].max_absolute_error, 4.0);
  EXPECT_EQ(mismatches[0].max_relative_error, 4.0);
  EXPECT_THAT(to_string(mismatches[0]),
              ::testing::HasSubstr("2 of 6 elements differ, the first is 2 instead of 1 at [1, 0]"));
}

TEST(Compare, NamesThePathToTheDifference) {
  c10::impl::GenericDict got(c10::StringType::get(), c10::TensorType::get());
  got.insert("x", at::ones({1}));
  c10::impl::GenericDict expected(c10::StringType::get(), c10::TensorType::get());
  expected.insert("x", at::zeros({1}));
  EXPECT_THAT(first_difference(tuple({1, got}), tuple({1, expected})),
              ::testing::StartsWith("out[1][\"x\"]: 1 of 1 elements differ"));
}

TEST(Compare, ChecksKindsLengthsAndKeys) {
  EXPECT_EQ(first_difference(1, 1.0), "out: is an int instead of a float");
  EXPECT_EQ(first_difference(c10::IValue(), at::ones({1})), "out: is None instead of a tensor");
  EXPECT_EQ(first_difference(tuple({1}), c10::List<int64_t>({1})), "out: is a tuple instead of a list");
  EXPECT_EQ(first_difference(c10::List<int64_t>({1}), c10::List<int64_t>({1, 2})), "out: has 1 elements instead of 2");
  EXPECT_EQ(first_difference("a", "b"), "out: is \"a\" instead of \"b\"");
  EXPECT_EQ(first_difference(true, false), "out: is True instead of False");
  c10::impl::GenericDict one(c10::StringType::get(), c10::IntType::get());
  one.insert("a", 1);
  one.insert("b", 1);
  c10::impl::GenericDict other(c10::StringType::get(), c10::IntType::get());
  other.insert("b", 1);
  other.insert("a", 1);
  EXPECT_THAT(first_difference(one, other), ::testing::HasSubstr("has the keys"));
}

TEST(Compare, FloatsHaveTheTolerance) {
  EXPECT_EQ(first_difference(1.00001, 1.0), "");
  EXPECT_EQ(first_difference(NAN, NAN), "");
  EXPECT_NE(first_difference(1.1, 1.0), "");
  EXPECT_NE(first_difference(INFINITY, 1.0), "");
}

TEST(Compare, ObjectsAgreeByStructureAcrossCompilationUnits) {
  const c10::IValue a = pair_object("__torch__.Pair", at::ones({2}), 1);
  EXPECT_EQ(first_difference(a, pair_object("__torch__.___torch_mangle_3.Pair", at::ones({2}), 1)), "");
  EXPECT_THAT(first_difference(a, pair_object("__torch__.Pair", at::zeros({2}), 1)), ::testing::StartsWith("out.first: "));
  EXPECT_THAT(first_difference(a, pair_object("__torch__.Pair", at::ones({2}), 2)), ::testing::StartsWith("out.second: "));
  EXPECT_THAT(first_difference(a, pair_object("__torch__.Other", at::ones({2}), 1)),
              ::testing::HasSubstr("instead of a __torch__.Other"));
}

TEST(Compare, LimitsTheNumberOfMismatches) {
  const c10::List<int64_t> zeros({0, 0, 0, 0});
  EXPECT_EQ(compare(zeros, c10::List<int64_t>({1, 1, 1, 1}), {}, "out", 3).size(), 3);
}

TEST(DeepCopy, CopiesShareNothingWithTheOriginal) {
  const at::Tensor original = at::ones({2});
  const at::Tensor copy = deep_copy(original).toTensor();
  copy.add_(1);
  EXPECT_TRUE(original.equal(at::ones({2})));
}

TEST(DeepCopy, KeepsSharingStridesAndIdentity) {
  const at::Tensor base = at::arange(12).view({3, 4});
  const at::Tensor view = base.t();
  const auto copies = deep_copy({base, view, base, at::ones({1}).expand({3})});
  EXPECT_TRUE(copies[0].toTensor().is_same(copies[2].toTensor()));
  EXPECT_EQ(copies[1].toTensor().strides(), view.strides());
  EXPECT_EQ(copies[3].toTensor().strides(), at::IntArrayRef({0}));
  copies[0].toTensor()[0][1] = 50;
  EXPECT_EQ(copies[1].toTensor()[1][0].item<int64_t>(), 50);
  EXPECT_EQ(base[0][1].item<int64_t>(), 1);
}

TEST(DeepCopy, LeavesRequireGradAgainAndOthersDoNot) {
  const at::Tensor leaf = at::ones({2}).requires_grad_();
  const auto copies = deep_copy({leaf, leaf * 2});
  EXPECT_TRUE(copies[0].toTensor().requires_grad());
  EXPECT_FALSE(copies[1].toTensor().requires_grad());
}

TEST(DeepCopy, CopiesContainersThatHoldThemselves) {
  c10::impl::GenericList list(c10::AnyType::get());
  list.push_back(at::ones({1}));
  list.push_back(list);
  const c10::IValue copy = deep_copy(list);
  EXPECT_TRUE(copy.toList().get(1).is(copy));
  EXPECT_FALSE(copy.is(list));
  list.clear();  // break the circle
  copy.toList().clear();
}

TEST(Sharing, NamesTheFirstOwnerOfTheMemory) {
  const at::Tensor x = at::ones({4});
  const auto sharing =
      sharing_of({{"inputs[0]", x}}, tensors_in(tuple({x.view({2, 2}), at::ones({4}), x}), "out", Objects::kEnter));
  EXPECT_THAT(sharing, ::testing::ElementsAre("out[0] shares memory with inputs[0]", "out[2] shares memory with inputs[0]"));
}

}  // namespace
}  // namespace sconce::cli
