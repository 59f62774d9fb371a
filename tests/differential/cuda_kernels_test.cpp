// Kernels that models of the tests have, forward and backward, as CUDA C++ and machine code. Needs NVRTC, no GPU.
//
//   SCONCE_CUDA_TEXTS=1 build/release/tests/differential_test --gtest_filter='CudaKernels.*'    all kernels, not every 12th
#include "tests/support/environment_number.h"
#include "tests/support/model_files.h"
#include "tests/support/part.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/deep_copy.h"

#include "fusion/cpu/kernel_cache.h"
#include "fusion/cuda/cuda_text.h"
#include "plan/device/device.h"

#include <sconce/module.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;

constexpr uintmax_t kMaxFile = 20'000'000;
constexpr const char* kArchitectures[] = {"sm_80", "sm_90", "sm_100"};

void add_floating(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().requires_grad()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      add_floating(element, tensors);
    }
  } else if (value.isTensorList()) {
    for (const at::Tensor& element : value.toTensorVector()) {
      add_floating(element, tensors);
    }
  }
}

// Calls the model's method on its first cases, each twice, and runs backward of what requires a gradient.
void run_model(const std::string& name) {
  const auto read = cli::read_cases(cases_file(name));
  const auto* const cases = std::get_if<cli::ModelCases>(&read);
  if (cases == nullptr || std::filesystem::file_size(model_file(name)) > kMaxFile) {
    return;
  }
  const Module module = load(model_file(name), Options().compile(CompileMode::kBlocking));
  for (size_t i = 0; i < std::min<size_t>(cases->inputs.size(), 2); ++i) {
    for (int call = 0; call < 2; ++call) {
      std::vector<at::Tensor> results;
      add_floating(module.run_method(cases->method, cli::deep_copy(cases->inputs[i])), results);
      at::Tensor loss;
      for (const at::Tensor& result : results) {
        const at::Tensor part = at::abs(result).sum();
        loss = loss.defined() ? loss + part : part;
      }
      if (loss.defined()) {
        loss.backward();
      }
    }
  }
}

TEST(CudaKernels, OfModelsCompile) {
  const auto runtime = find_device_runtime(c10::DeviceType::CUDA);
  if (!runtime) {
    GTEST_SKIP() << runtime.refusal().reason;
  }
  if (const auto code = (*runtime)->compile("extern \"C\" __global__ void f() {}", "sm_90"); !code) {
    GTEST_SKIP() << code.refusal().reason;
  }
  for (const std::string& name : models_in_part()) {
    run_model(name);
  }
  const uint64_t stride = environment_number("SCONCE_CUDA_TEXTS", 12);
  size_t compiled = 0;
  size_t number = 0;
  std::set<std::string> refused;
  for (const auto& kernel : KernelCache::instance().kernels()) {
    const KernelProgram& program = kernel->program();
    const bool has_reductions = program.has_reductions();
    const bool has_rows = program.order == LoopOrder::kRows;
    const GridForm form{.lanes = has_reductions ? (has_rows ? 128U : 8U) : 0U,
                        .vector = has_rows ? 2U : 1U,
                        .dims = 2,
                        .has_segments = !has_rows,
                        .has_buffers = has_reductions};
    const auto text = cuda_text(grid_program(program, form));
    if (!text) {
      refused.insert(text.refusal().reason);
      continue;
    }
    if (number++ % stride == 0) {
      const auto code = (*runtime)->compile(*text, kArchitectures[number % std::size(kArchitectures)]);
      ASSERT_TRUE(code) << code.refusal().reason << "\n" << *text;
      ASSERT_THAT(*code, HasSubstr(kGridKernelName));
      ++compiled;
    }
  }
  EXPECT_GT(number * part_of_run().count, 100U);
  EXPECT_GT(compiled, number / stride / 2);
  EXPECT_THAT(refused, ::testing::IsEmpty());
  std::cout << number << " kernels have a text, " << compiled << " were compiled\n";
}

}  // namespace
}  // namespace sconce::testing
