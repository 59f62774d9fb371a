// Groups of nodes on the back end of GPUs, whose device is simulated: it runs grids on the CPU, thread by thread.
#include "tests/fusion/group_generator.h"
#include "tests/fusion/kernel_call.h"
#include "tests/fusion/rule_check.h"
#include "tests/simulated_gpu/simulated_gpu.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/support/part.h"

#include "fusion/kernels_on_device.h"
#include "lower/lower.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

class CudaNests : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), ::testing::IsEmpty()); }

  const GroupCompiler& kernels() {
    return *kernels_on(c10::Device(c10::kCUDA, 0), /*is_blocking=*/true).value_or_throw("there are no kernels");
  }
  size_t launched() const { return gpu_.driver_calls("launch_kernel"); }

  const at::NoGradGuard no_grad_;
  SimulatedGpu gpu_;
};

at::Tensor elements_of_storage(const at::Tensor& tensor) { return at::empty({0}, tensor.options()).set_(tensor.storage()); }

// Returns copies on the device, of the same layout.
std::vector<c10::IValue> on_device(SimulatedGpu& gpu, const std::vector<c10::IValue>& operands) {
  std::vector<c10::IValue> copies;
  for (const c10::IValue& operand : operands) {
    copies.push_back(operand);
    if (operand.isTensor()) {
      const at::Tensor& tensor = operand.toTensor();
      copies.back() =
          gpu.tensor(elements_of_storage(tensor)).as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    }
  }
  return copies;
}

std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      tensors.push_back(value.toTensor());
    }
  }
  return tensors;
}

std::vector<at::Tensor> eager_results(const std::string& text, const std::vector<c10::IValue>& operands) {
  const auto plan = lower(graph_of(text), nullptr, nullptr, {});
  return results_of(**plan, operands).first;
}

// Equal where the operators round once; else as close as functions and sums may be.
void expect_equal(SimulatedGpu& gpu, const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                  const std::string& text) {
  ASSERT_EQ(found.size(), expected.size()) << text;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].sizes(), expected[i].sizes()) << text;
    ASSERT_EQ(found[i].strides(), expected[i].strides()) << text;
    ASSERT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << text;
    const at::Tensor values = gpu.values(found[i]);
    const double tolerance = found[i].scalar_type() == at::kBFloat16 ? 0.05 : 1e-3;
    ASSERT_TRUE(at::allclose(values.to(at::kDouble), expected[i].to(at::kDouble), tolerance, tolerance, true))
        << values << expected[i] << text;
  }
}

TEST_F(CudaNests, RunGeneratedGroups) {
  const Seeds seeds = seeds_in_part({1, environment_number("SCONCE_GROUPS", 40)});
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    at::manual_seed(seed);
    constexpr GroupGenerator::Contents kContents[] = {GroupGenerator::Contents::kExact, GroupGenerator::Contents::kWrites,
                                                      GroupGenerator::Contents::kAll};
    GroupGenerator generator(seed, kContents[seed % std::size(kContents)]);
    const std::string text = generator.text();
    const auto plan = plan_with_kernels(text, kernels());
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>(5, 12), {1, 1}, {0, 3}, {7, 2}, {2, 64}}) {
      const std::vector<c10::IValue> operands = generator.operands(height, width);
      const std::vector<c10::IValue> copies = on_device(gpu_, operands);
      const auto found = results_of(*plan, copies);
      if (found.second.empty()) {
        ASSERT_NO_FATAL_FAILURE(expect_equal(gpu_, found.first, eager_results(text, operands), text));
        ASSERT_NO_FATAL_FAILURE(expect_equal(gpu_, tensors_of(copies), tensors_of(operands), text)) << "operands";
      }
    }
  }
  EXPECT_GT(launched(), seeds.count);
  EXPECT_LT(gpu_.driver_calls("load_module"), launched());
}

constexpr const char* kSoftmax = R"(graph(%x : Tensor, %y : Tensor):
  %none : NoneType = prim::Constant()
  %one : int = prim::Constant[value=1]()
  %last : int = prim::Constant[value=-1]()
  %a : Tensor = aten::mul(%x, %y)
  %b : Tensor = aten::softmax(%a, %last, %none)
  %c : Tensor = aten::add(%b, %x, %one)
  return (%c)
)";

// Each operator on operands of float16, which CPUs leave to LibTorch: computed in float32 and rounded once.
TEST_F(CudaNests, ComputeWithHalfPrecision) {
  at::manual_seed(1);
  std::set<std::string> computed;
  for (const c10::OperatorHandle& op : operators_with_rules()) {
    for (size_t variant = 0; const auto call = variant_of(op, variant); ++variant) {
      std::vector<c10::IValue> given = arguments_for(*call, {at::kHalf}, variant, as_it_is, 1);
      for (c10::IValue& value : given) {
        const bool is_half = value.isTensor() && value.toTensor().scalar_type() == at::kHalf && value.toTensor().dim() != 0;
        value = is_half ? c10::IValue((at::randn({3, 5}) * 2).to(at::kHalf))
                : value.isTensor() && value.toTensor().scalar_type() == at::kBool ? c10::IValue(at::randn({3, 5}).gt(0))
                                                                                  : value;
      }
      const Outcome expected = run_eager(*call, given);
      if (!expected.result) {
        continue;  // LibTorch has no such operator of float16 on CPUs
      }
      const size_t launched_before = launched();
      const auto plan = plan_with_kernels(call->text(), kernels());
      const auto found = results_of(*plan, on_device(gpu_, given));
      ASSERT_EQ(found.first.size(), 1U) << call->text() << found.second;
      ASSERT_EQ(found.first[0].scalar_type(), expected.result->scalar_type()) << call->text();
      // One unit in the last place is 2^-10.
      const at::Tensor values = gpu_.values(found.first[0]);
      ASSERT_TRUE(at::allclose(values.to(at::kDouble), expected.result->to(at::kDouble), 0x1p-9, 1e-3, true))
          << call->text() << values << *expected.result;
      if (launched() > launched_before) {
        computed.insert(op.schema().name());
      }
    }
  }
  for (const char* name : {"aten::add", "aten::mul", "aten::sigmoid", "aten::gelu", "aten::pow", "aten::nan_to_num"}) {
    EXPECT_TRUE(computed.contains(name)) << name;
  }
  EXPECT_GT(computed.size(), 100U);
}

TEST_F(CudaNests, LoadNeighborsOneByOneIfTheyAreNotAligned) {
  const auto plan = plan_with_kernels(kSoftmax, kernels());
  const at::Tensor storage = at::randn({4 * 64 + 1});
  for (const int64_t offset : {0, 1}) {
    const std::vector<c10::IValue> operands = {storage.slice(0, offset, offset + 4 * 64).view({4, 64}), at::randn({64})};
    const auto found = results_of(*plan, on_device(gpu_, operands));
    ASSERT_NO_FATAL_FAILURE(expect_equal(gpu_, found.first, eager_results(kSoftmax, operands), kSoftmax)) << found.second;
  }
  EXPECT_EQ(launched(), 2U);
}

TEST_F(CudaNests, RunInCaptures) {
  const auto plan = plan_with_kernels(kSoftmax, kernels());
  std::vector<c10::IValue> operands = {at::randn({4, 8}), at::randn({8})};
  const std::vector<c10::IValue> copies = on_device(gpu_, operands);
  results_of(*plan, copies);
  const size_t launched_before = launched();
  std::vector<at::Tensor> found;
  DeviceRuntime& runtime = gpu_.runtime();
  const auto capture = capture_work(runtime, runtime.side_stream(0), runtime.make_capture_pool(0), [&] {
                           found = results_of(*plan, copies).first;
                         }).value_or_throw("the plan cannot be captured");
  EXPECT_EQ(launched(), launched_before + 1);
  for (int call = 0; call < 3; ++call) {
    capture->replay(runtime.current_stream(0));
    ASSERT_NO_FATAL_FAILURE(expect_equal(gpu_, found, eager_results(kSoftmax, operands), kSoftmax));
    operands = {at::randn({4, 8}), at::randn({8})};
    for (size_t i = 0; i < operands.size(); ++i) {
      copies[i].toTensor().copy_(operands[i].toTensor());
    }
  }
}

TEST(CudaNestsWithoutCompiler, LeaveGroupsToTheOperators) {
  const at::NoGradGuard no_grad;
  SimulatedGpu gpu("no compiler");
  const auto kernels = kernels_on(c10::Device(c10::kCUDA, 0), /*is_blocking=*/true).value_or_throw("there are no kernels");
  const auto plan = plan_with_kernels(kSoftmax, *kernels);
  const std::vector<c10::IValue> operands = {at::randn({4, 8}), at::randn({8})};
  for (int call = 0; call < 3; ++call) {
    ASSERT_NO_FATAL_FAILURE(
        expect_equal(gpu, results_of(*plan, on_device(gpu, operands)).first, eager_results(kSoftmax, operands), kSoftmax));
  }
  EXPECT_EQ(gpu.driver_calls("launch_kernel"), 0U);
  EXPECT_THAT(gpu.kernels().kernels().front()->refusal(), ::testing::HasSubstr("no compiler"));
}

}  // namespace
}  // namespace sconce::testing
