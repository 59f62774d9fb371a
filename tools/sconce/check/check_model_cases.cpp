#include "base/exception_message.h"
#include "tools/sconce/check/check_cases.h"
#include "tools/sconce/check/check_threads.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/check/reference_calls.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/ui/nearest_name.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

#include "load/load_module.h"

namespace sconce::cli {
namespace {

template <typename Named>
std::vector<NamedTensor> named_tensors(const Named& list) {
  std::vector<NamedTensor> named;
  for (const auto& each : list) {
    named.push_back({each.name, each.value});
  }
  return named;
}

// Returns the parameters that are trained.
std::vector<NamedTensor> trained_parameters(const torch::jit::Module& module) {
  std::vector<NamedTensor> parameters = named_tensors(module.named_parameters());
  std::erase_if(parameters, [](const NamedTensor& named) { return !named.tensor.requires_grad(); });
  return parameters;
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
  throw UserError(settings.cases + ": the model has no " + kind + " '" + name + "'" + ui::did_you_mean(name, names));
}

class ModelCheck {
 public:
  ModelCheck(const ModelCases& cases, const CheckSettings& settings, Findings& findings)
      : cases_(cases),
        settings_(settings),
        findings_(findings),
        method_(settings.method.empty() ? cases.method : settings.method),
        // The parameters of a frozen model are constants, so its results require no gradient.
        tolerance_{settings.rtol.value_or(cases.rtol), settings.atol.value_or(cases.atol),
                   /*requires_grad=*/!settings.options.frozen()} {}

  void check_case(size_t index) {
    ReferenceModels models(load_model(settings_.model, settings_.options),
                           load_script_module(settings_.model, settings_.options.device()), method_,
                           ReferenceModels::State::kCompare);
    const std::vector<c10::IValue> arguments = arguments_of(index, models.reference());
    for (size_t call = 1; call <= settings_.calls; ++call) {
      findings_.begin_call(call);
      ReferenceModels::Outcomes outcomes = models.call(arguments, cases_.seed, call);
      const size_t found = findings_.all().size();
      models.compare_outcomes(outcomes, tolerance_, is_recorded(index), findings_);
      if (outcomes.got.error) {
        const bool agree = findings_.all().size() == found;
        if (agree && call == 1) {
          throw UserError("the model rejects these arguments, in sconce as in LibTorch: " + *outcomes.got.error);
        }
        return;  // later calls would repeat the finding
      }
      if (call == 1) {
        compare_first_call(index, outcomes, models);
      }
    }
    if (settings_.threads > 1) {
      check_from_threads(arguments);
    }
  }

 private:
  // Returns whether the case has a recorded answer; arguments of the command line have none.
  bool is_recorded(size_t index) const { return index < cases_.outputs.size(); }

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
    const Module module = load_model(settings_.model, settings_.options);
    const torch::jit::Module reference = load_script_module(settings_.model, settings_.options.device());
    ThreadedCalls calls{method_, arguments, cases_.seed, tolerance_, nullptr, nullptr};
    if (settings_.grad) {
      calls.gradients = [&](const CallOutcome& outcome) { return gradients_of(outcome, module.script_module()); };
      calls.reference_gradients = [&](const CallOutcome& outcome) { return gradients_of(outcome, reference); };
    }
    check_threads(module, reference, calls, settings_, findings_);
  }

  void compare_first_call(size_t index, const ReferenceModels::Outcomes& outcomes, const ReferenceModels& models) {
    const CompareOptions recorded = {tolerance_.rtol, tolerance_.atol, /*requires_grad=*/false};
    if (is_recorded(index)) {
      findings_.add_all(kAgainstRecorded, compare(outcomes.got.output, cases_.outputs[index], recorded));
    }
    if (index == 0) {
      const auto buffers = named_tensors(models.original().named_buffers());
      for (size_t i = 0; i < cases_.buffer_names.size(); ++i) {
        const std::string& name = cases_.buffer_names[i];
        const at::Tensor& buffer = tensor_named(buffers, name, "buffer", settings_);
        findings_.add_all(kAgainstRecorded, compare(buffer, cases_.buffers_after[i], recorded, "buffer " + name));
      }
      if (settings_.grad) {
        compare_gradients(outcomes, models, recorded);
      }
    }
  }

  // Returns gradients of the mean of squares of the outputs by all parameters, by name.
  static std::vector<NamedTensor> gradients_of(const CallOutcome& outcome, const torch::jit::Module& module) {
    std::vector<NamedTensor> parameters = trained_parameters(module);
    const auto loss = mean_square_loss(differentiable_tensors(outcome.output));
    if (!loss || parameters.empty()) {
      return {};
    }
    std::vector<at::Tensor> wanted;
    for (const NamedTensor& parameter : parameters) {
      wanted.push_back(parameter.tensor);
    }
    const std::vector<at::Tensor> grads = gradients(*loss, wanted);
    for (size_t i = 0; i < grads.size(); ++i) {
      parameters[i].tensor = grads[i];
    }
    return parameters;
  }

  struct Gradients {
    std::vector<NamedTensor> by_name;
    std::optional<std::string> error;
  };
  static Gradients try_gradients_of(const CallOutcome& outcome, const torch::jit::Module& module) {
    try {
      return {gradients_of(outcome, module), std::nullopt};
    } catch (const std::exception& failure) {
      return {{}, one_line_message(failure)};
    }
  }

  void compare_gradients(const ReferenceModels::Outcomes& outcomes, const ReferenceModels& models,
                         const CompareOptions& recorded) {
    const auto parameters = trained_parameters(models.original());
    for (const std::string& name : cases_.grad_names) {
      tensor_named(parameters, name, "parameter that requires grad", settings_);
    }
    const Gradients of_sconce = try_gradients_of(outcomes.got, models.original());
    const Gradients of_reference =
        outcomes.expected.error ? Gradients{} : try_gradients_of(outcomes.expected, models.reference());
    if (of_sconce.error || of_reference.error) {
      report_raised(of_sconce.error, of_reference.error, "backward", !cases_.grad_names.empty(), findings_);
      return;
    }
    const std::vector<NamedTensor>& got = of_sconce.by_name;
    if (got.empty() && !cases_.grad_names.empty()) {
      findings_.add(kAgainstRecorded, "grad", "no output requires grad, so there are no gradients");
      return;
    }
    for (size_t i = 0; i < cases_.grad_names.size(); ++i) {
      const std::string& name = cases_.grad_names[i];
      const at::Tensor& grad = tensor_named(got, name, "gradient", settings_);
      findings_.add_all(kAgainstRecorded, compare(grad, cases_.grads[i], recorded, "grad of " + name));
    }
    if (outcomes.expected.error) {
      return;
    }
    const std::vector<NamedTensor>& expected = of_reference.by_name;
    if (got.size() != expected.size()) {
      findings_.add(kAgainstReference, "grad",
                    got.empty() ? "no output requires grad, with LibTorch one does"
                                : "an output requires grad, with LibTorch none does");
      return;
    }
    for (size_t i = 0; i < got.size(); ++i) {
      findings_.add_all(kAgainstReference, compare(got[i].tensor, expected[i].tensor, recorded, "grad of " + got[i].path));
    }
  }

  const ModelCases& cases_;
  const CheckSettings& settings_;
  Findings& findings_;
  const std::string method_;
  const CompareOptions tolerance_;
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
