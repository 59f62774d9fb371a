#include "tools/sconce/commands/model_options.h"

#include "base/exception_message.h"
#include "base/nearest_name.h"
#include "load/load_module.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"
#include "tools/sconce/values/spec.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/jit/api/module.h>

namespace sconce::cli {

void add_input_options(CLI::App& command, InputOptions& options) {
  CLI::Option* file = command
                          .add_option("--inputs", options.file,
                                      "arguments, written by torch.save((arg, ...), FILE), or a CASES file (its case 0)")
                          ->type_name("FILE");
  command.add_option("--input", options.specs, "arguments, one SPEC each (see below)")->type_name("SPEC")->excludes(file);
  command
      .add_option("--seed", options.seed,
                  "seed of random SPECs and of the model's random numbers (what the CASES file says, else 0)")
      ->type_name("N");
}

namespace {

// For an operator suite, whose cases each call a method of their own, returns the first case that calls this method.
const OperatorCase& first_case_of(const OperatorCases& cases, const std::string& method, const std::string& path) {
  std::vector<std::string> methods;
  for (const OperatorCase& each : cases) {
    if (method.empty() || each.method == method) {
      return each;
    }
    methods.push_back(each.method);
  }
  throw UserError("--method: none of the cases in " + path + " calls '" + method + "'" + did_you_mean(method, methods));
}

}  // namespace

Call read_call(const InputOptions& options, const std::string& method) {
  Call call;
  call.method = method;
  call.seed = options.seed.value_or(0);
  if (!options.file.empty() && is_script_archive(options.file)) {
    const Cases cases = read_cases(options.file);
    if (const auto* model_cases = std::get_if<ModelCases>(&cases)) {
      call.method = method.empty() ? model_cases->method : method;
      call.arguments = model_cases->inputs.front();
      call.seed = options.seed.value_or(model_cases->seed);
    } else {
      const OperatorCase& first = first_case_of(std::get<OperatorCases>(cases), method, options.file);
      call.method = first.method;
      call.arguments.assign(first.inputs.begin(), first.inputs.end());
    }
  } else if (!options.file.empty()) {
    call.arguments = load_arguments(options.file);
  } else {
    at::Generator generator = at::detail::createCPUGenerator(call.seed);
    for (const std::string& spec : options.specs) {
      call.arguments.push_back(parse_spec(spec, generator));
    }
  }
  if (call.method.empty()) {
    call.method = "forward";
  }
  return call;
}

void expect_method(const torch::jit::Module& module, const std::string& method) {
  if (module.find_method(method)) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& each : module.get_methods()) {
    names.push_back(each.name());
  }
  throw UserError("the model has no method '" + method + "'" +
                  (names.empty() ? std::string("; it has none at all") : did_you_mean(method, names)));
}

std::vector<c10::IValue> fit_call(const torch::jit::Module& module, const Call& call, const CommonOptions& common) {
  expect_method(module, call.method);
  const auto& schema = module.get_method(call.method).function().getSchema();
  if (call.arguments.empty() && schema.arguments().size() > 1 && !schema.arguments()[1].default_value()) {
    throw UserError(describe_signature(schema) + " needs arguments; give them with --inputs FILE or --input SPEC");
  }
  const std::vector<c10::IValue> arguments = fit_arguments(schema, call.arguments);
  return common.device.empty() ? arguments : deep_copy_to(arguments, c10::Device(common.device));
}

Module load_model(const std::string& path, const Options& options) {
  try {
    Module module = load(path, options);
    if (is_cases_module(module.script_module())) {
      throw UserError(path +
                      ": is a CASES file (recorded calls and answers), not a model; give the model as MODEL, and this file "
                      "as CASES of 'sconce check' or with --inputs");
    }
    return module;
  } catch (const c10::Error& failure) {
    const std::string message = one_line_message(failure);
    const bool lacks_operator = message.find("Unknown builtin op") != std::string::npos;
    throw UserError(message +
                    (lacks_operator ? "; if it is a custom operator, open its library with --ops-library LIB.so" : ""));
  }
}

GraphExecutor& executor_of(const Module& module, const std::string& method) {
  try {
    return module.method(method);
  } catch (const c10::Error& failure) {
    throw RefusedError(plain_message(failure));
  }
}

std::vector<std::string> failed_passes(const Module& module, const std::string& method) {
  if (module.options().passes().custom_passes().empty() && module.options().compile() != CompileMode::kBlocking) {
    return {};
  }
  return failed_passes(executor_of(module, method).explain().refusals);
}

}  // namespace sconce::cli
