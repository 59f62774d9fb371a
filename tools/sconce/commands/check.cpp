// sconce check: compares sconce with recorded answers, and with LibTorch call by call.
#include "base/nearest_name.h"
#include "report/explanation_text.h"
#include "tools/sconce/check/check_cases.h"
#include "tools/sconce/check/warnings_once.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/ui/progress_bar.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/spec.h"

#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

namespace sconce::cli {
namespace {

struct CheckOptions {
  CommonOptions common;
  std::string model;
  std::string cases;
  InputOptions inputs;  // instead of cases
  std::string method;
  size_t calls = 3;
  size_t threads = 1;
  bool grad = false;
  bool progress = false;
  std::optional<double> rtol;
  std::optional<double> atol;
  std::string plan;
  std::string mode = "saved";
};

// Returns the plans to check, one run each.
std::vector<Tier> plans_of(const std::string& plan) {
  const std::vector<Tier> all = {Tier::kGeneric, Tier::kRanks};
  if (plan.empty() || plan == "all") {
    return all;
  }
  for (const Tier tier : all) {
    if (plan == name_of(tier)) {
      return {tier};
    }
  }
  if (plan == "tier2") {
    std::cerr << "sconce: note: this build of sconce makes no plans of tier2; checked are those of tier1, its highest\n";
    return {Tier::kRanks};
  }
  throw UserError("--plan: no plan '" + plan + "'" + did_you_mean(plan, {"tier0", "tier1", "tier2", "all"}));
}

std::vector<std::string> names_of(const std::vector<Tier>& plans) {
  std::vector<std::string> names;
  for (const Tier plan : plans) {
    names.push_back(name_of(plan));
  }
  return names;
}

// Specialized plans are made in the first call, so that every call is checked.
CompileMode compile_mode_of(Tier tier) { return tier == Tier::kGeneric ? CompileMode::kNever : CompileMode::kBlocking; }

// Returns whether the method can be called without arguments. Throws UserError when the model has no such method.
bool needs_no_arguments(const CheckOptions& options, const Options& settings, const std::string& method) {
  const Module module = load_model(options.model, settings);
  expect_method(module.script_module(), method);
  const auto& arguments = module.script_module().get_method(method).function().getSchema().arguments();
  return arguments.size() <= 1 || arguments[1].default_value();
}

// Returns whether the mode is that of training; nothing for the mode in which the model was saved.
std::optional<bool> train_of(const std::string& mode) {
  const std::vector<std::string> modes = {"saved", "train", "eval"};
  if (std::find(modes.begin(), modes.end(), mode) == modes.end()) {
    throw UserError("--mode: no mode '" + mode + "'" + did_you_mean(mode, modes));
  }
  return mode == "saved" ? std::nullopt : std::optional(mode == "train");
}

// Returns the calls to make: those of CASES, one with the given arguments, those of the CASES file beside the model, or one
// without arguments.
Cases cases_of(CheckOptions& options, const Options& settings) {
  if (!options.inputs.file.empty() || !options.inputs.specs.empty()) {
    const Call call = read_call(options.inputs, options.method);
    ModelCases one;
    one.method = call.method;
    one.seed = call.seed;
    one.inputs = {call.arguments};
    return one;
  }
  if (options.cases.empty()) {
    const CasesBeside beside = find_cases_beside(options.model, options.method);
    if (beside.path.empty()) {
      ModelCases one;
      one.method = options.method.empty() ? one.method : options.method;
      one.seed = options.inputs.seed.value_or(one.seed);
      one.inputs = {{}};
      if (needs_no_arguments(options, settings, one.method)) {
        return one;
      }
      throw UserError(
          "which calls? give arguments with --input SPEC or --inputs FILE, or a file of recorded calls as CASES (" +
          beside.why_not + ")");
    }
    options.cases = beside.path;
  }
  Cases cases = read_cases(options.cases);
  if (!options.method.empty() && std::holds_alternative<OperatorCases>(cases)) {
    throw UserError("--method: " + options.cases +
                    " is an operator suite, each case of which names its own method; leave --method out");
  }
  if (options.inputs.seed && std::holds_alternative<ModelCases>(cases)) {
    std::get<ModelCases>(cases).seed = *options.inputs.seed;
  }
  return cases;
}

Findings check_all(const CheckOptions& options, const Cases& cases, const Options& settings,
                   const std::vector<Tier>& plans) {
  const auto* model_cases = std::get_if<ModelCases>(&cases);
  const size_t count = model_cases != nullptr ? model_cases->inputs.size() : std::get<OperatorCases>(cases).size();
  const auto mode = options.common.json ? ui::ProgressMode::kNever
                    : options.progress  ? ui::ProgressMode::kAlways
                                        : ui::ProgressMode::kAuto;
  ui::ProgressBar bar("checking", count * plans.size(), mode);
  WarningsOnce warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  Findings findings;
  for (const Tier plan : plans) {
    CheckSettings check;
    check.model = options.model;
    check.cases = options.cases;
    check.method = options.method;
    check.plan = name_of(plan);
    check.options = settings;
    check.options.compile(compile_mode_of(plan));
    check.device = options.common.device;
    check.calls = options.calls;
    check.threads = options.threads;
    check.grad = options.grad;
    check.train = train_of(options.mode);
    check.rtol = options.rtol ? options.rtol : tolerance_of_autocast();
    check.atol = options.atol ? options.atol : tolerance_of_autocast();
    const CaseProgress progress = [&](const std::string& name) { bar.advance(name); };
    if (model_cases != nullptr) {
      check_model_cases(*model_cases, check, progress, findings);
    } else {
      check_operator_cases(std::get<OperatorCases>(cases), check, progress, findings);
    }
  }
  return findings;
}

void print_json(const CheckOptions& options, const Findings& findings, const std::vector<std::string>& plans) {
  Json failures = Json::array();
  for (const Finding& finding : findings.all()) {
    failures.push_back(to_json(finding));
  }
  Json notes = Json::array();
  for (const Findings::Note& note : findings.notes()) {
    notes.push_back({{"case", note.case_name}, {"text", note.text}});
  }
  const Json json{{"model", options.model},
                  {"cases_file", options.cases.empty() ? Json() : Json(options.cases)},
                  {"good", findings.all().empty()},
                  {"cases", findings.cases()},
                  {"calls", options.calls},
                  {"threads", options.threads},
                  {"mode", options.mode},
                  {"grad", options.grad},
                  {"gradients_compared", findings.gradients()},
                  {"plans", plans},
                  {"failing_cases", findings.failing_cases()},
                  {"failures", std::move(failures)},
                  {"notes", std::move(notes)}};
  std::cout << json_text(json);
}

std::string words_for_gradients(const CheckOptions& options, const Findings& findings) {
  return !options.grad ? "" : findings.gradients() > 0 ? "with gradients, " : "no gradient to compare, ";
}

int check(const CheckOptions& given) {
  CheckOptions options = given;
  const Options settings = prepare(options.common);
  if (options.grad && settings.frozen()) {
    throw UserError("--grad: the parameters of a frozen model take no gradients; leave out one of the two");
  }
  const std::vector<Tier> plans = plans_of(options.plan);
  const Cases cases = cases_of(options, settings);
  if (options.mode != "saved" && std::holds_alternative<OperatorCases>(cases)) {
    throw UserError("--mode: the answers of an operator suite are of the mode in which it was saved; leave --mode out");
  }
  if (autocast_of_calls() && std::holds_alternative<OperatorCases>(cases)) {
    throw UserError("--autocast: the answers of an operator suite are of calls without autocast; leave --autocast out");
  }
  const Findings findings = check_all(options, cases, settings, plans);
  if (options.common.json) {
    print_json(options, findings, names_of(plans));
  } else {
    const size_t failing = findings.failing_cases().size();
    std::cout << to_text(findings) << findings.cases() - failing << " of " << findings.cases() << " cases agree ("
              << options.calls << " calls each, "
              << (options.threads > 1 ? "also from " + std::to_string(options.threads) + " threads, " : "")
              << (options.mode != "saved" ? "in " + options.mode + " mode, " : "") << words_for_gradients(options, findings)
              << (options.cases.empty() ? "with LibTorch alone, " : "") << "plans: " << join(names_of(plans)) << ")\n";
  }
  return findings.all().empty() ? kGood : kMismatchOrRefusal;
}

}  // namespace

void add_check_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App& command = add_command(app, chosen, "check", "Compare a model's results with LibTorch, and with recorded answers",
                                  options, check);
  command.add_option("MODEL", options->model, "the model; the CASES file itself when it holds its methods")->required();
  CLI::Option* cases =
      command.add_option("CASES", options->cases,
                         "recorded calls and answers (docs/cases.md tells how to write them); without it and "
                         "without arguments, NAME.cases.pt beside NAME.pt");
  add_input_options(command, options->inputs);
  command.get_option("--inputs")->excludes(cases);
  command.get_option("--input")->excludes(cases);
  command.add_option("--method", options->method, "the method to call, instead of the one that the cases name")
      ->type_name("M");
  command.add_option("--calls", options->calls, "calls per case (3)")->type_name("N")->check(whole_between(1, 1e9));
  command.add_option("--threads", options->threads, "also call from so many threads at once (1)")
      ->type_name("N")
      ->check(whole_between(1, 1000));
  command.add_flag("--grad", options->grad, "compare gradients too");
  command
      .add_option("--mode", options->mode,
                  "the mode of the model and its submodules: train, eval, or saved (the default), as in the file")
      ->type_name("MODE");
  command.add_option("--rtol", options->rtol, "relative tolerance, instead of the cases' (0.03 with --autocast)")
      ->type_name("X")
      ->check(between(0, 1e30));
  command.add_option("--atol", options->atol, "absolute tolerance, instead of the cases' (0.03 with --autocast)")
      ->type_name("X")
      ->check(between(0, 1e30));
  command
      .add_option("--plan", options->plan,
                  "highest tier of the plans: tier0, tier1, tier2 (today tier1), or all (the default), one after the other")
      ->type_name("TIER");
  command.add_flag("--progress", options->progress, "show progress even when stderr is no terminal");
  add_frozen_option(command, options->common);
  add_device_option(command, options->common);
  add_intra_op_option(command, options->common);
  add_autocast_option(command, options->common);
  add_common_options(command, options->common);
  command.footer(
      "Each case loads the model afresh and calls it N times, with copies of its inputs and a seeded generator.\n"
      "Call 1 is compared with the recorded answer, where there is one (arguments on the command line have none);\n"
      "every call with the same model in LibTorch, which runs operator after operator: outputs, what the call wrote into "
      "its\n"
      "inputs, buffers and other attributes, who shares memory with whom, and the state of the random generator.\n"
      "With --threads, N more calls from each of many threads on one module, the first calls of all at once, must\n"
      "give the same; calls that write the model's state or draw random numbers are left out of this with a note.\n"
      "Where a call or backward raises, the other side must raise with the same first line of the message.\n"
      "With --grad, calls 1, 4, 7, ... and every call of --threads record gradients, and those of all parameters and\n"
      "arguments that require one are compared; a note says if there is none. With --mode, recorded answers of the\n"
      "other mode are left out; with --autocast, all of them.\n"
      "\n" +
      std::string(kSpecHelp) +
      "\n"
      "Examples:\n"
      "  sconce check model.pt --input 'float32[1,3,224,224]' --grad\n"
      "  sconce check model.pt model.cases.pt\n"
      "  sconce check model.pt model.cases.pt --calls 5 --grad --plan all\n"
      "  sconce check model.pt model.cases.pt --threads 8\n"
      "  sconce check operators.cases.pt operators.cases.pt --json\n"
      "\n"
      "Exit codes: 0 all cases agree, 1 a case differs or sconce refuses, 2 usage or a bad file.");
}

}  // namespace sconce::cli
