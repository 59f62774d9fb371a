#include "lower/make_step.h"

#include "lower/lower_subgraph.h"

#include <utility>

namespace sconce {
namespace {

Expected<StepPtr> make_plain_step(const Node& node, Operands operands, Registers results, Callees* callees,
                                  bool sizes_may_change, const LoweringOptions& options) {
  if (has_plans_of_its_own(node)) {
    return lower_subgraph(node, std::move(operands), std::move(results), options);
  }
  if (is_call(node)) {
    return make_call_step(node, std::move(operands), std::move(results), callees);
  }
  return node.op().is_language()
             ? make_language_step(node, std::move(operands), std::move(results))
             : make_operator_step(node, std::move(operands), std::move(results), sizes_may_change, options.limits.is_exact);
}

}  // namespace

Expected<StepPtr> make_step(const Node& node, const Operands& operands, const Registers& results, Callees* callees,
                            bool sizes_may_change, const LoweringOptions& options) {
  auto step = make_plain_step(node, operands, results, callees, sizes_may_change, options);
  if (step && options.has_symbolic_sizes) {
    return make_symbolic_sizes_step(node, operands, results, std::move(*step));
  }
  return step;
}

}  // namespace sconce
