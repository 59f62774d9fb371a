#include "tools/sconce/check/reference_calls.h"

#include "base/exception_message.h"
#include "base/nearest_name.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"
#include "tools/sconce/values/value_walk.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>

namespace sconce::cli {
namespace {

CallOutcome make_call(const std::vector<c10::IValue>& arguments, uint64_t seed,
                      const std::function<c10::IValue(std::vector<c10::IValue>)>& function) {
  CallOutcome outcome;
  outcome.arguments = deep_copy(arguments);
  at::manual_seed(seed);
  // LibTorch's interpreter leaves grad mode off if a future is waited for in a no_grad block.
  const at::AutoGradMode as_before(at::GradMode::is_enabled());
  const AutocastRegion autocast;
  try {
    outcome.output = function(outcome.arguments);
  } catch (const std::exception& failure) {
    outcome.error = one_line_message(failure);
  }
  outcome.generator_state = at::globalContext().defaultGenerator(c10::kCPU).get_state();
  return outcome;
}

std::vector<NamedTensor> tensors_of(const std::vector<c10::IValue>& arguments, const c10::IValue& state) {
  std::vector<NamedTensor> all;
  const auto append = [&](std::vector<NamedTensor> more) { all.insert(all.end(), more.begin(), more.end()); };
  for (size_t i = 0; i < arguments.size(); ++i) {
    append(tensors_in(arguments[i], "inputs[" + std::to_string(i) + "]", Objects::kEnter));
  }
  append(tensors_in(state, "model", Objects::kEnter));
  return all;
}

}  // namespace

ReferenceModels::ReferenceModels(Module original, const torch::jit::Module& reference, const std::string& method,
                                 State state)
    : module_(std::move(original)), reference_(reference), method_(method), state_(state), peer_(peers::make_peer("eager")) {
  expect_method(reference_, method);
  try {
    module_.method(method);
  } catch (const c10::Error& failure) {
    refusal_ = plain_message(failure);
    std::replace(refusal_->begin(), refusal_->end(), '\n', ';');
  }
  if (const auto reason = peer_->prepare(reference_, method)) {
    throw RefusedError("LibTorch cannot run " + method + ": " + *reason);
  }
}

ReferenceModels::Outcomes ReferenceModels::call(const std::vector<c10::IValue>& arguments, uint64_t seed, size_t number) {
  const at::AutoGradMode grad_mode(at::GradMode::is_enabled() && records_gradients(number));
  Outcomes outcomes;
  if (refusal_) {
    outcomes.got.error = outcomes.expected.error = refusal_;
    return outcomes;
  }
  outcomes.got = make_call(fit_arguments(original(), method_, arguments), seed, [&](std::vector<c10::IValue> values) {
    return method_ == "forward" ? module_.forward(std::move(values)) : module_.run_method(method_, std::move(values));
  });
  const auto session = peer_->session();
  outcomes.expected =
      make_call(arguments, seed, [&](std::vector<c10::IValue> values) { return session->run(std::move(values)); });
  return outcomes;
}

CallOutcome call_reference(const torch::jit::Module& reference, const std::string& method,
                           const std::vector<c10::IValue>& arguments, uint64_t seed) {
  const auto peer = peers::make_peer("eager");
  if (const auto reason = peer->prepare(reference, method)) {
    throw RefusedError("LibTorch cannot run " + method + ": " + *reason);
  }
  const auto session = peer->session();
  return make_call(arguments, seed, [&](std::vector<c10::IValue> values) { return session->run(std::move(values)); });
}

namespace {

// Returns the text without the name of the autograd node that it speaks of: one node of sconce's stands for several.
std::string without_node(std::string text) {
  const size_t begin = text.find("which is output ");
  const size_t end = text.find(", is at version ", begin);
  return end == std::string::npos ? text : text.erase(begin, end - begin);
}

}  // namespace

void report_raised(const std::optional<std::string>& got, const std::optional<std::string>& expected,
                   const std::string& what, bool has_answer, Findings& findings) {
  if (!got || !expected) {
    findings.add(kAgainstReference, what,
                 got ? "sconce raises, LibTorch does not: " + *got : "LibTorch raises, sconce does not: " + *expected);
    return;
  }
  const bool agree = without_node(*got) == without_node(*expected);
  const bool is_answered = has_answer && findings.call() == 1;
  if (agree && !is_answered) {
    findings.add_note((what == "call" ? "the model rejects these arguments" : what + " raises") +
                      ", in sconce as in LibTorch: " + *got);
    return;
  }
  if (is_answered) {
    findings.add(kAgainstRecorded, what,
                 std::string("no result: sconce and LibTorch both raise, with ") +
                     (agree ? "the same text" : "different texts") + "; the model rejects these inputs" +
                     (agree ? ": " + *got : ""));
  }
  if (!agree) {
    findings.add(kAgainstReference, what, "sconce raises: " + *got + "; LibTorch raises: " + *expected);
  }
}

void ReferenceModels::compare_outcomes(const Outcomes& outcomes, const CompareOptions& options, bool has_answer,
                                       Findings& findings) {
  const CallOutcome& got = outcomes.got;
  const CallOutcome& expected = outcomes.expected;
  if (findings.call() <= 2 && !refusal_) {  // with gradients, and without
    for (const std::string& failed : failed_passes(module_, method_)) {
      if (reported_.insert(failed).second) {
        findings.add(kAgainstPasses, "left out", failed);
      }
    }
  }
  if (got.error || expected.error) {
    if (refusal_) {
      findings.add(kAgainstReference, "call", "refused: " + *refusal_);
    } else {
      report_raised(got.error, expected.error, "call", has_answer, findings);
    }
    if (got.error != expected.error || refusal_) {
      return;
    }
  } else {
    findings.add_all(kAgainstReference, compare(got.output, expected.output, options));
  }
  for (size_t i = 0; i < got.arguments.size(); ++i) {
    findings.add_all(kAgainstReference, compare(got.arguments[i], expected.arguments[i], options,
                                                "inputs[" + std::to_string(i) + "] after the call"));
  }
  const auto state_of = [&](const torch::jit::Module& module) {
    return state_ == State::kCompare ? c10::IValue(module._ivalue()) : c10::IValue();
  };
  findings.add_all(kAgainstReference, compare(state_of(original()), state_of(reference_), options, "model"));

  const auto sharing = [&](const CallOutcome& outcome, const torch::jit::Module& module) {
    return sharing_of(tensors_of(outcome.arguments, state_of(module)), tensors_in(outcome.output, "out", Objects::kEnter));
  };
  const auto got_sharing = sharing(got, original());
  const auto expected_sharing = sharing(expected, reference_);
  if (got_sharing != expected_sharing) {
    const auto text = [](const auto& list) { return list.empty() ? std::string("no output shares memory") : join(list); };
    findings.add(kAgainstReference, "out", text(got_sharing) + "; with LibTorch: " + text(expected_sharing));
  }
  if (!got.generator_state.equal(expected.generator_state)) {
    findings.add(kAgainstReference, "generator",
                 "LibTorch's CPU generator is left in another state: more, fewer or other random numbers were drawn");
  }
}

}  // namespace sconce::cli
