// Compiled kernels beside the interpreter of their programs: bit for bit, and where functions of the mathematical library or
// sums of rows are computed, as close as their own precision allows.
//
//   SCONCE_GROUPS=2000 build/release/tests/fusion_test --gtest_filter='KernelInterpreter.*'    more generated groups
#include "tests/fusion/element_values.h"
#include "tests/fusion/group_generator.h"
#include "tests/fusion/kernel_call.h"
#include "tests/fusion/program_call.h"
#include "tests/fusion/rule_check.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/support/loop_interpreter.h"
#include "tests/support/part.h"
#include "tests/support/softmax_program.h"

#include "fusion/cpu/kernel_cache.h"
#include "fusion/program/kernel_width.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <span>

namespace sconce::testing {
namespace {

// Compares a program's compiled code with the interpreter.
void expect_agreement(const KernelProgram& program, size_t lanes) {
  const auto code = KernelCache::instance().find(program, lanes, /*blocking=*/true, "interpreter");
  ASSERT_NE(code->function(), nullptr) << code->refusal();
  constexpr ProgramSizes kOfRows[] = {{1, 1}, {3, 2, 3}, {2, 7}, {1, 31, 2}, {2, 67}, {1, 131, 4}};
  constexpr ProgramSizes kOfColumns[] = {{1, 1}, {3, 2, 3}, {17, 5}, {64, 3, 2}, {20, 65}, {5, 130, 2}, {131, 6, 3}};
  const bool has_columns = program.order == LoopOrder::kColumns;
  for (const ProgramSizes& sizes : has_columns ? std::span<const ProgramSizes>(kOfColumns) : kOfRows) {
    ProgramCall call(program, sizes, static_cast<uint64_t>(sizes.elements));
    const std::vector<at::Tensor> got = call.compiled(code->function());
    ASSERT_NO_FATAL_FAILURE(expect_close(program, call, got, lanes != kGenericLanes,
                                         to_string(sizes) + ", " + std::to_string(lanes) + " lanes"));
  }
}

// Compares the loops that the code is printed of with the interpreter. They need no processor with such vectors.
void expect_agreement_of_loops(const KernelProgram& program, size_t lanes) {
  constexpr ProgramSizes kOfRows[] = {{1, 1}, {2, 7}, {1, 21, 2}, {2, 67}};
  constexpr ProgramSizes kOfColumns[] = {{1, 1}, {17, 5}, {5, 66, 2}, {67, 2, 3}};
  const bool has_columns = program.order == LoopOrder::kColumns;
  for (const ProgramSizes& sizes : has_columns ? kOfColumns : kOfRows) {
    ProgramCall call(program, sizes, static_cast<uint64_t>(sizes.elements));
    const std::vector<at::Tensor> got = call.interpreted_loops(lanes);
    ASSERT_NO_FATAL_FAILURE(
        expect_close(program, call, got, /*fuses=*/true, "loops, " + to_string(sizes) + ", " + std::to_string(lanes)));
    ASSERT_FALSE(::testing::Test::HasFailure()) << to_string(sizes) << "\n" << program.text();
  }
}

// Compares the kernels of the process that no test has compared yet. Returns how many.
size_t check_new_kernels(const std::vector<size_t>& widths) {
  static std::set<std::string> checked;
  size_t count = 0;
  for (const auto& kernel : KernelCache::instance().kernels()) {
    if (checked.insert(kernel->program().text()).second) {
      ++count;
      for (const size_t lanes : widths) {
        expect_agreement(kernel->program(), lanes);
      }
      expect_agreement_of_loops(kernel->program(), /*lanes=*/8);
    }
    if (::testing::Test::HasFatalFailure()) {
      break;
    }
  }
  return count;
}

TEST(KernelInterpreter, AgreesOnGeneratedGroups) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  const Seeds seeds = seeds_in_part({1, environment_number("SCONCE_GROUPS", 150)});
  CountedKernels kernels(kernel_lanes());
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    GroupGenerator generator(seed, GroupGenerator::Contents::kAll);
    const auto plan = plan_with_kernels(generator.text(), kernels);
    constexpr std::pair<int64_t, int64_t> kSizes[] = {{5, 13}, {1, 1}, {7, 2}, {0, 3}};
    for (const auto& [height, width] : kSizes) {
      results_of(*plan, generator.operands(height, width));  // LibTorch raises for some pairs of dtypes
    }
  }
  EXPECT_GT(kernels.counts().runs, seeds.count) << "most groups have no kernels";
  EXPECT_GT(check_new_kernels({kernel_lanes()}), seeds.count / 2);
}

// One operator each, of every dtype; every vector width that this processor has.
TEST(KernelInterpreter, AgreesOnOperators) {
  const at::NoGradGuard no_grad;
  for (const c10::OperatorHandle& op : operators_in_part()) {
    for (size_t variant = 0; variant < 2; ++variant) {
      for (const at::ScalarType dtype :
           {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kBool}) {
        if (const auto call = variant_of(op, variant)) {
          KernelCall(*call, kernel_lanes()).run(arguments_for(*call, {dtype}, variant, as_it_is, 7));
        }
      }
    }
  }
  EXPECT_GT(check_new_kernels(kernel_widths()) * part_of_run().count, 300U);
}

TEST(KernelInterpreter, AgreesOnSoftmax) {
  for (const LoopOrder order : {LoopOrder::kRows, LoopOrder::kSegments, LoopOrder::kColumns}) {
    for (const size_t lanes : {kGenericLanes, kAvx2Lanes, kAvx512Lanes}) {
      ASSERT_NO_FATAL_FAILURE(expect_agreement_of_loops(softmax_program(order), lanes));
    }
  }
}

// The loops beside LibTorch.
TEST(LoopPrograms, OfSoftmaxComputeWhatLibTorchDoes) {
  for (const int64_t width : {1, 5, 8, 37, 100}) {
    const at::Tensor x = at::randn({3, width});
    const at::Tensor found = at::full({3, width}, NAN);
    const at::Tensor sums = at::full({3}, NAN);
    const LoopProgram loops = cpu_loops(softmax_program(LoopOrder::kRows), kAvx2Lanes);
    LoopCall call{{x.mutable_data_ptr(), found.mutable_data_ptr(), sums.mutable_data_ptr()}, {}, {3, width, 1}};
    call.first.resize(4, nullptr);  // the output serves as the buffer
    const std::vector<int64_t> row_steps = {width * 4, width * 4, 4, 0};
    const std::vector<int64_t> element_steps = {4, 4, 0, 4};
    call.words.insert(call.words.end(), row_steps.begin(), row_steps.end());
    call.words.insert(call.words.end(), element_steps.begin(), element_steps.end());
    call.words.resize(loops.words, 0);
    LoopInterpreter(loops, {.grid = {1}, .block = {kAvx2Lanes}}, call, /*is_wide=*/true).run();
    EXPECT_TRUE(at::allclose(found, at::softmax(x, -1), 1e-5, 1e-7)) << width;
    EXPECT_TRUE(at::allclose(sums, (x - x.amax(-1, true)).exp().sum(-1), 1e-5)) << width;
  }
}

// The oracle is worth something only if it notices: each of these programs differs from its neighbor in one operation.
TEST(KernelInterpreter, TellsProgramsApart) {
  const auto program_of = [](MachineOp op, c10::ScalarType type) {
    KernelProgram program;
    program.inputs = {{type, Access::kElements}, {type, Access::kStrided}};
    program.code = {{.op = MachineOp::kLoad, .type = type, .index = 0},
                    {.op = MachineOp::kLoad, .type = type, .index = 1},
                    {.op = op, .type = type, .a = 0, .b = 1}};
    program.outputs = {{type, 2}};
    return program;
  };
  for (const c10::ScalarType type : {at::kFloat, at::kLong}) {
    const std::vector<MachineOp> ops = {MachineOp::kAdd, MachineOp::kSub, MachineOp::kMul, MachineOp::kMin, MachineOp::kMax};
    for (const MachineOp op : ops) {
      const KernelProgram program = program_of(op, type);
      expect_agreement(program, kernel_lanes());
      const auto code = KernelCache::instance().find(program, kernel_lanes(), /*blocking=*/true, "interpreter");
      for (const MachineOp other : ops) {
        const KernelProgram changed = program_of(other, type);
        const at::Tensor got = ProgramCall(program, {2, 31}, 31).compiled(code->function())[0];
        const at::Tensor expected = ProgramCall(changed, {2, 31}, 31).interpreted(true)[0];
        int64_t where = -1;
        EXPECT_EQ(distance_between(got, expected, got, {}, &where) == 0, op == other) << name_of(op) << name_of(other);
      }
    }
  }
}

}  // namespace
}  // namespace sconce::testing
