// `sconce check` where calls raise, and how it counts cases.
#include "tests/tools/sconce_program.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;

TEST(CheckErrors, ComparesThemInEveryCall) {
  const std::vector<std::string> arguments = {"check", model_file("mlp.pt"), "--input", "float32[4,17]", "--calls", "4"};
  const ProgramResult plain = sconce(arguments);
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(plain.out,
            "note: case 0: the model rejects these arguments, in sconce as in LibTorch: mat1 and mat2 shapes cannot be "
            "multiplied (4x17 and 16x32)\n"
            "1 of 1 cases agree (4 calls each, with LibTorch alone, plans: tier0, tier1)\n");
  for (const char* plan : {"tier0", "tier1", "all"}) {
    std::vector<std::string> with_gradients = arguments;
    with_gradients.insert(with_gradients.end(), {"--grad", "--plan", plan});
    const ProgramResult result = sconce(with_gradients);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("the model rejects these arguments, in sconce as in LibTorch: mat1 and mat2"));
  }
}

// Raises in call 1, and no more in call 4, which records gradients.
TEST(CheckErrors, GoesOnAfterACallThatRaises) {
  const ScratchFolder scratch;
  torch::jit::Module module("Counting");
  module.register_buffer("n", at::zeros({}, at::kLong));
  module.register_parameter("w", at::ones({3}).requires_grad_(true), /*is_buffer=*/false);
  module.define(
      "def forward(self, x: Tensor):\n    self.n.add_(1)\n    assert int(self.n) != 1, \"too early\"\n"
      "    return self.w * x\n");
  const std::string model = scratch.path() + "/counting.pt";
  module.save(model);
  const ProgramResult result = sconce({"check", model, "--input", "float32[3]", "--calls", "4", "--grad", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(json_of(result)["gradients_compared"], 2) << "in call 4 of two plans";
  ASSERT_EQ(json_of(result)["notes"].size(), 1U);
  EXPECT_THAT(json_of(result)["notes"][0]["text"].get<std::string>(), HasSubstr("AssertionError: too early"));
}

TEST(CheckErrors, OfBackwardAreCompared) {
  const ScratchFolder scratch;
  torch::jit::Module module("Halves");
  module.register_parameter("w", at::ones({3}).requires_grad_(true), /*is_buffer=*/false);
  module.define(
      "def forward(self, x: Tensor):\n    y = (self.w * x).sigmoid()\n    z = y * 1\n    y.add_(1)\n    return z + y\n");
  const std::string model = scratch.path() + "/halves.pt";
  module.save(model);
  const ProgramResult result = sconce({"check", model, "--input", "float32[3]", "--calls", "4", "--grad"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("note: case 0: backward raises, in sconce as in LibTorch: one of the variables"));
}

template <typename T>
c10::List<T> twice(T value) {
  return c10::List<T>({value, value});
}

TEST(CheckCases, OfOneNameAreCountedEach) {
  const ScratchFolder scratch;
  const at::Tensor x = at::ones({2});
  torch::jit::Module suite("Suite");
  suite.define("def double(self, x: Tensor):\n    return x * 2\n");
  suite.register_attribute("names", c10::ListType::ofStrings(), twice<std::string>("double"));
  suite.register_attribute("methods", c10::ListType::ofStrings(), twice<std::string>("double"));
  const c10::List<c10::List<at::Tensor>> inputs({c10::List<at::Tensor>({x}), c10::List<at::Tensor>({x})});
  suite.register_attribute("inputs", c10::ListType::create(c10::ListType::ofTensors()), inputs);
  const c10::List<c10::List<bool>> flags({c10::List<bool>({true}), c10::List<bool>({true})});
  suite.register_attribute("needs_grad", c10::ListType::create(c10::ListType::ofBools()), flags);
  const c10::List<c10::List<at::Tensor>> outputs({c10::List<at::Tensor>({x * 2}), c10::List<at::Tensor>({x * 3})});
  suite.register_attribute("outputs", c10::ListType::create(c10::ListType::ofTensors()), outputs);
  const c10::List<c10::List<at::Tensor>> grads({c10::List<at::Tensor>(), c10::List<at::Tensor>()});
  suite.register_attribute("grads", c10::ListType::create(c10::ListType::ofTensors()), grads);
  suite.register_attribute("rtol", c10::ListType::ofFloats(), twice(1e-4));
  suite.register_attribute("atol", c10::ListType::ofFloats(), twice(1e-5));
  const std::string path = scratch.path() + "/suite.pt";
  suite.save(path);
  const ProgramResult result = sconce({"check", path, path, "--grad", "--json"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(json_of(result)["cases"], 2);
  EXPECT_EQ(json_of(result)["failing_cases"], nlohmann::json::array({"double (2)"})) << "the second answer is wrong";
}

}  // namespace
}  // namespace sconce::tests
