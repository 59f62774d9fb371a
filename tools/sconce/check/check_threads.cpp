#include "tools/sconce/check/check_threads.h"

#include "base/exception_message.h"
#include "tools/sconce/check/load_models.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <barrier>
#include <thread>

namespace sconce::cli {
namespace {

// The first call in LibTorch.
struct Answer {
  CallOutcome outcome;
  CallGradients gradients;
};

void append(std::vector<Mismatch>& all, std::vector<Mismatch> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// The calls of one thread, up to the first wrong one.
std::vector<Mismatch> calls_of_thread(const Module& module, const ThreadedCalls& calls, const Answer& answer, size_t count) {
  for (size_t call = 0; call < count; ++call) {
    const at::AutoGradMode as_before(at::GradMode::is_enabled());  // the model may switch grad mode
    CallOutcome got;
    got.arguments = deep_copy(calls.arguments);
    got.output = calls.method == "forward" ? module.forward(got.arguments) : module.run_method(calls.method, got.arguments);
    std::vector<Mismatch> mismatches = compare(got.output, answer.outcome.output, calls.options);
    for (size_t i = 0; i < got.arguments.size(); ++i) {
      append(mismatches, compare(got.arguments[i], answer.outcome.arguments[i], calls.options,
                                 "inputs[" + std::to_string(i) + "] after the call"));
    }
    if (calls.gradients && call == 0) {
      const CallGradients gradients = calls.gradients(got);
      if (gradients.error != answer.gradients.error) {
        mismatches.push_back({"backward",
                              "sconce: " + gradients.error.value_or("no error") +
                                  "; LibTorch: " + answer.gradients.error.value_or("no error"),
                              {},
                              {},
                              {}});
      } else {
        append(mismatches, compare_gradients(gradients, answer.gradients, calls.options));
      }
    }
    if (!mismatches.empty()) {
      return mismatches;
    }
  }
  return {};
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
  std::vector<std::vector<Mismatch>> mismatches(settings.threads);
  std::barrier start(static_cast<std::ptrdiff_t>(settings.threads));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < settings.threads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        mismatches[i] = calls_of_thread(module, fitted, answer, settings.calls);
      } catch (const std::exception& failure) {
        mismatches[i].push_back({"call", "sconce raises, LibTorch does not: " + one_line_message(failure), {}, {}, {}});
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (size_t i = 0; i < settings.threads; ++i) {
    findings.add_all(
        kAgainstReference + std::string(", thread ") + std::to_string(i + 1) + " of " + std::to_string(settings.threads),
        std::move(mismatches[i]));
  }
}

}  // namespace sconce::cli
