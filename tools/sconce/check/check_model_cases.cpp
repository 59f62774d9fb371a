#include "base/nearest_name.h"
#include "tools/sconce/check/check_cases.h"
#include "tools/sconce/check/check_threads.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/check/load_models.h"
#include "tools/sconce/check/reference_calls.h"
#include "tools/sconce/check/rounding.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

namespace sconce::cli {
namespace {

std::vector<NamedTensor> buffers_of(const torch::jit::Module& module) {
  std::vector<NamedTensor> buffers;
  for (const auto& buffer : module.named_buffers()) {
    buffers.push_back({buffer.name, buffer.value});
  }
  return buffers;
}

const at::Tensor& tensor_named(const std::vector<NamedTensor>& tensors, const std::string& name, const char* kind,
                               const CheckSettings& settings) {
  std::vector<std::string> names;
  for (const NamedTensor& each : tensors) {
    if (each.path == name) {
      return each.tensor;
    }
    names.push_back(each.path);
  }
  throw UserError(settings.cases + ": the model has no " + kind + " '" + name + "'" + did_you_mean(name, names));
}

class ModelCheck {
 public:
  ModelCheck(const ModelCases& cases, const CheckSettings& settings, Findings& findings)
      : cases_(cases),
        settings_(settings),
        findings_(findings),
        method_(settings.method.empty() ? cases.method : settings.method),
        why_unlike_recorded_(why_unlike_recorded(settings)),
        // The parameters of a frozen model are constants, so its results require no gradient.
        tolerance_{settings.rtol.value_or(cases.rtol), settings.atol.value_or(cases.atol),
                   /*requires_grad=*/!settings.options.frozen()} {}

  void check_case(size_t index) {
    ReferenceModels models(load_checked(settings_), load_reference(settings_), method_, ReferenceModels::State::kCompare);
    if (!why_unlike_recorded_.empty() && index < cases_.outputs.size()) {
      findings_.add_note(why_unlike_recorded_ + "; compared with LibTorch alone");
    }
    const std::vector<c10::IValue> arguments = arguments_of(index, models.reference());
    for (size_t call = 1; call <= settings_.calls; ++call) {
      findings_.begin_call(call);
      ReferenceModels::Outcomes outcomes = models.call(arguments, cases_.seed, call);
      models.compare_outcomes(outcomes, tolerance_, is_recorded(index), findings_);
      if (outcomes.got.error) {
        continue;
      }
      if (call == 1 && why_unlike_recorded_.empty()) {
        compare_with_recorded(index, outcomes, models);
      }
      if (settings_.grad && records_gradients(call)) {
        compare_gradients_of(index, arguments, outcomes, models);
      }
    }
    if (settings_.threads > 1) {
      check_from_threads(arguments);
    }
  }

 private:
  // Returns whether the case has a recorded answer of such calls; arguments of the command line have none.
  bool is_recorded(size_t index) const { return index < cases_.outputs.size() && why_unlike_recorded_.empty(); }

  std::vector<c10::IValue> arguments_of(size_t index, const torch::jit::Module& module) const {
    const auto& schema = module.get_method(method_).function().getSchema();
    try {
      const std::vector<c10::IValue> arguments = fit_arguments(schema, cases_.inputs[index]);
      return settings_.device.empty() ? arguments : deep_copy_to(arguments, c10::Device(settings_.device));
    } catch (const UserError& failure) {
      if (settings_.cases.empty()) {
        throw;
      }
      throw UserError(settings_.cases + ": case " + std::to_string(index) + " does not fit the model: " + failure.what());
    }
  }

  // Requires a module that has not been called yet.
  void check_from_threads(const std::vector<c10::IValue>& arguments) {
    const Module module = load_checked(settings_);
    const torch::jit::Module reference = load_reference(settings_);
    ThreadedCalls calls{method_, arguments, cases_.seed, tolerance_, nullptr, nullptr};
    if (settings_.grad) {
      calls.gradients = [&](const CallOutcome& outcome) {
        return gradients_of_call(outcome.output, outcome.arguments, module.script_module());
      };
      calls.reference_gradients = [&](const CallOutcome& outcome) {
        return gradients_of_call(outcome.output, outcome.arguments, reference);
      };
    }
    check_threads(module, reference, calls, settings_, findings_);
  }

  void compare_with_recorded(size_t index, const ReferenceModels::Outcomes& outcomes, const ReferenceModels& models) {
    if (is_recorded(index)) {
      findings_.add_all(kAgainstRecorded, compare(outcomes.got.output, cases_.outputs[index], values_));
    }
    if (index == 0) {
      const auto buffers = buffers_of(models.original());
      for (size_t i = 0; i < cases_.buffer_names.size(); ++i) {
        const std::string& name = cases_.buffer_names[i];
        const at::Tensor& buffer = tensor_named(buffers, name, "buffer", settings_);
        findings_.add_all(kAgainstRecorded, compare(buffer, cases_.buffers_after[i], values_, "buffer " + name));
      }
    }
  }

  void compare_gradients_of(size_t index, const std::vector<c10::IValue>& arguments,
                            const ReferenceModels::Outcomes& outcomes, const ReferenceModels& models) {
    const bool has_recorded =
        index == 0 && findings_.call() == 1 && !cases_.grad_names.empty() && why_unlike_recorded_.empty();
    const CallGradients got = gradients_of_call(outcomes.got.output, outcomes.got.arguments, models.original());
    if (has_recorded) {
      const auto parameters = trained_parameters(models.original());
      for (const std::string& name : cases_.grad_names) {
        tensor_named(parameters, name, "parameter that requires grad", settings_);
      }
    }
    const CallGradients expected =
        outcomes.expected.error
            ? CallGradients{}
            : gradients_of_call(outcomes.expected.output, outcomes.expected.arguments, models.reference());
    if (got.error || expected.error) {
      report_raised(got.error, expected.error, "backward", has_recorded, findings_);
      return;
    }
    if (has_recorded && got.by_name.empty()) {
      findings_.add(kAgainstRecorded, "grad", "no gradient: " + got.why_none);
      return;
    }
    for (size_t i = 0; has_recorded && i < cases_.grad_names.size(); ++i) {
      const std::string& name = cases_.grad_names[i];
      const at::Tensor& grad = tensor_named(got.by_name, name, "gradient", settings_);
      findings_.add_all(kAgainstRecorded, compare(grad, cases_.grads[i], values_, "grad of " + name));
    }
    if (!outcomes.expected.error) {
      std::vector<Mismatch> mismatches = compare_gradients(got, expected, values_);
      if (!mismatches.empty()) {
        RoundingCheck rounding = check_rounding(std::move(mismatches), models.reference(), method_, arguments, cases_.seed);
        mismatches = std::move(rounding.beyond);
        if (rounding.note) {
          findings_.add_note(*rounding.note);
        }
      }
      findings_.add_all(kAgainstReference, std::move(mismatches));
    }
    findings_.count_gradients(got.by_name.size());
    if (got.by_name.empty()) {
      findings_.add_note("no gradient to compare: " + got.why_none);
    }
  }

  const ModelCases& cases_;
  const CheckSettings& settings_;
  Findings& findings_;
  const std::string method_;
  const std::string why_unlike_recorded_;  // empty: recorded answers are of such calls
  const CompareOptions tolerance_;
  const CompareOptions values_{tolerance_.rtol, tolerance_.atol, /*requires_grad=*/false};
};

}  // namespace

void check_model_cases(const ModelCases& cases, const CheckSettings& settings, const CaseProgress& progress,
                       Findings& findings) {
  ModelCheck check(cases, settings, findings);
  for (size_t i = 0; i < cases.inputs.size(); ++i) {
    const std::string name = "case " + std::to_string(i);
    progress(name);
    findings.begin_case(name, settings.plan);
    check.check_case(i);
  }
}

}  // namespace sconce::cli
