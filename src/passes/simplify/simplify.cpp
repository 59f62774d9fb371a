#include "passes/simplify/simplify.h"

#include "passes/simplify/fold_constant_branches.h"
#include "passes/simplify/lower_tuples.h"
#include "passes/simplify/peephole.h"
#include "passes/simplify/propagate_constants.h"

namespace sconce {

void simplify(Graph& graph, const RunPass& run, int max_iterations) {
  const auto changes = [&](std::string_view name, bool (*pass)(Graph&)) { return run_pass(run, name, pass, graph); };
  bool changed = true;
  for (int iteration = 0; changed && iteration < max_iterations; ++iteration) {
    changed = changes("lower_tuples", lower_tuples);
    changed |= changes("peephole", peephole);
    changed |= changes("propagate_constants", propagate_constants);
    changed |= changes("fold_constant_branches", fold_constant_branches);
  }
}

}  // namespace sconce
