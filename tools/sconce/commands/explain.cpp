// sconce explain: shows what the executor did with a model, and why.
#include "report/explanation_text.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/commands/missing_kernels.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/describe.h"
#include "tools/sconce/values/spec.h"

#include <ATen/Context.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/jit/api/module.h>

#include <iostream>

namespace sconce::cli {
namespace {

struct ExplainOptions {
  CommonOptions common;
  InputOptions inputs;
  std::string model;
  std::string method;
  size_t calls = 3;
  bool no_grad = false;
  bool steps = false;
  bool verbose = false;
};

// The explanation, and the error that ended the calls early.
struct Account {
  Explanation explanation;
  std::optional<Failure> failure;
};

// Calls the model, and computes the gradients of the sum of its outputs if the call recorded any.
void call_with_backward(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments) {
  at::manual_seed(call.seed);
  const c10::IValue output = [&] {
    const AutocastRegion autocast;
    return module.run_method(call.method, deep_copy(arguments));
  }();
  if (const auto loss = sum_loss(differentiable_tensors(output))) {
    loss->backward();
  }
}

Account account_of(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments,
                   const ExplainOptions& options) {
  const torch::autograd::AutoGradMode grad_mode(!options.no_grad);
  Account account;
  account.explanation.method = call.method;
  const GraphExecutor* executor = nullptr;
  try {
    executor = &executor_of(module, call.method);
    for (size_t i = 0; i < options.calls; ++i) {
      executor->wait_for_compiles();  // so that the call runs the plan that earlier calls asked for
      call_with_backward(module, call, arguments);
    }
  } catch (const std::exception& failure) {
    account.failure = describe_failure(failure);
  }
  if (executor != nullptr) {
    executor->wait_for_compiles();
    account.explanation = executor->explain();
  } else {
    const Failure& refusal = *account.failure;
    const std::string reason = refusal.message.substr(0, refusal.message.find('\n'));
    account.explanation.refusals.push_back({"method " + call.method, reason, refusal.node, refusal.source});
    account.explanation.counters.refusals = 1;
  }
  return account;
}

// Returns "x: float32 [8, 16] contiguous", one line for each argument.
std::vector<std::string> describe_inputs(const torch::jit::Module& module, const std::string& method,
                                         const std::vector<c10::IValue>& arguments) {
  const auto& expected = module.get_method(method).function().getSchema().arguments();
  std::vector<std::string> lines;
  for (size_t i = 0; i < arguments.size(); ++i) {
    lines.push_back(expected.at(i + 1).name() + ": " + describe_argument(arguments[i]));
  }
  return lines;
}

int explain(const ExplainOptions& options) {
  const Options settings = prepare(options.common);
  warn_of_missing_kernels(settings);
  const Module module = load_model(options.model, settings);
  const Call call = read_call(options.inputs, options.method);
  const std::vector<c10::IValue> arguments = fit_call(module.script_module(), call, options.common);
  const Account account = account_of(module, call, arguments, options);
  const std::vector<std::string> inputs = describe_inputs(module.script_module(), call.method, arguments);
  if (options.common.json) {
    Json json = json_of(account.explanation);
    json["inputs"] = inputs;
    if (account.failure) {
      json.update(to_json(*account.failure));
    }
    std::cout << json_text(json);
  } else {
    std::cout << to_text(account.explanation, inputs, {options.steps, options.verbose}) << std::flush;
  }
  if (account.failure) {
    print(*account.failure);
  }
  return account.failure ? account.failure->exit_code : kGood;
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
      ->check(whole_between(0, 1e9));
  command.add_flag("--no-grad", options->no_grad,
                   "record nothing for gradients, as in inference, and as bench does unless --with-grad is given");
  command.add_flag("--steps", options->steps, "show the steps of every plan");
  command.add_flag("--verbose", options->verbose,
                   "show the argument specs that were met, in full, and which steps a CUDA graph cannot hold");
  add_frozen_option(command, options->common);
  add_device_option(command, options->common);
  add_intra_op_option(command, options->common);
  add_autocast_option(command, options->common);
  add_common_options(command, options->common);
  command.footer(
      "Shown: the arguments, the plans and how many specs of arguments each serves, which operators are not prepared and\n"
      "why, the arena of local tensors, the passes with their times, what was refused and why, and the counters of the\n"
      "plan cache; all this also when the model raises an error, which then follows. Each call waits for the plans that\n"
      "earlier calls have asked for. If it records gradients, backward of the sum of its outputs follows. Operators of "
      "such\n"
      "calls are prepared in differentiable subgraphs alone: shown are these, with the steps of their forward and backward\n"
      "plans, and why other operators are in none. --no-grad shows the plans of inference. With --frozen, what stays an\n"
      "attribute is refused: `constant NAME: why`.\n\n" +
      std::string(kSpecHelp) +
      "\nExamples:\n"
      "  sconce explain model.pt --inputs args.pt\n"
      "  sconce explain model.pt --input 'float32[8,16]' --steps\n"
      "  sconce explain model.pt --inputs args.pt --frozen --no-grad\n"
      "\nExit codes: 0 good, 1 sconce refuses the model, 2 usage, a bad file, or the model raised an error.");
}

}  // namespace sconce::cli
