// sconce info.
#include "tests/tools/sconce_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <filesystem>
#include <string>

namespace sconce::tests {
namespace {

using testing::HasSubstr;

TEST(Info, CountsWhatAModelHas) {
  const ScratchFolder folder;
  torch::jit::Module module("Net");
  const at::Tensor weight = at::randn({4, 4}).set_requires_grad(true);
  module.register_parameter("w", weight, /*is_buffer=*/false);
  module.register_parameter("same", weight, /*is_buffer=*/false);
  module.register_buffer("steps", at::zeros({3}, at::kLong));
  module.define(R"(
def half(self, x):
    return torch.tanh(x @ self.w)
def forward(self, x, n: int = 2, other: Optional[Tensor] = None):
    for i in range(n):
        x = self.half(x)
    return self.half(x), n
)");
  const std::string file = folder.path() + "/net.pt";
  module.save(file);

  const auto info = json_of(sconce({"info", file, "--json"}));
  EXPECT_EQ(info["class"], "Net");
  EXPECT_EQ(info["training"], true);
  EXPECT_EQ(info["file_bytes"], std::filesystem::file_size(file));
  ASSERT_EQ(info["tensors"].size(), 2U);
  EXPECT_EQ(info["tensors"][0]["kind"], "parameters");
  EXPECT_EQ(info["tensors"][0]["tensors"], 1) << "two names of one tensor";
  EXPECT_EQ(info["tensors"][0]["elements"], 16);
  EXPECT_EQ(info["tensors"][0]["bytes"], 64);
  EXPECT_EQ(info["tensors"][1]["dtype"], "Long");
  for (const auto& method : info["methods"]) {
    const bool is_forward = method["name"] == "forward";
    EXPECT_EQ(method["signature"], is_forward
                                       ? "forward(Tensor x, int n=2, Optional[Tensor] other=None) -> Tuple[Tensor, int]"
                                       : "half(Tensor x) -> Tensor");
    EXPECT_EQ(method["operators"]["aten::tanh"], is_forward ? 2 : 1) << "calls are inlined";
    EXPECT_TRUE(method["refusal"].is_null());
  }

  const ProgramResult text = sconce({"info", file});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("net.pt: Net in training mode, "));
  EXPECT_THAT(text.out, HasSubstr("half(Tensor x) -> Tensor"));
  EXPECT_THAT(text.out, HasSubstr("aten::tanh"));
}

TEST(Info, CountsTheWorkOfACall) {
  const ScratchFolder folder;
  torch::jit::Module module("Net");
  module.register_parameter("w", at::randn({4, 4}), /*is_buffer=*/false);
  module.define(R"(
def forward(self, x, n: int):
    for i in range(n):
        x = x @ self.w
    return x
)");
  const std::string file = folder.path() + "/net.pt";
  module.save(file);
  const std::vector<std::string> call = {"info", file, "--input", "float32[3,4]", "5"};
  std::vector<std::string> as_json = call;
  as_json.emplace_back("--json");
  const auto info = json_of(sconce(as_json));
  EXPECT_EQ(info["call"]["method"], "forward");
  EXPECT_EQ(info["call"]["flops"], 5 * 2 * 3 * 4 * 4) << "each iteration counts";
  EXPECT_EQ(info["call"]["bytes"], 5 * 4 * (3 * 4 + 4 * 4 + 3 * 4));
  EXPECT_EQ(info["call"]["unknown_steps"], 0);
  EXPECT_THAT(sconce(call).out, HasSubstr("a call of forward: 480 FLOP, "));
  expect_usage_error({"info", file, "--input", "float32[3,4]"}, "forward");
}

TEST(Info, SaysWhatAModelLacks) {
  const ScratchFolder folder;
  torch::jit::Module module("Empty");
  module.define("def forward(self, x: int):\n    return x\n");
  const std::string file = folder.path() + "/empty.pt";
  module.save(file);
  const ProgramResult text = sconce({"info", file});
  EXPECT_THAT(text.out, HasSubstr("no parameters and no buffers"));
  EXPECT_THAT(text.out, HasSubstr("forward(int x) -> int\n  no operators"));
  expect_usage_error({"info", "nowhere.pt"}, "nowhere.pt: no such file");
  expect_usage_error({"info"}, "MODEL is required");
}

}  // namespace
}  // namespace sconce::tests
