// sconce explain: what the executor did with a model, and why.
#include "tools/sconce/commands.h"
#include "tools/sconce/deep_copy.h"
#include "tools/sconce/errors.h"
#include "tools/sconce/explanation_text.h"
#include "tools/sconce/model_options.h"
#include "tools/sconce/spec.h"

#include <ATen/Context.h>

#include <iostream>

namespace sconce::cli {
namespace {

struct ExplainOptions {
  CommonOptions common;
  InputOptions inputs;
  std::string model;
  std::string method;
  size_t calls = 3;
  bool steps = false;
};

int explain(const ExplainOptions& options) {
  const Options settings = prepare(options.common);
  const Module module = load_model(options.model, settings);
  const Call call = read_call(options.inputs, options.method);
  const std::vector<c10::IValue> arguments = fit_call(module.script_module(), call, options.common);
  const GraphExecutor& executor = executor_of(module, call.method);
  for (size_t i = 0; i < options.calls; ++i) {
    at::manual_seed(call.seed);
    module.run_method(call.method, deep_copy(arguments));
  }
  const Explanation explanation = executor.explain();
  if (options.common.json) {
    std::cout << json_text(to_json(explanation));
  } else {
    std::cout << to_text(explanation, options.steps);
  }
  return kGood;
}

}  // namespace

void add_explain_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App& command = add_command(app, chosen, "explain", "Tell what sconce does with a model, and why", options, explain);
  command.add_option("MODEL", options->model, "what torch.jit.script(model).save(path) wrote")->required();
  command.add_option("--method", options->method, "the method to call (forward, or what the CASES file names)")
      ->type_name("M");
  add_input_options(command, options->inputs);
  command.add_option("--calls", options->calls, "calls before the question is asked (3)")
      ->type_name("N")
      ->check(between(0, 1e9));
  command.add_flag("--steps", options->steps, "show the steps of every plan");
  add_common_options(command, options->common);
  command.footer(
      "Shown: the plans and the arguments that each serves, the passes with their times, what was refused and why, and\n"
      "the counters of the plan cache.\n\n" +
      std::string(kSpecHelp) +
      "\nExamples:\n"
      "  sconce explain model.pt --inputs args.pt\n"
      "  sconce explain model.pt --input 'float32[8,16]' --steps\n"
      "\nExit codes: 0 good, 1 sconce refuses the model, 2 usage, a bad file, or the model raised an error.");
}

}  // namespace sconce::cli
