// Compiled kernels beside the interpreter of their programs: bit for bit, and where functions of the mathematical library or
// sums of rows are computed, as close as their own precision allows.
//
//   SCONCE_GROUPS=2000 build/release/tests/fusion_test --gtest_filter='KernelInterpreter.*'    more generated groups
#include "tests/fusion/kernel_interpreter.h"
#include "tests/fusion/element_values.h"
#include "tests/fusion/group_generator.h"
#include "tests/fusion/rule_check.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"

#include "fusion/kernel_cache.h"
#include "fusion/kernel_width.h"
#include "fusion/schedule.h"
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

constexpr int64_t kGap = 3;  // elements between rows that no kernel may touch
constexpr int64_t kSentinel = 77;

struct ProgramSizes {
  int64_t rows;
  int64_t elements;
  int64_t segments = 1;
};

// A call of a program on random operands: what lies side by side has gaps around it, strided operands have elements in
// between.
class ProgramCall {
 public:
  ProgramCall(const KernelProgram& program, ProgramSizes sizes, uint64_t seed) : program_(program) {
    bool calls = false;
    for (const Instruction& each : program.code) {
      calls = calls || is_call(each.op);
    }
    is_tame_ = calls || is_inexact(program);
    frame_.rows = sizes.rows;
    frame_.elements = sizes.elements;
    frame_.segments = program.order == LoopOrder::kRows ? 1 : sizes.segments;
    for (size_t k = 0; k < program.inputs.size(); ++k) {
      const KernelInput& input = program.inputs[k];
      const int64_t stride = input.access == Access::kOne ? 0 : input.access == Access::kElements ? 1 : 1 + kGap;
      add_operand(values(elements_of(stride), input.type, k, seed), stride, program.is_of_row(input));
    }
    for (const KernelOutput& output : program.outputs) {
      add_operand(at::full({elements_of(1)}, kSentinel, at::kLong).to(output.type), 1, output.access == Access::kOne);
    }
    for (size_t k = 0; k < program.numbers.size(); ++k) {
      const double number = k % 2 == 0 ? 2 : 1.5;
      frame_.numbers.push_back(program.numbers[k] == at::kDouble ? std::bit_cast<int64_t>(number)
                               : program.numbers[k] == at::kBool ? 1
                                                                 : static_cast<int64_t>(2 + k));
    }
  }

  std::vector<at::Tensor> compiled(KernelFunction function) {
    reset_outputs();
    std::vector<void*> operands = frame_.operands;
    std::vector<int64_t> steps = frame_.row_steps;
    std::vector<at::Tensor> buffers;
    for (const RowBuffer& buffer : schedule_of(program_).buffers) {
      buffers.push_back(at::empty({frame_.segments * frame_.elements}, buffer.type));
      operands.push_back(buffer.output ? nullptr : buffers.back().mutable_data_ptr());
      steps.push_back(0);
    }
    std::vector<int64_t> segment_steps = frame_.segment_steps;
    for (const at::Tensor& buffer : buffers) {
      segment_steps.push_back(frame_.elements * static_cast<int64_t>(buffer.element_size()));
    }
    steps.insert(steps.end(), frame_.element_steps.begin(), frame_.element_steps.end());
    steps.resize(2 * operands.size(), 0);
    steps.insert(steps.end(), segment_steps.begin(), segment_steps.end());
    function(operands.data(), steps.data(), frame_.numbers.data(), frame_.rows, frame_.elements, frame_.segments);
    return outputs();
  }

  std::vector<at::Tensor> interpreted(bool fuses, const std::function<int()>& perturbation = nullptr) {
    reset_outputs();
    KernelInterpreter interpreter(program_, fuses);
    interpreter.perturb(perturbation);
    interpreter.run(frame_);
    return outputs();
  }

 private:
  bool has_columns() const { return program_.order == LoopOrder::kColumns; }
  // The elements of all lanes that lie side by side, with a gap.
  int64_t width(int64_t stride) const {
    return std::max<int64_t>(stride, 1) * (has_columns() ? frame_.rows : frame_.elements) + kGap;
  }
  int64_t elements_of(int64_t stride) const {
    return frame_.segments * (has_columns() ? frame_.elements : frame_.rows) * width(stride);
  }
  at::Tensor values(int64_t count, at::ScalarType type, size_t operand, uint64_t seed) const {
    if (!is_tame_) {
      return special_values(count, type, operand, seed);
    }
    return (at::randn({count}, at::kDouble) * 3).abs_().mul_(type == at::kByte ? 1 : seed % 2 == 0 ? 1 : -1).to(type);
  }
  void add_operand(const at::Tensor& tensor, int64_t stride, bool is_of_row) {
    const auto bytes = static_cast<int64_t>(tensor.element_size());
    const int64_t across = width(stride) * bytes;
    tensors_.push_back(tensor.contiguous());
    frame_.operands.push_back(tensors_.back().mutable_data_ptr());
    frame_.row_steps.push_back(has_columns() ? stride * bytes : across);
    frame_.element_steps.push_back(is_of_row ? 0 : has_columns() ? across : stride * bytes);
    frame_.segment_steps.push_back(is_of_row ? 0 : across * (has_columns() ? frame_.elements : frame_.rows));
  }
  void reset_outputs() {
    for (size_t k = program_.inputs.size(); k < tensors_.size(); ++k) {
      tensors_[k].fill_(kSentinel);
    }
  }
  std::vector<at::Tensor> outputs() const {
    std::vector<at::Tensor> copies;
    for (size_t k = program_.inputs.size(); k < tensors_.size(); ++k) {
      copies.push_back(tensors_[k].clone());
    }
    return copies;
  }

  const KernelProgram& program_;
  bool is_tame_ = false;  // values for which functions are well conditioned, and end
  KernelCallFrame frame_;
  std::vector<at::Tensor> tensors_;
};

bool has_folds(const KernelProgram& program) {
  return std::any_of(program.code.begin(), program.code.end(), [](const Instruction& each) { return is_fold(each.op); });
}

// Compares a program's compiled code with the interpreter.
void expect_agreement(const KernelProgram& program, size_t lanes) {
  const auto code = KernelCache::instance().find(program, lanes, /*blocking=*/true, "interpreter");
  ASSERT_NE(code->function(), nullptr) << code->refusal();
  const bool fuses = lanes != kGenericLanes;
  constexpr ProgramSizes kOfRows[] = {{1, 1}, {3, 2, 3}, {2, 7}, {1, 31, 2}, {2, 67}, {1, 131, 4}};
  constexpr ProgramSizes kOfColumns[] = {{1, 1}, {3, 2, 3}, {17, 5}, {64, 3, 2}, {20, 65}, {5, 130, 2}, {131, 6, 3}};
  const bool has_columns = program.order == LoopOrder::kColumns;
  for (const ProgramSizes& sizes : has_columns ? std::span<const ProgramSizes>(kOfColumns) : kOfRows) {
    ProgramCall call(program, sizes, static_cast<uint64_t>(sizes.elements));
    const std::vector<at::Tensor> got = call.compiled(code->function());
    const std::vector<at::Tensor> expected = call.interpreted(fuses);
    std::vector<at::Tensor> least = expected;
    std::vector<at::Tensor> most = expected;
    if (is_inexact(program)) {
      std::mt19937_64 random(7);
      for (int i = 0; i < 8; ++i) {
        const std::vector<at::Tensor> moved =
            call.interpreted(fuses, [&] { return i == 0 || (i > 1 && random() % 2 == 0) ? 1 : -1; });
        for (size_t k = 0; k < moved.size(); ++k) {
          least[k] = at::minimum(least[k], moved[k]);
          most[k] = at::maximum(most[k], moved[k]);
        }
      }
    }
    for (size_t k = 0; k < got.size(); ++k) {
      const auto what = [&] {
        return "output " + std::to_string(k) + ", " + std::to_string(sizes.rows) + " rows of " +
               std::to_string(sizes.segments) + " times " + std::to_string(sizes.elements) + ", " + std::to_string(lanes) +
               " lanes\n" + program.text();
      };
      if (!is_inexact(program)) {
        int64_t where = -1;
        const Distance allowed{.any_zero = has_folds(program)};
        ASSERT_EQ(distance_between(got[k], expected[k], got[k], allowed, &where), 0) << "at " << where << ", " << what();
        continue;
      }
      const at::Tensor wanted = expected[k].to(at::kDouble);
      // Instructions after an inexact one round once more.
      const double rounding = got[k].scalar_type() == at::kDouble     ? 8 * 0x1p-52
                              : got[k].scalar_type() == at::kBFloat16 ? 2 * 0x1p-7
                                                                      : 8 * 0x1p-23;
      const at::Tensor spread = most[k].to(at::kDouble) - least[k].to(at::kDouble);
      const at::Tensor allowed = spread * 8 + wanted.abs() * rounding + std::numeric_limits<float>::min();
      const at::Tensor is_off = (got[k].to(at::kDouble) - wanted).abs().gt(allowed).logical_and(wanted.isfinite());
      ASSERT_FALSE(is_off.any().item<bool>())
          << at::cat({got[k].to(at::kDouble).masked_select(is_off), wanted.masked_select(is_off)}) << what();
    }
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
  const uint64_t count = environment_number("SCONCE_GROUPS", 150);
  CountedKernels kernels(kernel_lanes());
  for (uint64_t seed = 1; seed <= count; ++seed) {
    GroupGenerator generator(seed, GroupGenerator::Contents::kAll);
    const auto plan = plan_with_kernels(generator.text(), kernels);
    constexpr std::pair<int64_t, int64_t> kSizes[] = {{5, 13}, {1, 1}, {7, 2}, {0, 3}};
    for (const auto& [height, width] : kSizes) {
      results_of(*plan, generator.operands(height, width));  // LibTorch raises for some pairs of dtypes
    }
  }
  EXPECT_GT(kernels.counts().runs, count) << "most groups have no kernels";
  EXPECT_GT(check_new_kernels({kernel_lanes()}), count / 2);
}

// One operator each, of every dtype; every vector width that this processor has.
TEST(KernelInterpreter, AgreesOnOperators) {
  const at::NoGradGuard no_grad;
  for (const c10::OperatorHandle& op : operators_with_rules()) {
    for (size_t variant = 0; variant < 2; ++variant) {
      for (const at::ScalarType dtype :
           {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kBool}) {
        if (const auto call = variant_of(op, variant)) {
          KernelCall(*call, kernel_lanes()).run(arguments_for(*call, {dtype}, variant, as_it_is, 7));
        }
      }
    }
  }
  EXPECT_GT(check_new_kernels(kernel_widths()), 300U);
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
