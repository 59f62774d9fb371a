#include "tools/sconce/check/check_threads.h"

#include "base/exception_message.h"
#include "tools/sconce/check/load_models.h"
#include "tools/sconce/check/rounding.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <barrier>
#include <map>
#include <set>
#include <thread>

namespace sconce::cli {
namespace {

// The first call in LibTorch.
struct Answer {
  CallOutcome outcome;
  CallGradients gradients;
};

struct ThreadFindings {
  struct InCall {
    size_t call;  // from 1
    Mismatch mismatch;
  };
  std::vector<InCall> all;
  size_t calls = 0;      // that were made
  size_t gradients = 0;  // that were compared

  void add(std::vector<Mismatch> mismatches) {
    for (Mismatch& mismatch : mismatches) {
      all.push_back({calls, std::move(mismatch)});
    }
  }
};

// Makes the calls of one thread, up to the first whose results are wrong. (Rounding may explain wrong gradients.)
void make_calls(const Module& module, const ThreadedCalls& calls, const Answer& answer, size_t count,
                ThreadFindings& findings) {
  for (bool is_right = true; is_right && findings.calls < count;) {
    ++findings.calls;
    const at::AutoGradMode as_before(at::GradMode::is_enabled());  // the model may switch grad mode
    CallOutcome got;
    got.arguments = deep_copy(calls.arguments);
    {
      const AutocastRegion autocast;
      got.output =
          calls.method == "forward" ? module.forward(got.arguments) : module.run_method(calls.method, got.arguments);
    }
    const size_t before = findings.all.size();
    findings.add(compare(got.output, answer.outcome.output, calls.options));
    for (size_t i = 0; i < got.arguments.size(); ++i) {
      findings.add(compare(got.arguments[i], answer.outcome.arguments[i], calls.options,
                           "inputs[" + std::to_string(i) + "] after the call"));
    }
    is_right = findings.all.size() == before;
    if (calls.gradients) {
      const CallGradients gradients = calls.gradients(got);
      if (gradients.error != answer.gradients.error) {
        const std::string errors =
            "sconce: " + gradients.error.value_or("no error") + "; LibTorch: " + answer.gradients.error.value_or("no error");
        findings.add({Mismatch{"backward", errors, {}, {}, {}}});
        is_right = false;
      } else {
        findings.add(compare_gradients(gradients, answer.gradients, calls.options));
        findings.gradients += gradients.by_name.size();
      }
    }
  }
}

// Removes the mismatches of gradients that rounding explains, from the findings of all threads.
void remove_rounding(std::vector<ThreadFindings>& found, const torch::jit::Module& reference, const ThreadedCalls& calls,
                     Findings& findings) {
  std::map<std::string, Mismatch> distinct;
  for (const ThreadFindings& thread : found) {
    for (const ThreadFindings::InCall& each : thread.all) {
      distinct.emplace(to_string(each.mismatch), each.mismatch);
    }
  }
  if (distinct.empty()) {
    return;
  }
  std::vector<Mismatch> mismatches;
  for (const auto& [text, mismatch] : distinct) {
    mismatches.push_back(mismatch);
  }
  const RoundingCheck rounding = check_rounding(std::move(mismatches), reference, calls.method, calls.arguments, calls.seed);
  if (rounding.note) {
    findings.add_note(*rounding.note);
  }
  std::set<std::string> beyond;
  for (const Mismatch& mismatch : rounding.beyond) {
    beyond.insert(to_string(mismatch));
  }
  for (ThreadFindings& thread : found) {
    std::erase_if(thread.all, [&](const auto& each) { return !beyond.contains(to_string(each.mismatch)); });
  }
}

CallOutcome call_once(const torch::jit::Module& reference, const ThreadedCalls& calls) {
  return call_reference(reference, calls.method, fit_arguments(reference, calls.method, calls.arguments), calls.seed);
}

// Returns why the calls' results depend on the order of threads; empty if they do not.
std::string reason_to_leave_out(const torch::jit::Module& reference, const CallOutcome& outcome, const ThreadedCalls& calls,
                                const CheckSettings& settings) {
  if (outcome.error) {
    return "they raise";
  }
  const CompareOptions exactly = {0, 0, /*requires_grad=*/false};
  if (calls.may_have_state) {
    const torch::jit::Module fresh = load_reference(settings);
    if (!compare(c10::IValue(reference._ivalue()), c10::IValue(fresh._ivalue()), exactly).empty()) {
      return "they write the model's own state";
    }
  }
  at::manual_seed(calls.seed);
  if (!at::globalContext().defaultGenerator(c10::kCPU).get_state().equal(outcome.generator_state)) {
    return "they draw random numbers";
  }
  // Calls may also write constant tensors of the file.
  const CallOutcome again = call_once(reference, calls);
  if (again.error || !compare(again.output, outcome.output, calls.options).empty()) {
    return "a second call gives something else";
  }
  return "";
}

}  // namespace

void check_threads(const Module& module, const torch::jit::Module& reference, const ThreadedCalls& calls,
                   const CheckSettings& settings, Findings& findings) {
  Answer answer{call_once(reference, calls), {}};
  const std::string reason = reason_to_leave_out(reference, answer.outcome, calls, settings);
  if (!reason.empty()) {
    findings.add_note("not called by " + std::to_string(settings.threads) + " threads: " + reason);
    return;
  }
  if (calls.gradients) {
    answer.gradients = calls.reference_gradients(answer.outcome);
  }
  ThreadedCalls fitted = calls;
  fitted.arguments = fit_arguments(module.script_module(), calls.method, calls.arguments);
  std::vector<ThreadFindings> found(settings.threads);
  c10::WarningHandler* const warnings = c10::WarningUtils::get_warning_handler();
  std::barrier start(static_cast<std::ptrdiff_t>(settings.threads));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < settings.threads; ++i) {
    threads.emplace_back([&, i] {
      const c10::WarningUtils::WarningHandlerGuard as_caller(warnings);
      start.arrive_and_wait();
      try {
        make_calls(module, fitted, answer, settings.calls, found[i]);
      } catch (const std::exception& failure) {
        found[i].add({Mismatch{"call", "sconce raises, LibTorch does not: " + one_line_message(failure), {}, {}, {}}});
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (calls.gradients) {
    remove_rounding(found, reference, calls, findings);
  }
  for (size_t i = 0; i < settings.threads; ++i) {
    findings.count_gradients(found[i].gradients);
    for (ThreadFindings::InCall& each : found[i].all) {
      if (each.call == found[i].all.front().call) {  // later calls would repeat the finding
        findings.begin_call(each.call);
        findings.add(
            kAgainstReference + std::string(", thread ") + std::to_string(i + 1) + " of " + std::to_string(settings.threads),
            std::move(each.mismatch));
      }
    }
  }
}

}  // namespace sconce::cli
