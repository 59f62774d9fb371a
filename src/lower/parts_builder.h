// PartsBuilder: where a step that runs a kernel finds its operands, and where its results go.
#pragma once

#include "base/flat_map.h"
#include "lower/liveness.h"
#include "lower/step_placement.h"
#include "plan/prepared/prepared_step.h"

#include <vector>

namespace sconce {

// Reads `registers` at each call: lowering fills it. `first_bound_input`: see LoweringOptions.
class PartsBuilder {
 public:
  PartsBuilder(const StepPlacement& places, const Liveness& liveness, const FlatMap<const Value*, Register>& registers,
               size_t first_bound_input)
      : places_(places), liveness_(liveness), registers_(registers), first_bound_input_(first_bound_input) {}

  // Adds an operand of the argument `position`. `is_run_time`: a number may differ from run to run.
  void add_operand(KernelStepParts& parts, const Value& value, size_t position, bool is_run_time,
                   bool in_list = false) const;
  // Adds the arguments of the unit's operator.
  void add_operands(KernelStepParts& parts, const PreparedNodes& unit) const;
  // Adds a result. The nodes `inside` read it within the kernel.
  void add_result(KernelStepParts& parts, const Value& value, const std::vector<const Node*>& inside) const;
  // Adds the registers of operands that the node uses for the last time.
  void add_dropped(KernelStepParts& parts, const Node& node) const;

 private:
  AttributePath path_of(const Value& value) const;
  bool is_weight(const Value& value) const;

  const StepPlacement& places_;
  const Liveness& liveness_;
  const FlatMap<const Value*, Register>& registers_;
  const size_t first_bound_input_;
};

}  // namespace sconce
