// Groups of nodes on the back end of GPUs, whose device is simulated: it runs grids on the CPU, thread by thread.
#include "tests/fusion/group_generator.h"
#include "tests/fusion/kernel_call.h"
#include "tests/fusion/rule_check.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/support/grid_interpreter.h"

#include "fusion/cuda/cuda_nests.h"
#include "fusion/cuda/cuda_text.h"
#include "lower/lower.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

// A device whose memory is the host's. What it compiles is the text, and what it launches is the grid that was printed so.
class SimulatedDevice final : public DeviceRuntime {
 public:
  explicit SimulatedDevice(std::string refusal = {}) : refusal_(std::move(refusal)), kernels_(*this) {}

  DeviceKernelCache& kernels() { return kernels_; }
  size_t compiled() const { return compiled_; }
  size_t launched() const { return launched_; }

  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  int device_count() const override { return 1; }
  const std::string& why_unavailable() const override { return refusal_; }
  std::string name(c10::DeviceIndex /*device*/) const override { return "simulated"; }
  std::string architecture(c10::DeviceIndex /*device*/) const override { return "sm_90"; }
  DeviceLimits limits(c10::DeviceIndex /*device*/) const override { return {}; }
  void synchronize(c10::DeviceIndex /*device*/) override {}
  c10::Stream current_stream(c10::DeviceIndex /*device*/) override { return kStream; }
  c10::Stream side_stream(c10::DeviceIndex /*device*/) override { return kStream; }
  c10::Stream take_stream(c10::DeviceIndex /*device*/) override { return kStream; }
  void give_back(c10::Stream /*stream*/) override {}
  c10::Stream exchange_current_stream(c10::Stream /*stream*/) override { return kStream; }
  std::unique_ptr<DeviceEvent> make_event(c10::DeviceIndex /*device*/) override { return nullptr; }

  Expected<std::string> compile(const std::string& text, const std::string& architecture) override {
    EXPECT_EQ(architecture, "sm_90");
    ++compiled_;
    return refusal_.empty() ? Expected<std::string>(text) : Refusal::because(refusal_);
  }
  Expected<std::shared_ptr<DeviceModule>> load_module(c10::DeviceIndex /*device*/, const std::string& code) override {
    return std::shared_ptr<DeviceModule>(std::make_shared<Module>(code));
  }
  void launch(const DeviceKernel& kernel, const LaunchShape& shape, c10::Stream /*stream*/,
              std::span<void* const> arguments) override {
    ASSERT_EQ(arguments.size(), 1U);
    ++launched_;
    const std::string& text = dynamic_cast<const Kernel&>(kernel).text;
    for (const auto& each : kernels_.kernels()) {
      if (each->text() == text) {
        const GridCall call = call_of(each->grid(), static_cast<const char*>(arguments[0]));
        LaunchShape few = shape;
        few.grid[0] = std::min(few.grid[0], 2U);  // blocks take turns
        GridInterpreter(each->grid(), few, call).run();
        return;
      }
    }
    FAIL() << "no kernel has the text";
  }
  std::shared_ptr<RecordingPool> make_recording_pool(c10::DeviceIndex /*device*/) override { return nullptr; }
  bool is_recording(c10::Stream /*stream*/) override { return false; }
  Expected<std::unique_ptr<RecordingSession>> begin_recording(c10::Stream /*stream*/,
                                                              std::shared_ptr<RecordingPool> /*pool*/) override {
    return Refusal::because("nothing is recorded");
  }

 private:
  struct Kernel final : DeviceKernel {
    explicit Kernel(std::string code) : text(std::move(code)) {}
    const std::string& name() const override { return kernel_name; }
    const std::string text;
    const std::string kernel_name = kGridKernelName;
  };
  struct Module final : DeviceModule {
    explicit Module(std::string code) : only(std::move(code)) {}
    Expected<const DeviceKernel*> kernel(const std::string& name) override {
      EXPECT_EQ(name, only.name());
      return static_cast<const DeviceKernel*>(&only);
    }
    Kernel only;
  };
  static inline const c10::Stream kStream{c10::Stream::DEFAULT, c10::Device(c10::kCUDA, 0)};

  // Reads the struct of which the text has the declaration.
  static GridCall call_of(const GridProgram& grid, const char* parameter) {
    const auto read = [&parameter]<typename T>(T value) {
      std::memcpy(&value, parameter, sizeof value);
      parameter += sizeof value;
      return value;
    };
    GridCall call;
    for (size_t k = 0; k < grid.program.operand_count(); ++k) {
      call.first.push_back(read(static_cast<void*>(nullptr)));
    }
    for (size_t k = 0; k < grid.program.numbers.size(); ++k) {
      call.numbers.push_back(read(int64_t()));
    }
    for (int64_t& number : call.numbers) {
      const auto* const memory = read(static_cast<const int64_t*>(nullptr));
      number = memory == nullptr ? number : *memory;
    }
    for (size_t k = 0; k < grid.words; ++k) {
      call.words.push_back(grid.form.is_wide ? read(int64_t()) : read(int32_t()));
    }
    return call;
  }

  const std::string refusal_;
  DeviceKernelCache kernels_;
  size_t compiled_ = 0;
  size_t launched_ = 0;
};

// The back end of GPUs for tensors of the CPU, which are the simulated device's.
class HostNests final : public NestBackend {
 public:
  explicit HostNests(std::unique_ptr<NestBackend> inner) : inner_(std::move(inner)) {}
  c10::Device device() const override { return c10::kCPU; }
  bool has_kernels() const override { return inner_->has_kernels(); }
  bool accepts(const ProgramBuilder& builder) const override { return inner_->accepts(builder); }
  bool accepts(const KernelProgram& program, const Iteration& iteration, bool folds_rows) const override {
    return inner_->accepts(program, iteration, folds_rows);
  }
  bool accepts_any_length(const KernelProgram& program) const override { return inner_->accepts_any_length(program); }
  std::unique_ptr<NestCode> make(const KernelProgram& program, bool folds_rows, bool writes,
                                 const std::string& group) const override {
    return inner_->make(program, folds_rows, writes, group);
  }

 private:
  const std::unique_ptr<NestBackend> inner_;
};

std::unique_ptr<GroupCompiler> kernels_of(SimulatedDevice& device) {
  return make_kernels(std::make_unique<HostNests>(make_cuda_nests(device.kernels(), 0, /*is_blocking=*/true)));
}

at::Tensor copy_with_strides(const at::Tensor& tensor) {
  const at::Tensor all = at::empty({0}, tensor.options()).set_(tensor.storage()).clone();
  return all.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

std::vector<at::Tensor> eager_results(const std::string& text, const std::vector<c10::IValue>& operands) {
  const auto plan = lower(graph_of(text), nullptr, nullptr, {});
  return results_of(**plan, operands).first;
}

// Equal where the operators round once; else as close as functions and sums may be.
void expect_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected, const std::string& text) {
  ASSERT_EQ(found.size(), expected.size()) << text;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].sizes(), expected[i].sizes()) << text;
    ASSERT_EQ(found[i].strides(), expected[i].strides()) << text;
    ASSERT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << text;
    const double tolerance = found[i].scalar_type() == at::kBFloat16 ? 0.05 : 1e-3;
    ASSERT_TRUE(at::allclose(found[i].to(at::kDouble), expected[i].to(at::kDouble), tolerance, tolerance, true))
        << found[i] << expected[i] << text;
  }
}

TEST(CudaNests, RunGeneratedGroups) {
  const at::NoGradGuard no_grad;
  const uint64_t count = environment_number("SCONCE_GROUPS", 40);
  SimulatedDevice device;
  const auto kernels = kernels_of(device);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    at::manual_seed(seed);
    constexpr GroupGenerator::Contents kContents[] = {GroupGenerator::Contents::kExact, GroupGenerator::Contents::kWrites,
                                                      GroupGenerator::Contents::kAll};
    GroupGenerator generator(seed, kContents[seed % std::size(kContents)]);
    const std::string text = generator.text();
    const auto plan = plan_with_kernels(text, *kernels);
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>(5, 12), {1, 1}, {0, 3}, {7, 2}, {2, 64}}) {
      std::vector<c10::IValue> operands = generator.operands(height, width);
      std::vector<c10::IValue> copies;
      for (const c10::IValue& operand : operands) {
        copies.push_back(operand.isTensor() ? c10::IValue(copy_with_strides(operand.toTensor())) : operand);
      }
      const auto found = results_of(*plan, operands);
      if (found.second.empty()) {
        ASSERT_NO_FATAL_FAILURE(expect_equal(found.first, eager_results(text, copies), text));
      }
    }
  }
  EXPECT_GT(device.launched(), count);
  EXPECT_LT(device.compiled(), device.launched() + count);
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
TEST(CudaNests, ComputeWithHalfPrecision) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  SimulatedDevice device;
  const auto kernels = kernels_of(device);
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
      const size_t launched = device.launched();
      const auto plan = plan_with_kernels(call->text(), *kernels);
      const auto found = results_of(*plan, given);
      ASSERT_EQ(found.first.size(), 1U) << call->text() << found.second;
      ASSERT_EQ(found.first[0].scalar_type(), expected.result->scalar_type()) << call->text();
      // One unit in the last place is 2^-10.
      ASSERT_TRUE(at::allclose(found.first[0].to(at::kDouble), expected.result->to(at::kDouble), 0x1p-9, 1e-3, true))
          << call->text() << found.first[0] << *expected.result;
      if (device.launched() > launched) {
        computed.insert(op.schema().name());
      }
    }
  }
  for (const char* name : {"aten::add", "aten::mul", "aten::sigmoid", "aten::gelu", "aten::pow", "aten::nan_to_num"}) {
    EXPECT_TRUE(computed.contains(name)) << name;
  }
  EXPECT_GT(computed.size(), 100U);
}

TEST(CudaNests, LoadNeighborsOneByOneIfTheyAreNotAligned) {
  const at::NoGradGuard no_grad;
  SimulatedDevice device;
  const auto kernels = kernels_of(device);
  const auto plan = plan_with_kernels(kSoftmax, *kernels);
  const at::Tensor storage = at::randn({4 * 64 + 1});
  for (const int64_t offset : {0, 1}) {
    const std::vector<c10::IValue> operands = {storage.slice(0, offset, offset + 4 * 64).view({4, 64}), at::randn({64})};
    const auto found = results_of(*plan, operands);
    ASSERT_NO_FATAL_FAILURE(expect_equal(found.first, eager_results(kSoftmax, operands), kSoftmax)) << found.second;
  }
  EXPECT_EQ(device.launched(), 2U);
}

TEST(CudaNests, LeaveToTheOperatorsWhatTheDeviceDoesNotCompile) {
  const at::NoGradGuard no_grad;
  SimulatedDevice device("no compiler");
  const auto kernels = kernels_of(device);
  const auto plan = plan_with_kernels(kSoftmax, *kernels);
  const std::vector<c10::IValue> operands = {at::randn({4, 8}), at::randn({8})};
  for (int call = 0; call < 3; ++call) {
    ASSERT_NO_FATAL_FAILURE(expect_equal(results_of(*plan, operands).first, eager_results(kSoftmax, operands), kSoftmax));
  }
  EXPECT_EQ(device.launched(), 0U);
  EXPECT_LE(device.compiled(), 2U) << "a refusal is kept";
  EXPECT_EQ(device.kernels().kernels().front()->refusal(), "no compiler");
}

}  // namespace
}  // namespace sconce::testing
