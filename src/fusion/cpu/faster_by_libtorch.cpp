#include "fusion/cpu/faster_by_libtorch.h"

#include "fusion/program/cost_model.h"

#include <algorithm>

namespace sconce {
namespace {

// The dimension that the lanes of a vector lie along.
size_t dimension_of_lanes(const Iteration& iteration) {
  return iteration.sizes.size() - (iteration.order == LoopOrder::kColumns ? 2 : 1);
}

// LibTorch reduces a matrix of few columns without idle lanes.
bool has_idle_lanes(const Iteration& iteration, size_t lanes) {
  return iteration.order != LoopOrder::kRows && iteration.sizes[dimension_of_lanes(iteration)] < static_cast<int64_t>(lanes);
}

// LibTorch reduces a tensor in the order of its memory. Lanes that are far apart read a line of the cache each.
bool has_far_lanes(const Iteration& iteration) {
  constexpr int64_t kLine = 64;
  const size_t lanes = dimension_of_lanes(iteration);
  const bool reduces = iteration.order != LoopOrder::kRows || iteration.strides.back()[lanes] == 0;
  return reduces && std::ranges::any_of(iteration.strides,
                                        [lanes](const std::vector<int64_t>& strides) { return strides[lanes] > kLine; });
}

}  // namespace

bool is_copy_or_function(const KernelProgram& program) {
  const MachineOp last = program.code.back().op;
  const bool is_by_mkl = is_library_function(last) && last != MachineOp::kSigmoid && last != MachineOp::kErf;
  const bool copies = std::ranges::all_of(
      program.outputs, [&](const KernelOutput& output) { return operand_count(program.code[output.value].op) == 0; });
  return copies || (program.code.size() == 2 && is_by_mkl);
}

bool calls_library(const KernelProgram& program) {
  return std::ranges::any_of(program.code, [](const auto& instruction) { return is_library_function(instruction.op); });
}

bool is_faster_by_libtorch(const KernelProgram& program, const Iteration& iteration, size_t lanes) {
  const bool writes_all =
      std::ranges::any_of(program.outputs, [](const KernelOutput& output) { return output.access == Access::kElements; });
  return (iteration.elements() > cost_model::kMaxElementsAlone &&
          (is_copy_or_function(program) || has_idle_lanes(iteration, lanes) || has_far_lanes(iteration))) ||
         (iteration.order == LoopOrder::kColumns && writes_all && iteration.elements() > cost_model::kMaxElementsOfColumns);
}

}  // namespace sconce
