// Times that `sconce bench` takes on a GPU.
#include "tests/simulated_gpu/simulated_gpu.h"
#include "tools/sconce/bench/measure.h"
#include "tools/sconce/bench/sconce_peer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>

namespace sconce::testing {
namespace {

TEST(BenchOnGpu, TimesHoldTheDevicesWork) {
  SimulatedGpu gpu;
  cli::MeasureSettings settings;
  settings.load = [] {
    torch::jit::Module network("Network");
    network.define("def forward(self, x):\n    return torch.sigmoid(x * 2) + x\n");
    return network;
  };
  settings.method = "forward";
  settings.arguments = {gpu.tensor(at::randn({4, 8}))};
  settings.seconds = 0.01;
  settings.loads = 1;
  const auto table =
      cli::measure({{"sconce", [] { return std::make_unique<cli::SconcePeer>(Options().compile(CompileMode::kBlocking)); }}},
                   settings, [](const std::string& /*executor*/) {});
  const cli::Measurement& row = table.rows.at(0);
  ASSERT_FALSE(row.not_available) << *row.not_available;
  EXPECT_FALSE(row.wrong) << *row.wrong;
  const size_t calls = row.first_calls.size() + row.steady.size();
  EXPECT_GE(gpu.driver_calls("synchronize_context"), 2 * calls) << "once before each call, once after it";
}

}  // namespace
}  // namespace sconce::testing
