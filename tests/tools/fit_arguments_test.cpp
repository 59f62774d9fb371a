#include "tools/sconce/values/fit_arguments.h"
#include "tools/sconce/report/errors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

namespace sconce::cli {
namespace {

c10::FunctionSchema schema(const std::string& text) { return torch::jit::parseSchema(text); }

std::string error_of(const std::string& schema_text, const std::vector<c10::IValue>& arguments) {
  try {
    fit_arguments(schema(schema_text), arguments);
  } catch (const UserError& failure) {
    return failure.what();
  }
  return "no error";
}

TEST(FitArguments, ConvertsAsPythonCallsDo) {
  const auto fitted = fit_arguments(
      schema("f(float a, Tensor? b, float[] c, (int, float) d) -> ()"),
      {3, c10::IValue(), c10::List<int64_t>({1, 2}), c10::ivalue::Tuple::create(std::vector<c10::IValue>{1, 2})});
  EXPECT_EQ(fitted[0].toDouble(), 3.0);
  EXPECT_TRUE(fitted[1].isNone());
  EXPECT_TRUE(fitted[2].isDoubleList());
  EXPECT_TRUE(fitted[3].toTupleRef().elements()[1].isDouble());
}

TEST(FitArguments, TypesListsWhoseFileDidNot) {
  c10::impl::GenericList untyped(c10::AnyType::get());
  untyped.push_back(at::ones({1}));
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("a", at::ones({1}));
  const auto fitted = fit_arguments(schema("f(Tensor[] a, Dict(str, Tensor) b) -> ()"), {untyped, dict});
  EXPECT_TRUE(fitted[0].isTensorList());
  EXPECT_EQ(*fitted[1].toGenericDict().valueType(), *c10::TensorType::get());
}

TEST(FitArguments, LeavesOutWhatHasADefault) {
  EXPECT_EQ(fit_arguments(schema("f(Tensor x, int n=2) -> ()"), {at::ones({1})}).size(), 1);
}

TEST(FitArguments, ExplainsWhatDoesNotFitInOneLine) {
  const std::string method = "forward(Tensor x, int n=2) -> ()";
  EXPECT_EQ(error_of(method, {}),
            "0 arguments given, but 'x' of forward is missing; the method is forward(Tensor x, int n=2)");
  EXPECT_EQ(error_of(method, {at::ones({1}), 1, 2}),
            "3 arguments given, forward takes at most 2; the method is forward(Tensor x, int n=2)");
  EXPECT_EQ(error_of(method, {"text"}),
            "the 1st argument, 'x', must be Tensor, not str; the method is forward(Tensor x, int n=2)");
  EXPECT_EQ(error_of(method, {at::ones({1}), 2.5}),
            "the 2nd argument, 'n', must be int, not float; the method is forward(Tensor x, int n=2)");
  EXPECT_THAT(error_of(method, {c10::IValue()}), ::testing::HasSubstr("must be Tensor, not None"));
}

}  // namespace
}  // namespace sconce::cli
