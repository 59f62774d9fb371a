#include "tests/fusion/program_call.h"

#include "tests/fusion/element_values.h"
#include "tests/fusion/rule_check.h"
#include "tests/support/loop_interpreter.h"

#include "fusion/program/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>

namespace sconce::testing {
namespace {

constexpr int64_t kSentinel = 77;

}  // namespace

std::string to_string(const ProgramSizes& sizes) {
  return std::to_string(sizes.rows) + " rows of " + std::to_string(sizes.segments) + " times " +
         std::to_string(sizes.elements);
}

ProgramCall::ProgramCall(const KernelProgram& program, ProgramSizes sizes, uint64_t seed, int64_t gap)
    : program_(program), gap_(gap) {
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
    const int64_t stride = input.access == Access::kOne ? 0 : input.access == Access::kElements ? 1 : 4;
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

int64_t ProgramCall::width(int64_t stride) const {
  return std::max<int64_t>(stride, 1) * (has_columns() ? frame_.rows : frame_.elements) + gap_;
}

int64_t ProgramCall::elements_of(int64_t stride) const {
  return frame_.segments * (has_columns() ? frame_.elements : frame_.rows) * width(stride);
}

at::Tensor ProgramCall::values(int64_t count, at::ScalarType type, size_t operand, uint64_t seed) const {
  if (!is_tame_) {
    return special_values(count, type, operand, seed);
  }
  return (at::randn({count}, at::kDouble) * 3).abs_().mul_(type == at::kByte ? 1 : seed % 2 == 0 ? 1 : -1).to(type);
}

void ProgramCall::add_operand(const at::Tensor& tensor, int64_t stride, bool is_of_row) {
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  const int64_t across = width(stride) * bytes;
  tensors_.push_back(tensor.contiguous());
  frame_.operands.push_back(tensors_.back().mutable_data_ptr());
  frame_.row_steps.push_back(has_columns() ? stride * bytes : across);
  frame_.element_steps.push_back(is_of_row ? 0 : has_columns() ? across : stride * bytes);
  frame_.segment_steps.push_back(is_of_row ? 0 : across * (has_columns() ? frame_.elements : frame_.rows));
}

std::vector<at::Tensor> ProgramCall::computed(const std::function<void(const KernelCallFrame&)>& run) {
  const auto first = tensors_.begin() + static_cast<std::ptrdiff_t>(program_.inputs.size());
  std::for_each(first, tensors_.end(), [](at::Tensor& output) { output.fill_(kSentinel); });
  run(frame_);
  std::vector<at::Tensor> copies;
  std::for_each(first, tensors_.end(), [&](const at::Tensor& output) { copies.push_back(output.clone()); });
  return copies;
}

std::vector<at::Tensor> ProgramCall::interpreted_loops(size_t lanes) {
  const LoopProgram loops = cpu_loops(program_, lanes);
  const size_t steps_count = loops.words - 3;
  return compiled([&](void* const* operands, const int64_t* steps, const void* /*numbers*/, int64_t rows, int64_t elements,
                      int64_t segments) {
    LoopCall call{{operands, operands + steps_count / 3}, frame_.numbers, {rows, elements, segments}};
    call.words.insert(call.words.end(), steps, steps + steps_count);
    const LaunchShape shape{.grid = {1}, .block = {static_cast<uint32_t>(lanes)}};
    LoopInterpreter(loops, shape, call, /*is_wide=*/true).run();
  });
}

std::vector<at::Tensor> ProgramCall::compiled(const std::function<std::remove_pointer_t<KernelFunction>>& function) {
  return computed([&](const KernelCallFrame& frame) {
    std::vector<void*> operands = frame.operands;
    std::vector<int64_t> steps = frame.row_steps;
    std::vector<int64_t> segment_steps = frame.segment_steps;
    std::vector<at::Tensor> buffers;
    for (const RowBuffer& buffer : schedule_of(program_).buffers) {
      buffers.push_back(at::empty({frame.segments * frame.elements}, buffer.type));
      operands.push_back(buffer.output ? nullptr : buffers.back().mutable_data_ptr());
      steps.push_back(0);
      segment_steps.push_back(frame.elements * static_cast<int64_t>(buffers.back().element_size()));
    }
    steps.insert(steps.end(), frame.element_steps.begin(), frame.element_steps.end());
    steps.resize(2 * operands.size(), 0);
    steps.insert(steps.end(), segment_steps.begin(), segment_steps.end());
    function(operands.data(), steps.data(), frame.numbers.data(), frame.rows, frame.elements, frame.segments);
  });
}

std::vector<at::Tensor> ProgramCall::interpreted(bool fuses, const std::function<int()>& perturbation) {
  return computed([&](const KernelCallFrame& frame) {
    KernelInterpreter interpreter(program_, fuses);
    interpreter.perturb(perturbation);
    interpreter.run(frame);
  });
}

Iteration ProgramCall::iteration(int64_t splits) const {
  Iteration iteration;
  const bool is_split = splits > 1 && frame_.rows % splits == 0;
  iteration.sizes =
      is_split ? std::vector{splits, frame_.rows / splits, frame_.elements} : std::vector{frame_.rows, frame_.elements};
  for (size_t k = 0; k < frame_.operands.size(); ++k) {
    const int64_t step = frame_.row_steps[k];
    iteration.strides.push_back(is_split ? std::vector{step * (frame_.rows / splits), step, frame_.element_steps[k]}
                                         : std::vector{step, frame_.element_steps[k]});
  }
  iteration.order = program_.order;
  iteration.segments = frame_.segments;
  iteration.segment_strides = frame_.segment_steps;
  return iteration;
}

void expect_close(const KernelProgram& program, ProgramCall& call, const std::vector<at::Tensor>& got, bool fuses,
                  const std::string& what) {
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
    const auto where_it_is = [&] { return "output " + std::to_string(k) + ", " + what + "\n" + program.text(); };
    if (!is_inexact(program)) {
      int64_t where = -1;
      const Distance allowed{.any_zero = program.has_reductions()};
      ASSERT_EQ(distance_between(got[k], expected[k], got[k], allowed, &where), 0)
          << "at " << where << ", " << where_it_is();
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
        << at::cat({got[k].to(at::kDouble).masked_select(is_off), wanted.masked_select(is_off)}) << where_it_is();
  }
}

}  // namespace sconce::testing
