#include "pipeline/pass_runner.h"

#include "analysis/memory/memory_dependences.h"
#include "base/assert.h"
#include "base/environment.h"
#include "base/exception_message.h"
#include "ir/dump.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "pipeline/reproducer.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

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

bool PassRunner::run(std::string_view name, const PassCallback& pass, Graph& graph) {
  if (pipeline_ != nullptr && pipeline_->is_disabled(std::string(name))) {
    return false;
  }
  return run_part(name, pass, graph);
}

bool PassRunner::run_part(std::string_view name, const PassCallback& pass, Graph& graph) {
  const InternalErrorContext context("pass " + std::string(name));
  dump(DumpPoint::kBefore, name, graph);
  const bool checked = verify_ == Verify::kAfterChange;
  const std::string before = checked ? print(graph) : std::string();
  const auto reach_before = checked ? std::optional<MemoryDependences>(graph) : std::nullopt;
  const double seconds_of_others = std::exchange(seconds_of_parts_, 0);
  const auto start = std::chrono::steady_clock::now();
  const bool changed = pass(graph);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  timings_.push_back({std::string(name), seconds - seconds_of_parts_, changed, stage_});
  seconds_of_parts_ = seconds_of_others + seconds;
  if (checked) {
    SCONCE_ASSERT(changed == (print(graph) != before), name, " returned ", changed ? "true" : "false", " but ",
                  changed ? "did not change" : "changed", " the graph\nbefore:\n", before, "after:\n", print(graph));
  }
  if (changed) {
    dump(DumpPoint::kAfter, name, graph);
    if (checked) {
      verify(graph, name);
      const std::string grown = MemoryDependences(graph).new_since(*reach_before);
      SCONCE_ASSERT(grown.empty(), "after ", name, ", ", grown, "\nbefore:\n", before, "after:\n", print(graph));
    }
  }
  return changed;
}

// ---- the user's passes ----------------------------------------------------------------------------------------------

namespace {

bool has_same_types(c10::ArrayRef<Value*> a, c10::ArrayRef<Value*> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Value* x, const Value* y) { return *x->type() == *y->type(); });
}

}  // namespace

// Runs a pass of the user's on a copy of the graph, which replaces the graph if the pass succeeds. Always verifies the copy,
// unlike for sconce's own passes. `problem` stays empty if the pass succeeds.
bool PassRunner::run_on_copy(const CustomPass& pass, std::unique_ptr<Graph>& graph, std::string& problem) {
  std::unique_ptr<Graph> copy = graph->clone();
  const std::string before = print(*copy);  // print the copy: clone() renumbers values
  bool changed = false;
  try {
    changed = pass.run(*copy);
  } catch (const InternalError& failure) {
    problem = "violated a graph invariant: " + failure.reason();
    return false;
  } catch (...) {
    problem = "threw an exception: " + joined_lines(message_of(std::current_exception()));
    return false;
  }
  const std::vector<Violation> violations = find_violations(*copy);
  if (!violations.empty()) {
    problem = "violated a graph invariant (" + std::string(violations.front().check) + "): " + violations.front().message;
  } else if (!has_same_types(copy->inputs(), graph->inputs()) || !has_same_types(copy->outputs(), graph->outputs())) {
    problem = "changed the types or number of the graph's inputs or outputs";
  } else if (changed != (print(*copy) != before)) {
    problem = changed ? "returned true but did not change the graph" : "returned false but changed the graph";
  } else if (changed) {
    graph = std::move(copy);
  }
  return changed;
}

bool PassRunner::run_custom(const CustomPass& pass, std::unique_ptr<Graph>& graph) {
  dump(DumpPoint::kBefore, pass.name, *graph);
  const auto start = std::chrono::steady_clock::now();
  std::string problem;
  const bool changed = run_on_copy(pass, graph, problem);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  timings_.push_back({pass.name, elapsed.count(), changed && problem.empty(), stage_});
  if (problem.empty()) {
    if (changed) {
      dump(DumpPoint::kAfter, pass.name, *graph);
    }
    return changed;
  }
  RefusalExplanation refusal{"pass " + pass.name, problem, {}, {}};
  if (pipeline_ != nullptr && !pipeline_->reproducer_folder().empty()) {
    try {
      const std::string file =
          write_reproducer({pass.name, pass.library, problem, graph->clone()}, pipeline_->reproducer_folder());
      // `sconce replay` can load the pass of a library, but not the pass of a program.
      refusal.reason += (pass.library.empty() ? "; the graph before the pass: " : "; to reproduce: sconce replay ") + file;
    } catch (const std::exception& failure) {
      refusal.reason += "; cannot write a reproducer: " + joined_lines(message_of(failure));
    }
  }
  refusals_.push_back(std::move(refusal));
  return false;
}

std::vector<const CustomPass*> PassRunner::custom_at(Stage stage, bool after) const {
  std::vector<const CustomPass*> found;
  if (pipeline_ != nullptr) {
    for (const CustomPass& pass : pipeline_->custom_passes()) {
      if (pass.stage == stage && pass.is_after == after && !pipeline_->is_disabled(pass.name)) {
        found.push_back(&pass);
      }
    }
  }
  return found;
}

bool PassRunner::run_custom(Stage stage, bool after, std::unique_ptr<Graph>& graph) {
  bool changed = false;
  for (const CustomPass* pass : custom_at(stage, after)) {
    changed |= run_custom(*pass, graph);
  }
  return changed;
}

bool PassRunner::run_custom(Stage stage, bool after, std::shared_ptr<Graph>& graph) {
  if (custom_at(stage, after).empty()) {
    return false;
  }
  std::unique_ptr<Graph> copy = graph->clone();
  const bool changed = run_custom(stage, after, copy);
  if (changed) {
    graph = std::move(copy);
  }
  return changed;
}

}  // namespace sconce
