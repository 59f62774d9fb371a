#include "tools/sconce/values/cases.h"
#include "tools/sconce/report/errors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

namespace sconce::cli {
namespace {

using Attributes = std::vector<std::pair<std::string, c10::IValue>>;

torch::jit::Module module_of(const Attributes& attributes) {
  torch::jit::Module module("Cases");
  for (const auto& [name, value] : attributes) {
    module.register_attribute(name, value.type(), value);
  }
  return module;
}

c10::IValue list_of(std::vector<c10::IValue> values) {
  c10::impl::GenericList list(values.empty() ? c10::TypePtr(c10::AnyType::get()) : values.front().type());
  for (const c10::IValue& value : values) {
    list.push_back(value);
  }
  return list;
}

c10::IValue tensors(std::vector<at::Tensor> values) { return c10::List<at::Tensor>(std::move(values)); }

Attributes two_cases() {
  const auto one = [](int64_t n) { return c10::IValue(c10::ivalue::Tuple::create(std::vector<c10::IValue>{n})); };
  return {{"inputs", list_of({one(1), one(2)})}, {"outputs", c10::List<int64_t>({10, 20})}};
}

std::string error_of(const Attributes& attributes) {
  try {
    read_cases(module_of(attributes), "x.cases.pt");
  } catch (const UserError& failure) {
    return failure.what();
  }
  return "no error";
}

TEST(Cases, ReadsTheFirstFormWithDefaults) {
  const auto cases = std::get<ModelCases>(read_cases(module_of(two_cases()), "x"));
  EXPECT_EQ(cases.method, "forward");
  EXPECT_EQ(cases.rtol, 1e-3);
  EXPECT_EQ(cases.atol, 1e-4);
  ASSERT_EQ(cases.inputs.size(), 2);
  EXPECT_EQ(cases.inputs[1][0].toInt(), 2);
  EXPECT_EQ(cases.outputs[1].toInt(), 20);
}

TEST(Cases, ReadsOptionalAttributes) {
  Attributes attributes = two_cases();
  attributes.emplace_back("method", "encode");
  attributes.emplace_back("seed", 7);
  attributes.emplace_back("rtol", 0.5);
  attributes.emplace_back("grad_names", c10::List<std::string>({"w"}));
  attributes.emplace_back("grads", tensors({at::ones({2})}));
  attributes.emplace_back("buffer_names", c10::List<std::string>({"b"}));
  attributes.emplace_back("buffers_after", tensors({at::zeros({2})}));
  const auto cases = std::get<ModelCases>(read_cases(module_of(attributes), "x"));
  EXPECT_EQ(cases.method, "encode");
  EXPECT_EQ(cases.seed, 7);
  EXPECT_EQ(cases.rtol, 0.5);
  EXPECT_EQ(cases.grad_names, std::vector<std::string>{"w"});
  EXPECT_EQ(cases.buffers_after.size(), 1);
}

TEST(Cases, ReadsTheSecondForm) {
  const c10::List<bool> flags({true, false});
  const auto rows =
      std::get<OperatorCases>(read_cases(module_of({{"names", c10::List<std::string>({"add/0"})},
                                                    {"methods", c10::List<std::string>({"add"})},
                                                    {"inputs", list_of({tensors({at::ones({2}), at::ones({2})})})},
                                                    {"needs_grad", list_of({flags})},
                                                    {"outputs", list_of({tensors({at::ones({2})})})},
                                                    {"grads", list_of({tensors({})})},
                                                    {"rtol", c10::List<double>({1e-3})},
                                                    {"atol", c10::List<double>({1e-4})}}),
                                         "x"));
  ASSERT_EQ(rows.size(), 1);
  EXPECT_EQ(rows[0].name, "add/0");
  EXPECT_EQ(rows[0].needs_grad, (std::vector<bool>{true, false}));
  EXPECT_TRUE(rows[0].grads.empty());
}

TEST(Cases, SaysWhatIsMissingOrWrong) {
  EXPECT_EQ(error_of({}), "x.cases.pt: has no attribute 'inputs', so it is no CASES file");
  Attributes attributes = two_cases();
  attributes[1].second = c10::List<int64_t>({10});
  EXPECT_EQ(error_of(attributes), "x.cases.pt: it has 2 'inputs' but 1 'outputs'");
  attributes = two_cases();
  attributes[0].second = c10::List<int64_t>({1, 2});
  EXPECT_THAT(error_of(attributes), ::testing::HasSubstr("should be a list of tuples"));
  attributes = two_cases();
  attributes.emplace_back("seed", "zero");
  EXPECT_EQ(error_of(attributes), "x.cases.pt: its 'seed' should be an int, but is str");
}

}  // namespace
}  // namespace sconce::cli
