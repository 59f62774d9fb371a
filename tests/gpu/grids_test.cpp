// Kernel programs on a GPU, beside LibTorch's operators there.
#include "tests/gpu/need_gpu.h"
#include "tests/support/softmax_program.h"

#include "fusion/cuda/cuda_nests.h"
#include "fusion/program/scalar_functions.h"

#include <ATen/ATen.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

namespace sconce {
namespace {

using Type = c10::ScalarType;

// sigmoid(x) * y, computed in float32.
KernelProgram gate_program(Type type) {
  KernelProgram program;
  program.inputs = {{type, Access::kElements}, {type, Access::kElements}};
  program.code = {
      {.op = MachineOp::kLoad, .type = type, .index = 0},      {.op = MachineOp::kConvert, .type = at::kFloat, .a = 0},
      {.op = MachineOp::kSigmoid, .type = at::kFloat, .a = 1}, {.op = MachineOp::kLoad, .type = type, .index = 1},
      {.op = MachineOp::kConvert, .type = at::kFloat, .a = 3}, {.op = MachineOp::kMul, .type = at::kFloat, .a = 2, .b = 4},
      {.op = MachineOp::kConvert, .type = type, .a = 5}};
  program.outputs = {{type, 6}};
  return program;
}

class GpuGridTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (runtime_ != nullptr) {
      kernels_ = std::make_unique<DeviceKernelCache>(*runtime_);
      backend_ = make_cuda_nests(*kernels_, 0, /*is_blocking=*/true);
    }
  }

  // Returns code for loops over rows of `sizes[1]` elements, which are `across` apart; a row's elements are `along` apart.
  // The last operand has one element for each row if `has_row_output`.
  std::unique_ptr<NestCode> code_of(const KernelProgram& program, std::pair<int64_t, int64_t> sizes, int64_t across,
                                    int64_t along, bool has_row_output) {
    auto code = backend_->make(program, has_row_output, /*writes=*/false, "test");
    Iteration iteration;
    iteration.sizes = {sizes.first, sizes.second};
    iteration.order = program.order;
    const size_t operands = program.inputs.size() + program.outputs.size();
    const auto bytes = static_cast<int64_t>(c10::elementSize(program.inputs[0].type));
    iteration.strides.assign(operands, {across * bytes, along * bytes});
    iteration.segment_strides.assign(operands, 0);
    if (has_row_output) {
      iteration.strides.back() = {bytes, 0};
    }
    code->set_loops(std::move(iteration));
    EXPECT_EQ(code->refusal(), "");
    EXPECT_TRUE(code->is_compiled());
    return code;
  }

  static KernelCallArguments arguments_of(const std::vector<at::Tensor>& tensors) {
    KernelCallArguments arguments;
    for (const at::Tensor& tensor : tensors) {
      arguments.first.push_back(tensor.mutable_data_ptr());
    }
    return arguments;
  }

  std::unique_ptr<DeviceKernelCache> kernels_;
  std::unique_ptr<KernelBackend> backend_;
};

TEST_F(GpuGridTest, ReducesRowsAndColumns) {
  for (const Type type : {at::kFloat, at::kDouble}) {
    for (const auto& [rows, elements] : {std::pair<int64_t, int64_t>(1, 1),
                                         {7, 33},
                                         {64, 1000},
                                         {3, 100'000},
                                         {2048, 512},
                                         {100'000, 8},
                                         {33, 7},
                                         {256, 4096}}) {
      for (const bool has_columns : {false, true}) {
        const at::Tensor x = at::randn({has_columns ? elements : rows, has_columns ? rows : elements},
                                       at::TensorOptions(at::kCUDA).dtype(type));
        const int64_t dim = has_columns ? 0 : 1;
        const at::Tensor found = at::full_like(x, NAN);
        const at::Tensor sums = at::full({rows}, NAN, x.options());
        const KernelProgram program = testing::softmax_program(has_columns ? LoopOrder::kColumns : LoopOrder::kRows, type);
        const auto code = has_columns ? code_of(program, {rows, elements}, 1, rows, true)
                                      : code_of(program, {rows, elements}, elements, 1, true);
        code->run(arguments_of({x, found, sums}));
        const at::Tensor expected_sums = at::exp(x - at::amax(x, dim, true)).sum(dim);
        EXPECT_TRUE(at::allclose(found, at::softmax(x, dim), 1e-4, 1e-6)) << rows << " x " << elements << has_columns;
        EXPECT_TRUE(at::allclose(sums, expected_sums, 1e-4)) << rows << " x " << elements << has_columns;
      }
    }
  }
}

TEST_F(GpuGridTest, ComputesElementsThatAreAlignedAndThatAreNot) {
  for (const Type type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t count : {1, 31, 4096, 1'000'003}) {
      for (const int64_t offset : {0, 1}) {
        const auto part = [&] {
          return at::randn({count + 8}, at::TensorOptions(at::kCUDA).dtype(type)).slice(0, offset, offset + count);
        };
        const at::Tensor x = part();
        const at::Tensor y = part();
        const at::Tensor found = at::full({count}, NAN, x.options());
        code_of(gate_program(type), {1, count}, count, 1, false)->run(arguments_of({x, y, found}));
        const at::Tensor expected = at::sigmoid(x.to(at::kFloat)) * y.to(at::kFloat);
        EXPECT_TRUE(at::allclose(found.to(at::kFloat), expected, type == at::kFloat ? 1e-5 : 1e-2, 1e-6)) << count << offset;
      }
    }
  }
}

// Beside LibTorch's own device functions.
TEST_F(GpuGridTest, CallsSpecialFunctions) {
  using Operator = at::Tensor (*)(const at::Tensor&);
  const std::pair<const char*, Operator> kFunctions[] = {
      {"digamma", [](const at::Tensor& x) { return at::digamma(x); }},
      {"trigamma", [](const at::Tensor& x) { return at::polygamma(1, x); }},
      {"i0", [](const at::Tensor& x) { return at::i0(x); }},
      {"i0e", [](const at::Tensor& x) { return at::special_i0e(x); }},
      {"i1e", [](const at::Tensor& x) { return at::special_i1e(x); }},
      {"modified_bessel_k0", [](const at::Tensor& x) { return at::special_modified_bessel_k0(x); }},
      {"scaled_modified_bessel_k1", [](const at::Tensor& x) { return at::special_scaled_modified_bessel_k1(x); }},
      {"spherical_bessel_j0", [](const at::Tensor& x) { return at::special_spherical_bessel_j0(x); }},
      {"log_ndtr", [](const at::Tensor& x) { return at::special_log_ndtr(x); }},
  };
  for (const Type type : {at::kFloat, at::kDouble}) {
    // No poles: the functions are ill-conditioned beside them.
    const at::Tensor x = at::arange(-20.25, 60, 0.5, at::TensorOptions(at::kCUDA).dtype(type));
    for (const auto& [name, op] : kFunctions) {
      KernelProgram program;
      program.inputs = {{type, Access::kElements}};
      program.code = {{.op = MachineOp::kLoad, .type = type, .index = 0},
                      {.op = MachineOp::kCall, .type = type, .a = 0, .index = scalar_function(name)}};
      program.outputs = {{type, 1}};
      const at::Tensor found = at::zeros_like(x);
      code_of(program, {1, x.numel()}, x.numel(), 1, false)->run(arguments_of({x, found}));
      const double tolerance = type == at::kFloat ? 1e-4 : 1e-8;
      EXPECT_TRUE(at::allclose(found, op(x), tolerance, tolerance, /*equal_nan=*/true)) << name << " of " << type;
    }
  }
}

// Places in several dimensions are found by reciprocals of sizes.
TEST_F(GpuGridTest, ReadsStridedElements) {
  KernelProgram program;
  program.inputs = {{at::kFloat, Access::kStrided}};
  program.code = {{.op = MachineOp::kLoad, .type = at::kFloat, .index = 0}};
  program.outputs = {{at::kFloat, 0}};
  for (const auto& [rows, elements] : {std::pair<int64_t, int64_t>(1000, 1003), {7, 1}, {4096, 64}, {3, 100'001}}) {
    const at::Tensor x = at::randn({elements, rows}, at::kCUDA).t();
    const at::Tensor found = at::full({rows, elements}, NAN, at::kCUDA);
    const auto code = backend_->make(program, false, /*writes=*/false, "test");
    Iteration iteration;
    iteration.sizes = {rows, elements};
    iteration.strides = {{4, 4 * rows}, {4 * elements, 4}};
    iteration.segment_strides = {0, 0};
    code->set_loops(std::move(iteration));
    ASSERT_TRUE(code->is_compiled()) << code->refusal();
    code->run(arguments_of({x, found}));
    EXPECT_TRUE(at::equal(found, x)) << rows << " x " << elements;
  }
}

// Prints what a pointwise kernel takes beside a copy of as many bytes: 1.5 copies, as it reads twice what it writes.
TEST_F(GpuGridTest, TellsItsShareOfTheBandwidthOfACopy) {
  const int64_t count = 64 << 20;
  const at::Tensor x = at::randn({count}, at::kCUDA);
  const at::Tensor y = at::randn({count}, at::kCUDA);
  const at::Tensor found = at::empty_like(x);
  const auto code = code_of(gate_program(at::kFloat), {1, count}, count, 1, false);
  const KernelCallArguments arguments = arguments_of({x, y, found});
  const c10::Stream stream = runtime_->current_stream(0);
  const auto seconds_of = [&](const auto& work) {
    const auto begin = runtime_->make_event(0, /*is_timed=*/true);
    const auto end = runtime_->make_event(0, /*is_timed=*/true);
    work();
    begin->record(stream);
    for (int i = 0; i < 20; ++i) {
      work();
    }
    end->record(stream);
    end->wait();
    return end->seconds_since(*begin) / 20;
  };
  const double copy = seconds_of([&] { found.copy_(x); });
  const double kernel = seconds_of([&] { code->run(arguments); });
  EXPECT_GT(kernel, 0);
  std::printf("share of the copy's bandwidth: %.2f\n", 1.5 * copy / kernel);
}

}  // namespace
}  // namespace sconce
