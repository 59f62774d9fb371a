// `sconce check --grad`, and --mode.
#include "tests/tools/sconce_program.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kNoParameter = "def forward(self, x: Tensor):\n    return x.relu() * 2\n";

size_t compared(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--grad", "--json"});
  const ProgramResult result = sconce(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  return json_of(result)["gradients_compared"].get<size_t>();
}

TEST(CheckGradients, SaysThatNothingRequiresOne) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "plain.pt", kNoParameter);
  const std::vector<std::string> arguments = {"check", model, "--input", "float32[3]", "--grad"};
  const ProgramResult text = sconce(arguments);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out,
            "note: case 0: no gradient to compare: no parameter of the model and no argument requires one\n"
            "1 of 1 cases agree (3 calls each, no gradient to compare, with LibTorch alone, plans: tier0, "
            "tier1)\n");
  EXPECT_EQ(compared({"check", model, "--input", "float32[3]"}), 0U);
}

TEST(CheckGradients, SaysThatNoOutputRequiresOne) {
  const ProgramResult text = sconce({"check", model_file("decoder_generate.pt"), "--grad", "--calls", "1"});
  EXPECT_EQ(text.exit_code, 0) << text.out << text.err;
  EXPECT_THAT(text.out, HasSubstr("no gradient to compare: no floating-point tensor of the output requires one"));
}

// mlp has 6 parameters and 5 cases. Calls 1, 4, … of each case record gradients, in 2 plans.
TEST(CheckGradients, ComparesThemInEveryCaseAndRecordingCall) {
  const std::string model = model_file("mlp.pt");
  EXPECT_EQ(compared({"check", model, "--input", "float32[4,16]", "--calls", "1"}), 6U * 2);
  EXPECT_EQ(compared({"check", model, "--input", "float32[4,16]", "--calls", "4"}), 6U * 2 * 2);
  EXPECT_EQ(compared({"check", model, "--calls", "1"}), 6U * 2 * 5);
}

TEST(CheckGradients, ComparesThemInEveryCallOfEveryThread) {
  const std::string model = model_file("mlp.pt");
  EXPECT_EQ(compared({"check", model, "--input", "float32[4,16]", "--calls", "3", "--threads", "4"}), 6U * 2 * (1 + 3 * 4));
}

TEST(CheckGradients, ComparesThoseOfArgumentsThatRequireOne) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "plain.pt", kNoParameter);
  const std::string cases = scratch.path() + "/plain.cases.pt";
  torch::jit::Module module("Cases");
  const at::Tensor x = at::ones({2}).requires_grad_();
  const auto one = c10::ivalue::Tuple::create(x);
  c10::impl::GenericList inputs(one->type());
  inputs.push_back(one);
  module.register_attribute("inputs", c10::ListType::create(inputs.elementType()), inputs);
  module.register_attribute("outputs", c10::ListType::ofTensors(), c10::List<at::Tensor>({at::full({2}, 2.0)}));
  module.save(cases);
  EXPECT_EQ(compared({"check", model, cases, "--calls", "1"}), 2U);
  EXPECT_EQ(sconce({"check", model, cases, "--grad", "--threads", "3"}).exit_code, 0);
}

TEST(CheckMode, LeavesOutAnswersOfTheOtherMode) {
  const std::string evaluating = model_file("conv_bn_small.pt");
  const ProgramResult changed = sconce({"check", evaluating, "--mode", "train", "--grad", "--threads", "2"});
  EXPECT_EQ(changed.exit_code, 0) << changed.out << changed.err;
  EXPECT_THAT(changed.out,
              HasSubstr("note: case 0: the recorded answer is of another mode; compared with LibTorch alone\n"));
  EXPECT_THAT(changed.out, HasSubstr("note: case 0: not called by 2 threads: they write the model's own state\n"));
  EXPECT_THAT(changed.out, HasSubstr("in train mode, with gradients, "));
  const ProgramResult same = sconce({"check", evaluating, "--mode", "eval", "--threads", "2"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_THAT(same.out, Not(HasSubstr("note: ")));

  const std::string training = model_file("conv_bn_small_train.pt");
  const std::string wrong = model_file("bad/conv_bn_small_train_wrong_buffer.cases.pt");
  EXPECT_EQ(sconce({"check", training, wrong, "--mode", "train"}).exit_code, 1);
  EXPECT_EQ(sconce({"check", training, wrong, "--mode", "eval"}).exit_code, 0) << "the buffer is one of training";
}

TEST(CheckMode, LeavesOutAnswersOfCallsWithoutAutocast) {
  const std::string wrong = model_file("bad/mlp_wrong_output.cases.pt");
  const ProgramResult result = sconce({"check", model_file("mlp.pt"), wrong, "--autocast", "bfloat16", "--mode", "train"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("note: case 4: the case was recorded without autocast; compared with LibTorch alone\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("another mode")));
}

TEST(CheckMode, RefusesWhatHasNoMeaning) {
  expect_usage_error({"check", model_file("mlp.pt"), "--mode", "trian"}, "--mode: no mode 'trian'; did you mean 'train'?");
  const std::string suite = model_file("operators.cases.pt");
  expect_usage_error({"check", suite, suite, "--mode", "eval"}, "leave --mode out");
}

}  // namespace
}  // namespace sconce::tests
