#include "fusion/faster_by_libtorch.h"

#include "fusion/cost_model.h"

#include <algorithm>

namespace sconce {
namespace {

// LibTorch reduces a matrix of few columns without idle lanes.
bool has_idle_lanes(const Iteration& iteration, size_t lanes) {
  const bool has_columns = iteration.order == LoopOrder::kColumns;
  const int64_t of_lanes = has_columns ? *(iteration.sizes.end() - 2) : iteration.sizes.back();
  return iteration.order != LoopOrder::kRows && of_lanes < static_cast<int64_t>(lanes);
}

}  // namespace

bool is_copy_or_function(const KernelProgram& program) {
  const MachineOp last = program.code.back().op;
  const bool is_by_mkl = is_library_function(last) && last != MachineOp::kSigmoid && last != MachineOp::kErf;
  const bool copies = std::all_of(program.outputs.begin(), program.outputs.end(), [&](const KernelOutput& output) {
    return operand_count(program.code[output.value].op) == 0;
  });
  return copies || (program.code.size() == 2 && is_by_mkl);
}

bool calls_library(const KernelProgram& program) {
  return std::any_of(program.code.begin(), program.code.end(),
                     [](const auto& instruction) { return is_library_function(instruction.op); });
}

bool is_faster_by_libtorch(const KernelProgram& program, const Iteration& iteration, size_t lanes) {
  const bool writes_all = std::any_of(program.outputs.begin(), program.outputs.end(),
                                      [](const KernelOutput& output) { return output.access == Access::kElements; });
  return (iteration.elements() > cost_model::kMaxElementsAlone &&
          (is_copy_or_function(program) || has_idle_lanes(iteration, lanes))) ||
         (iteration.order == LoopOrder::kColumns && writes_all && iteration.elements() > cost_model::kMaxElementsOfColumns);
}

}  // namespace sconce
