// The CUDA text of kernels, compiled to machine code. Needs NVRTC, no GPU and no driver.
//
//   SCONCE_CUDA_TEXTS=1 build/release/tests/fusion_test --gtest_filter='CudaText.*'    all kernels, not every 6th
#include "tests/fusion/group_generator.h"
#include "tests/fusion/kernel_call.h"
#include "tests/fusion/rule_check.h"
#include "tests/support/environment_number.h"
#include "tests/support/part.h"

#include "fusion/cpu/kernel_cache.h"
#include "fusion/cuda/cuda_text.h"
#include "fusion/cuda/grid_arguments.h"
#include "fusion/program/kernel_width.h"
#include "plan/device/device.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kArchitectures[] = {"sm_80", "sm_90", "sm_100"};

class CudaText : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto runtime = find_device_runtime(c10::DeviceType::CUDA);
    if (!runtime) {
      GTEST_SKIP() << runtime.refusal().reason;
    }
    runtime_ = *runtime;
    if (const auto code = runtime_->compile("extern \"C\" __global__ void f() {}", "sm_90"); !code) {
      GTEST_SKIP() << code.refusal().reason;
    }
  }

  void TearDown() override {
    for (const auto& [reason, count] : refused_) {
      EXPECT_THAT(reason, HasSubstr("there is no function of CUDA for ")) << count << " programs";
    }
    EXPECT_LE(refused_.size(), 3U) << "scalar functions of LibTorch that CUDA's library lacks";
  }

  // Compiles the program in a form for rows that lie side by side and one for others. Each architecture takes its turn; all
  // compile every 16th text.
  void expect_code(const KernelProgram& program) {
    GridForm form;
    form.dims = 2;
    form.vector = program.order == LoopOrder::kRows && compiled_ % 2 == 0 ? 2 : 1;
    form.lanes = program.has_reductions() ? (compiled_ % 3 == 0 ? 256 : 8) : 0;
    form.has_segments = program.order != LoopOrder::kRows;
    form.has_buffers = compiled_ % 4 < 2;
    form.is_wide = compiled_ % 5 == 0;
    const auto text = cuda_text(grid_program(program, form));
    if (!text) {
      ++refused_[text.refusal().reason];
      return;
    }
    for (size_t i = 0; i < std::size(kArchitectures); ++i) {
      if (compiled_ % 16 == 0 || compiled_ % std::size(kArchitectures) == i) {
        const auto code = runtime_->compile(*text, kArchitectures[i]);
        ASSERT_TRUE(code) << code.refusal().reason << "\n" << *text;
        ASSERT_THAT(*code, HasSubstr(kGridKernelName));
      }
    }
    ++compiled_;
  }

  // Compiles the program with float16 in place of bfloat16, if it has any.
  void expect_code_of_half(KernelProgram program) {
    bool has_any = false;
    const auto replace = [&](c10::ScalarType& type) {
      has_any = has_any || type == at::kBFloat16;
      type = type == at::kBFloat16 ? at::kHalf : type;
    };
    for (KernelInput& input : program.inputs) {
      replace(input.type);
    }
    for (KernelOutput& output : program.outputs) {
      replace(output.type);
    }
    for (Instruction& each : program.code) {
      replace(each.type);
    }
    if (has_any) {
      expect_code(program);
      ++of_half_;
    }
  }

  // Compiles the kernels of the process that were not compiled yet.
  void expect_code_of_new_kernels() {
    for (const auto& kernel : KernelCache::instance().kernels()) {
      if (seen_.insert(kernel->text()).second && seen_.size() % stride_ == 0) {
        ASSERT_NO_FATAL_FAILURE(expect_code(kernel->program()));
        ASSERT_NO_FATAL_FAILURE(expect_code_of_half(kernel->program()));
      }
    }
  }

  DeviceRuntime* runtime_ = nullptr;
  const size_t stride_ = environment_number("SCONCE_CUDA_TEXTS", 6);
  std::set<std::string> seen_;
  size_t compiled_ = 0;
  size_t of_half_ = 0;
  std::map<std::string, size_t> refused_;
};

TEST_F(CudaText, CompilesOfGeneratedGroups) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  const Seeds seeds = seeds_in_part({1, 100});
  CountedKernels kernels(kernel_lanes());
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    GroupGenerator generator(seed, GroupGenerator::Contents::kAll);
    const auto plan = plan_with_kernels(generator.text(), kernels);
    results_of(*plan, generator.operands(5, 13));
    results_of(*plan, generator.operands(1, 1));
    ASSERT_NO_FATAL_FAILURE(expect_code_of_new_kernels());
  }
  EXPECT_GT(compiled_ * stride_, seeds.count / 2);
}

// One operator each, of every dtype.
TEST_F(CudaText, CompilesOfOperators) {
  const at::NoGradGuard no_grad;
  for (const c10::OperatorHandle& op : operators_in_part()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kBool}) {
      if (const auto call = variant_of(op, 0)) {
        KernelCall(*call, kernel_lanes()).run(arguments_for(*call, {dtype}, 0, as_it_is, 7));
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_code_of_new_kernels());
  }
  EXPECT_GT(compiled_ * stride_ * part_of_run().count, 250U);
  EXPECT_GT(of_half_ * stride_ * part_of_run().count, 80U);
}

}  // namespace
}  // namespace sconce::testing
