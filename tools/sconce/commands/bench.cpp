// sconce bench: executors side by side in one process.
#include "base/nearest_name.h"
#include "tools/sconce/bench/baseline.h"
#include "tools/sconce/bench/bench_page.h"
#include "tools/sconce/bench/bench_report.h"
#include "tools/sconce/bench/measure.h"
#include "tools/sconce/bench/processes.h"
#include "tools/sconce/bench/sconce_peer.h"
#include "tools/sconce/bench/step_profile.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/commands/missing_kernels.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/commands/options_file.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/ui/interruption.h"
#include "tools/sconce/ui/progress_bar.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/spec.h"
#include "tools/sconce/values/spec_sweep.h"
#include "tools/sconce/values/write_file.h"

#include "load/load_module.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

namespace sconce::cli {
namespace {

struct BenchOptions {
  CommonOptions common;
  std::vector<std::string> models;
  std::string method;
  std::vector<std::string> input_files;
  std::vector<std::string> specs;
  std::optional<uint64_t> seed;
  std::string against;
  std::string train;
  std::vector<size_t> threads = {1};
  double seconds = 1.0;
  bool with_grad = false;
  bool progress = false;
  bool profile = false;
  size_t processes = 1;
  // Of a process that measures for another (bench/processes.h):
  std::optional<size_t> subject;
  bool answers = false;
  std::string cold;
  std::string html;
  std::string baseline;
  std::optional<double> rtol;
  std::optional<double> atol;
};

std::vector<Contestant> contestants_of(const std::string& against, const std::string& train, const Options& settings) {
  std::vector<std::string> known;
  for (const peers::PeerInfo& peer : peers::peer_list()) {
    known.emplace_back(peer.name);
  }
  std::vector<std::string> names;
  for (size_t begin = 0; begin < against.size();) {
    const size_t end = std::min(against.find(',', begin), against.size());
    names.push_back(against.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<Contestant> contestants = {{"sconce", [settings] { return std::make_unique<SconcePeer>(settings); }}};
  if (const auto optimizer = optimizer_named(train)) {
    contestants.push_back({"sconce-step", [settings, optimizer] { return make_step_peer(settings, *optimizer); }, true});
  }
  for (const std::string& name : against.empty() || against == "all" ? known : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw UserError("--against: no executor '" + name + "'" + did_you_mean(name, known));
    }
    contestants.push_back({name, [name] { return peers::make_peer(name); }});
  }
  return contestants;
}

// A model with one size of each range in the SPECs and one number of threads. Each subject gets its own table.
struct Subject {
  size_t index = 0;  // of the model
  std::vector<std::string> specs;
  size_t threads = 1;
};

std::vector<Subject> subjects_of(const BenchOptions& options) {
  const std::vector<std::vector<std::string>> sweep = expand_sweep(options.specs);
  std::vector<Subject> subjects;
  for (size_t index = 0; index < options.models.size(); ++index) {
    for (const std::vector<std::string>& specs : sweep) {
      for (const size_t threads : options.threads) {
        subjects.push_back({index, specs, threads});
      }
    }
  }
  return subjects;
}

// Returns the inputs of a model: its own file, the one file, the SPECs, or the CASES file beside it. If there are none,
// `why_none` says why.
InputOptions inputs_of(const BenchOptions& options, const Subject& subject, std::string* why_none) {
  const size_t index = subject.index;
  InputOptions inputs;
  inputs.specs = subject.specs;
  inputs.seed = options.seed;
  if (!options.input_files.empty()) {
    inputs.file = options.input_files[options.input_files.size() == 1 ? 0 : index];
  } else if (options.specs.empty()) {
    CasesBeside beside = find_cases_beside(options.models[index], options.method);
    inputs.file = std::move(beside.path);
    *why_none = std::move(beside.why_not);
  }
  return inputs;
}

// Reads the model once, so that mistakes are reported before anything is measured.
MeasureSettings settings_of(const BenchOptions& options, const Subject& subject, const Options& settings) {
  const std::string& path = options.models[subject.index];
  const Module module = load_model(path, settings);
  std::string why_no_inputs;
  const Call call = read_call(inputs_of(options, subject, &why_no_inputs), options.method);
  MeasureSettings measured;
  measured.load = [path, device = settings.device()] { return load_script_module(path, device); };
  measured.method = call.method;
  try {
    measured.arguments = fit_call(module.script_module(), call, options.common);
  } catch (const UserError& failure) {
    const bool lacks_inputs = !why_no_inputs.empty() && module.script_module().find_method(call.method);
    throw UserError(path + ": " + failure.what() + (lacks_inputs ? " (" + why_no_inputs + ")" : ""));
  }
  if (!options.train.empty() && trained_parameters(module.script_module()).empty()) {
    throw UserError(path +
                    ": no parameter of the model requires a gradient, so --train has nothing to train; save the model with "
                    "parameters that do, or leave out --train");
  }
  measured.seed = call.seed;
  measured.seconds = options.seconds;
  measured.threads = subject.threads;
  measured.with_grad = options.with_grad || !options.train.empty();
  measured.train = optimizer_named(options.train);
  measured.tolerance = {options.rtol.value_or(tolerance_of_autocast().value_or(1e-3)),
                        options.atol.value_or(tolerance_of_autocast().value_or(1e-4)), /*requires_grad=*/false};
  return measured;
}

ui::ProgressMode progress_mode(const BenchOptions& options) {
  return options.common.json ? ui::ProgressMode::kNever
         : options.progress  ? ui::ProgressMode::kAlways
                             : ui::ProgressMode::kAuto;
}

MeasurementTable measure_model(const BenchOptions& options, const std::string& path, const Options& settings,
                               const MeasureSettings& measured, size_t subject) {
  const std::vector<Contestant> contestants = contestants_of(options.against, options.train, settings);
  if (options.processes > 1) {
    std::vector<std::string> command = command_for_children(arguments_of_this_command());
    command.insert(command.end(), {kSubjectOption, std::to_string(subject)});
    ui::ProgressBar bar(std::filesystem::path(path).filename().string(),
                        count_of_processes(options.processes, contestants.size()), progress_mode(options));
    return measure_in_processes(command, options.processes, [&](const std::string& what) { bar.advance(what); });
  }
  ui::ProgressBar bar(std::filesystem::path(path).filename().string(), pieces_of_work(contestants.size(), measured),
                      progress_mode(options));
  return measure(contestants, measured, [&](const std::string& executor) { bar.advance(executor); });
}

// Answers the process that started this one.
int answer(const BenchOptions& options, const Options& settings, const MeasureSettings& measured, const std::string& path) {
  if (options.answers) {
    std::cout << answer_with(measure_model(options, path, settings, measured, 0)) << std::endl;
    return kGood;
  }
  const std::vector<Contestant> contestants = contestants_of(options.against, options.train, settings);
  const auto named = std::ranges::find(contestants, options.cold, &Contestant::name);
  TORCH_CHECK(named != contestants.end(), "no executor ", options.cold);
  std::cout << answer_with_cold_call(*named, measured) << std::endl;
  return kGood;
}

// Records steps after the measurement, which recording would slow down, if --profile or --trace-out asks for it and sconce
// runs the model.
std::optional<StepProfile> profile_model(const BenchOptions& options, const Options& settings, const BenchedModel& model) {
  const bool is_asked = options.profile || !options.common.trace_out.empty();
  if (!is_asked || interrupted() || model.table.rows.front().not_available) {
    return std::nullopt;
  }
  ui::ProgressBar bar(std::filesystem::path(model.path).filename().string(), kPiecesOfProfile, progress_mode(options));
  StepProfile profile =
      profile_steps(model.settings, settings, options.common.trace_out, [&] { bar.advance("recording steps"); });
  return options.profile ? std::optional(std::move(profile)) : std::nullopt;
}

// A word after a SPEC is a model here. If it looks like another SPEC, the error names the remedy.
void expect_no_specs_among_models(const BenchOptions& options) {
  for (const std::string& model : options.models) {
    std::error_code ignored;
    if (std::filesystem::exists(model, ignored)) {
      continue;
    }
    at::Generator generator = at::detail::createCPUGenerator(0);
    try {
      parse_spec(model, generator);
    } catch (const UserError&) {
      continue;  // it was meant as a model, and the loader reports that it does not exist
    }
    throw UserError("'" + model +
                    "' stands where a model is expected, but is a SPEC; bench takes one after each --input: "
                    "--input SPEC --input SPEC");
  }
}

// Returns what a script should know to repeat the measurement, without what is as always.
Json options_to_report(const BenchOptions& options) {
  Json json = Json::object();
  const auto add = [&](const char* name, const auto& value, const auto& usual) {
    if (value != usual) {
      json[name] = value;
    }
  };
  const std::vector<std::string> none;
  add("train", options.train, "");
  add("with_grad", options.with_grad, false);
  add("frozen", options.common.frozen, false);
  add("device", options.common.device, "");
  add("autocast", options.common.autocast, "");
  add("ops_libraries", options.common.ops_libraries, none);
  add("pass_plugins", options.common.pass_plugins, none);
  if (!options.common.options_file.empty()) {
    json["options"] = read_options_file(options.common.options_file);
  }
  return json;
}

int bench(const BenchOptions& options) {
  if (!options.train.empty() && !optimizer_named(options.train)) {
    throw UserError("--train: no optimizer '" + options.train + "'" + did_you_mean(options.train, {"sgd", "adam"}));
  }
  if (!options.train.empty() && std::ranges::any_of(options.threads, [](size_t threads) { return threads > 1; })) {
    throw UserError("--train: steps of one model cannot run at the same time; leave out --threads");
  }
  if (options.input_files.size() > 1 && options.input_files.size() != options.models.size()) {
    throw UserError("--inputs: " + std::to_string(options.input_files.size()) + " files for " +
                    std::to_string(options.models.size()) + " models; give one for all or one for each");
  }
  expect_no_specs_among_models(options);
  const std::vector<Subject> subjects = subjects_of(options);
  const Options settings = prepare(options.common);
  if (!options.train.empty() && settings.frozen()) {
    throw UserError("--train: the parameters of a frozen model take no gradients; leave out one of --train and --frozen");
  }
  contestants_of(options.against, options.train, settings);  // reports a wrong name before anything is measured
  warn_of_missing_kernels(settings);
  if (!options.html.empty()) {
    expect_writable(options.html);
  }
  if (!options.common.trace_out.empty()) {
    if (subjects.size() > 1) {
      throw UserError("--trace-out: holds the trace of one model; give one MODEL, not " + std::to_string(subjects.size()) +
                      (options.models.size() == 1 ? " inputs of one" : ""));
    }
    expect_writable(options.common.trace_out);
  }
  const std::optional<Baseline> baseline =
      options.baseline.empty() ? std::nullopt : std::optional<Baseline>(options.baseline);
  if (options.subject) {
    const Subject& subject = subjects.at(*options.subject);
    return answer(options, settings, settings_of(options, subject, settings), options.models[subject.index]);
  }
  std::vector<MeasureSettings> asked;
  for (const Subject& subject : subjects) {
    asked.push_back(settings_of(options, subject, settings));
  }

  const Json reported = options_to_report(options);
  const InterruptionGuard interruption;
  std::vector<BenchedModel> models;
  size_t failed = 0;
  for (size_t index = 0; index < subjects.size() && !interrupted(); ++index) {
    const std::string& path = options.models[subjects[index].index];
    try {
      models.push_back({path,
                        asked[index],
                        at::get_num_threads(),
                        reported,
                        measure_model(options, path, settings, asked[index], index),
                        {},
                        {},
                        options.processes});
      models.back().profile = profile_model(options, settings, models.back());
      if (baseline) {
        models.back().baseline = baseline->compare(models.back());
      }
    } catch (const Interrupted&) {
      break;
    } catch (const std::exception& failure) {
      const bool is_only_one = subjects.size() == 1;
      const int exit_code = report_failure(failure, options.common.json && is_only_one, path);
      if (is_only_one) {
        return exit_code;
      }
      ++failed;  // the other models are still measured
      continue;
    }
    if (!options.common.json) {
      std::cout << to_text(models.back()) << std::endl;
    }
  }
  if (options.common.json) {
    std::cout << json_text(to_json(models, facts_of_this_machine()));
  } else if (models.size() > 1) {
    std::cout << (subjects.size() > options.models.size() ? sweep_of(models) + "\n" : "") << summary_of(models);
  }
  if (!options.html.empty() && !models.empty()) {
    write_file(options.html, to_page(models, facts_of_this_machine()));
  }
  if (interrupted()) {
    std::cerr << "sconce: interrupted: " << models.size() << " of " << subjects.size()
              << (subjects.size() == 1 ? " model was" : " models were") << " measured"
              << (models.empty() || models.back().table.complete ? "" : ", the last for less time than asked") << std::endl;
    return kInterrupted;
  }
  const bool good = std::all_of(models.begin(), models.end(), [](const BenchedModel& model) {
    const Measurement& sconce = model.table.rows.front();
    return !sconce.not_available && !sconce.wrong && !(model.baseline && is_slower(*model.baseline));
  });
  return failed > 0 ? kUsageOrBadInput : good ? kGood : kMismatchOrRefusal;
}

}  // namespace

void add_bench_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App& command = add_command(app, chosen, "bench", "Time sconce and LibTorch's executors side by side", options, bench,
                                  /*writes_trace=*/true);
  command.add_option("MODEL", options->models, "models; each gets a table")->required();
  command.add_option("--method", options->method, "the method to call (forward, or what the CASES file names)")
      ->type_name("M");
  CLI::Option* files = command.add_option("--inputs", options->input_files,
                                          "arguments: one file for all models, or --inputs once for each; "
                                          "without any, NAME.cases.pt beside NAME.pt");
  // One value each, because models may follow.
  files->type_name("FILE")->expected(1)->take_all()->allow_extra_args(false);
  command.add_option("--input", options->specs, "an argument (SPEC, see below); once for each argument")
      ->type_name("SPEC")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->excludes(files);
  command
      .add_option("--seed", options->seed,
                  "seed of random SPECs and of the model's random numbers (what the CASES file says, else 0)")
      ->type_name("N");
  std::string peers_help = "executors to compare with, with commas between (all):";
  for (const peers::PeerInfo& peer : peers::peer_list()) {
    peers_help += std::string("\n  ") + peer.name + ": " + peer.help;
  }
  command.add_option("--against", options->against, peers_help)->type_name("NAMES");
  command
      .add_option("--train", options->train,
                  "measure training steps: forward, the mean square of the outputs as loss, backward, and a step of this "
                  "optimizer, sgd or adam")
      ->type_name("OPTIMIZER");
  command
      .add_option("--threads", options->threads,
                  "threads that call the one model at the same time (1); of several, as in 1,2,4, each gets a table")
      ->type_name("N")
      ->expected(1)
      ->delimiter(',')
      ->take_all()
      ->allow_extra_args(false)
      ->check(whole_between(1, 1024));
  add_intra_op_option(command, options->common);
  command.add_option("--seconds", options->seconds, "time in steady state, per model and executor (1)")
      ->type_name("S")
      ->check(between(0.01, 3600));
  command
      .add_option("--processes", options->processes,
                  "repeat the measurement in N processes, since these differ, too (1); the interval is then from process to "
                  "process, of at least 6; also makes first calls in N more processes for each executor, with nothing "
                  "before them, and shows the memory of these")
      ->type_name("N")
      ->check(whole_between(1, 1000));
  command.add_option(kSubjectOption, options->subject)->group("");
  command.add_flag(kAnswersOption, options->answers)->group("");
  command.add_option(kColdOption, options->cold)->group("");
  command.add_flag("--with-grad", options->with_grad,
                   "let autograd record, as run and explain do unless --no-grad is given; otherwise off");
  command.add_option("--rtol", options->rtol, "relative tolerance of the check of results (1e-3; with --autocast 0.03)")
      ->type_name("X")
      ->check(between(0, 1e30));
  command.add_option("--atol", options->atol, "absolute tolerance of the check of results (1e-4; with --autocast 0.03)")
      ->type_name("X")
      ->check(between(0, 1e30));
  command.add_flag("--profile", options->profile,
                   "then record sconce's steps for as long, and show the time of each step and source line; with --train, "
                   "of the plan of the recorded step or, where it has none, of forward and backward plans, as shares of "
                   "the whole training step");
  command.add_option("--html", options->html, "also write the tables and plots of all models as one page")
      ->type_name("FILE");
  command
      .add_option("--baseline", options->baseline,
                  "compare the ratios with those that an earlier `sconce bench --json` wrote to FILE, model by model, and "
                  "exit with 1 if sconce is slower now, by more than 5 percent and beyond both intervals")
      ->type_name("FILE");
  command.add_flag("--progress", options->progress, "show progress even when stderr is no terminal");
  add_frozen_option(command, options->common);
  add_device_option(command, options->common);
  add_autocast_option(command, options->common);
  add_common_options(command, options->common);
  command.footer(
      "Executors take turns, so that the drift of the machine meets all alike. The left columns are ratios to sconce:\n"
      "1.50x means that sconce is 1.5 times faster. `first call`: on a model that was just read, with all that the\n"
      "executor does to it first; `first calls`: calls 1 to 10 together; `steady`: the median afterwards, with its\n"
      "interval from the ratios of single rounds; other processes may differ by some percent more. Results are\n"
      "compared with eager LibTorch's. `memory`: growth of the process by the model and its first calls. A narrow\n"
      "terminal gets fewer columns; --json has them all, and null for what could not be measured. Ctrl-C ends the\n"
      "measuring and shows what is finished; a second one ends the program.\n\n"
      "--profile and --trace-out record calls of one thread after the measurement, in which nothing is recorded. The\n"
      "profile says how far each step is from this machine's limit: docs/performance.md. docs/bench_json.md has the\n"
      "keys of --json.\n\n" +
      std::string(kSpecHelp) +
      "  Sizes of tensors may be ranges: 1..64:x2 is 1, 2, 4 to 64, 1..64:+8 is 1, 9, 17 to 57, and 1..8 all of them.\n"
      "  Each size gets a table, and all of them one at the end; ranges advance together.\n" +
      "\nExamples:\n"
      "  sconce bench resnet18.pt --input 'float32[1,3,224,224]'\n"
      "  sconce bench a.pt b.pt --against jit,eager --seconds 5 --json\n"
      "  sconce bench --input 'float32[8,16]' --input 3 a.pt b.pt\n"
      "  sconce bench resnet18.pt --input 'float32[1..32:x2,3,224,224]' --threads 1,2\n"
      "  sconce bench model.pt --inputs args.pt --threads 4 --intra-op 1\n"
      "  sconce bench resnet18.pt --input 'float32[1,3,224,224]' --processes 6 --against jit,eager\n"
      "  sconce bench a.pt b.pt --html bench.html\n"
      "  sconce bench a.pt --json > old.json; sconce bench a.pt --baseline old.json\n"
      "  sconce bench model.pt --inputs args.pt --against eager --profile --trace-out trace.json\n"
      "\nExit codes: 0 good, 1 sconce's result is wrong, sconce refuses, or is slower than in the baseline, 2 usage or a "
      "bad file, 130 interrupted.");
}

}  // namespace sconce::cli
