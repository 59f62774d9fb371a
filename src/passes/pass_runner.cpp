#include "passes/pass_runner.h"

#include "ir/assert.h"
#include "ir/dump.h"
#include "ir/environment.h"
#include "ir/print.h"
#include "ir/verify.h"

#include <chrono>
#include <string>

namespace sconce {
namespace {

bool verifies_by_default() {
#ifdef SCONCE_DEBUG
  return true;
#else
  return environment().verify;
#endif
}

}  // namespace

PassRunner::PassRunner() : verify_(verifies_by_default() ? Verify::kAfterChange : Verify::kNever) {}

bool PassRunner::run(std::string_view name, PassFunction pass, Graph& graph) {
  if (left_out_.contains(name)) {
    return false;
  }
  const InternalErrorContext context("pass " + std::string(name));
  dump(DumpPoint::kBefore, name, graph);
  const bool checked = verify_ == Verify::kAfterChange;
  const std::string before = checked ? print(graph) : std::string();
  const auto start = std::chrono::steady_clock::now();
  const bool changed = pass(graph);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  timings_.push_back({std::string(name), elapsed.count(), changed});
  if (checked) {
    SCONCE_ASSERT(changed == (print(graph) != before), name, " says that it ", changed ? "changed" : "did not change",
                  " the graph, and the text says otherwise\nbefore:\n", before, "after:\n", print(graph));
  }
  if (changed) {
    dump(DumpPoint::kAfter, name, graph);
    if (checked) {
      verify(graph, name);
    }
  }
  return changed;
}

}  // namespace sconce
