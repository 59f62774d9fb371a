#include "base/exception_message.h"
#include "tools/sconce/check/check_cases.h"
#include "tools/sconce/check/check_threads.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/check/load_models.h"
#include "tools/sconce/check/reference_calls.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

#include <ATen/ATen.h>

#include <set>

namespace sconce::cli {
namespace {

// Returns the leaves of nested lists, tuples and dicts, depth first, with numbers as 0-d tensors. Leaves out None and
// strings.
void append_flattened(const c10::IValue& value, std::vector<c10::IValue>& leaves) {
  if (value.isTensor()) {
    leaves.push_back(value);
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      append_flattened(element, leaves);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      append_flattened(element, leaves);
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      append_flattened(entry.value(), leaves);
    }
  } else if (value.isScalar() || value.isBool()) {
    leaves.push_back(at::scalar_tensor(value.toScalar(), at::TensorOptions(value.toScalar().type())));
  }
}

std::vector<c10::IValue> flattened(const c10::IValue& value) {
  std::vector<c10::IValue> leaves;
  append_flattened(value, leaves);
  return leaves;
}

std::vector<c10::IValue> as_values(const std::vector<at::Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

// One path per element; a comparison of two lists would stop at different lengths.
std::vector<Mismatch> compare_lists(const std::vector<c10::IValue>& got, const std::vector<c10::IValue>& expected,
                                    const CompareOptions& options, const std::string& path) {
  if (got.size() != expected.size()) {
    return {
        {path, "has " + std::to_string(got.size()) + " tensors instead of " + std::to_string(expected.size()), {}, {}, {}}};
  }
  std::vector<Mismatch> mismatches;
  for (size_t i = 0; i < got.size(); ++i) {
    auto found = compare(got[i], expected[i], options, path + "[" + std::to_string(i) + "]");
    mismatches.insert(mismatches.end(), found.begin(), found.end());
  }
  return mismatches;
}

// Returns gradients of the sum of all outputs that require grad, by the arguments that do. Empty if there are none of
// either.
CallGradients named_gradients_of(const CallOutcome& outcome) {
  CallGradients named;
  std::vector<at::Tensor> wanted;
  for (const c10::IValue& argument : outcome.arguments) {
    if (argument.toTensor().requires_grad()) {
      wanted.push_back(argument.toTensor());
    }
  }
  try {
    const auto loss = sum_loss(differentiable_tensors(outcome.output));
    for (const at::Tensor& gradient : loss && !wanted.empty() ? gradients(*loss, wanted) : std::vector<at::Tensor>{}) {
      named.by_name.push_back({"out by argument " + std::to_string(named.by_name.size()), gradient});
    }
  } catch (const std::exception& failure) {
    named.error = one_line_message(failure);
  }
  return named;
}

std::vector<c10::IValue> tensors_of(const CallGradients& gradients) {
  std::vector<c10::IValue> tensors;
  for (const NamedTensor& gradient : gradients.by_name) {
    tensors.emplace_back(gradient.tensor);
  }
  return tensors;
}

bool has_state(const torch::jit::Module& module) {
  static const std::set<std::string> kNoState = {"names", "methods", "inputs", "needs_grad", "outputs",
                                                 "grads", "rtol",    "atol",   "training",   "_is_full_backward_hook"};
  for (const auto& attribute : module.named_attributes(/*recurse=*/false)) {
    if (kNoState.count(attribute.name) == 0) {
      return true;
    }
  }
  return false;
}

class OperatorCheck {
 public:
  OperatorCheck(const CheckSettings& settings, Findings& findings) : settings_(settings), findings_(findings) {}

  void check_case(const OperatorCase& operator_case) {
    if (!module_ || has_state_) {
      module_ = load_checked(settings_);
      reference_ = load_reference(settings_);
      has_state_ = has_state(*reference_);
    }
    const std::string& method = settings_.method.empty() ? operator_case.method : settings_.method;
    ReferenceModels models(*module_, *reference_, method,
                           has_state_ ? ReferenceModels::State::kCompare : ReferenceModels::State::kNone);
    const CompareOptions options = {settings_.rtol.value_or(operator_case.rtol), settings_.atol.value_or(operator_case.atol),
                                    true};
    const std::vector<c10::IValue> arguments = arguments_of(operator_case, method);
    for (size_t call = 1; call <= settings_.calls; ++call) {
      findings_.begin_call(call);
      const ReferenceModels::Outcomes outcomes = models.call(arguments, /*seed=*/0, call);
      models.compare_outcomes(outcomes, options, /*has_answer=*/true, findings_);
      if (outcomes.got.error) {
        continue;
      }
      if (records_gradients(call)) {
        compare_with_recorded(operator_case, outcomes, options, call == 1);
      }
    }
    if (settings_.threads > 1) {
      ThreadedCalls calls{method, arguments, /*seed=*/0, options, nullptr, nullptr, has_state_};
      if (settings_.grad) {
        calls.gradients = calls.reference_gradients = named_gradients_of;
      }
      check_threads(*module_, *reference_, calls, settings_, findings_);
    }
  }

 private:
  std::vector<c10::IValue> arguments_of(const OperatorCase& operator_case, const std::string& method) const {
    std::vector<c10::IValue> arguments = deep_copy(as_values(operator_case.inputs));
    if (!settings_.device.empty()) {
      arguments = deep_copy_to(arguments, c10::Device(settings_.device));
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (operator_case.needs_grad[i]) {
        arguments[i].toTensor().requires_grad_();
      }
    }
    try {
      return fit_arguments(*reference_, method, arguments);
    } catch (const UserError& failure) {
      throw UserError(settings_.cases + ": case " + operator_case.name + " does not fit its method: " + failure.what());
    }
  }

  void compare_with_recorded(const OperatorCase& operator_case, const ReferenceModels::Outcomes& outcomes,
                             const CompareOptions& options, bool is_first) {
    const CompareOptions recorded = {options.rtol, options.atol, /*requires_grad=*/false};
    if (is_first) {
      findings_.add_all(kAgainstRecorded,
                        compare_lists(flattened(outcomes.got.output), as_values(operator_case.outputs), recorded, "out"));
    }
    if (!settings_.grad) {
      return;
    }
    const bool has_recorded = is_first && !operator_case.grads.empty();
    const CallGradients got = named_gradients_of(outcomes.got);
    const CallGradients expected = outcomes.expected.error ? CallGradients{} : named_gradients_of(outcomes.expected);
    if (got.error || expected.error) {
      report_raised(got.error, expected.error, "backward", has_recorded, findings_);
      return;
    }
    findings_.count_gradients(got.by_name.size());
    if (has_recorded) {
      findings_.add_all(kAgainstRecorded, compare_lists(tensors_of(got), as_values(operator_case.grads), recorded, "grad"));
    }
    if (!outcomes.expected.error) {
      findings_.add_all(kAgainstReference, compare_lists(tensors_of(got), tensors_of(expected), recorded, "grad"));
    }
  }

  const CheckSettings& settings_;
  Findings& findings_;
  std::optional<Module> module_;
  std::optional<torch::jit::Module> reference_;
  bool has_state_ = false;
};

}  // namespace

void check_operator_cases(const OperatorCases& cases, const CheckSettings& settings, const CaseProgress& progress,
                          Findings& findings) {
  OperatorCheck check(settings, findings);
  for (const OperatorCase& operator_case : cases) {
    progress(operator_case.name);
    findings.begin_case(operator_case.name, settings.plan);
    check.check_case(operator_case);
  }
}

}  // namespace sconce::cli
