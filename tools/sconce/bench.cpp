// sconce bench: executors side by side in one process.
#include "tools/sconce/commands.h"
#include "tools/sconce/errors.h"
#include "tools/sconce/fit_arguments.h"
#include "tools/sconce/json.h"
#include "tools/sconce/measure.h"
#include "tools/sconce/model_options.h"
#include "tools/sconce/sconce_peer.h"
#include "tools/sconce/spec.h"
#include "tools/sconce/ui/nearest_name.h"
#include "tools/sconce/ui/number_format.h"
#include "tools/sconce/ui/percentile.h"
#include "tools/sconce/ui/progress_bar.h"
#include "tools/sconce/ui/table.h"

#include "load/load_module.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

namespace sconce::cli {
namespace {

struct BenchOptions {
  CommonOptions common;
  std::vector<std::string> models;
  std::string method;
  std::vector<std::string> input_files;
  std::vector<std::string> specs;
  uint64_t seed = 0;
  std::string against;
  std::string train;
  size_t threads = 1;
  int intra_op = 0;
  double seconds = 1.0;
  bool with_grad = false;
  bool progress = false;
  double rtol = 1e-3;
  double atol = 1e-4;
};

// How the time of an executor relates to sconce's: above 1, sconce is faster.
struct Ratios {
  double steady = NAN;
  double first_call = NAN;
  double first_calls = NAN;
};

double total(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum;
}

Ratios ratios_of(const Measurement& row, const Measurement& sconce) {
  if (row.not_available || sconce.not_available) {
    return {};
  }
  return {ui::median(row.steady) / ui::median(sconce.steady), row.first_calls[0] / sconce.first_calls[0],
          total(row.first_calls) / total(sconce.first_calls)};
}

std::vector<Contestant> contestants_of(const std::string& against, const Options& settings) {
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
  for (const std::string& name : names.empty() ? known : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw UserError("--against: no executor '" + name + "'" + ui::did_you_mean(name, known));
    }
    contestants.push_back({name, [name] { return peers::make_peer(name); }});
  }
  return contestants;
}

// The inputs of the index-th model: its own file, the one file, the SPECs, or the CASES file beside it.
InputOptions inputs_of(const BenchOptions& options, size_t index) {
  InputOptions inputs;
  inputs.specs = options.specs;
  inputs.seed = options.seed;
  if (!options.input_files.empty()) {
    inputs.file = options.input_files[options.input_files.size() == 1 ? 0 : index];
  } else if (options.specs.empty()) {
    const std::filesystem::path beside = std::filesystem::path(options.models[index]).replace_extension(".cases.pt");
    inputs.file = std::filesystem::exists(beside) ? beside.string() : "";
  }
  return inputs;
}

std::string title_of(const BenchOptions& options, size_t index, const MeasureSettings& settings) {
  std::string arguments;
  for (const c10::IValue& argument : settings.arguments) {
    arguments += arguments.empty() ? "" : ", ";
    arguments += argument.isTensor() ? describe_tensor_type(argument.toTensor()) : kind_of_value(argument);
  }
  return options.models[index] + ": " + settings.method + "(" + arguments + "), " + std::to_string(settings.threads) +
         (settings.threads == 1 ? " calling thread, " : " calling threads, ") + std::to_string(at::get_num_threads()) +
         " intra-op";
}

std::vector<Measurement> measure_model(const BenchOptions& options, size_t index, const Options& settings,
                                       MeasureSettings& measured) {
  const Call call = read_call(inputs_of(options, index), options.method);
  const std::string& path = options.models[index];
  measured.load = [path, device = settings.device()] { return load_script_module(path, device); };
  measured.method = call.method;
  measured.arguments = fit_call(load_model(path, settings).script_module(), call, options.common);
  measured.seed = call.seed;
  measured.seconds = options.seconds;
  measured.threads = options.threads;
  measured.with_grad = options.with_grad;
  measured.tolerance = {options.rtol, options.atol, /*requires_grad=*/false};

  const std::vector<Contestant> contestants = contestants_of(options.against, settings);
  const auto mode = options.common.json ? ui::ProgressMode::kNever
                    : options.progress  ? ui::ProgressMode::kAlways
                                        : ui::ProgressMode::kAuto;
  ui::ProgressBar bar(std::filesystem::path(path).filename().string(), pieces_of_work(contestants.size(), measured), mode);
  return measure(contestants, measured, [&](const std::string& executor) { bar.advance(executor); });
}

std::string table_of(const std::vector<Measurement>& rows) {
  ui::Table table({{"executor", ui::Align::kLeft},
                   {"steady"},
                   {"first call"},
                   {"first calls"},
                   {"|"},
                   {"median"},
                   {"p90"},
                   {"p99"},
                   {"first call"},
                   {"first calls"},
                   {"calls/s"},
                   {"memory"}});
  std::vector<std::string> notes;
  for (const Measurement& row : rows) {
    if (row.not_available) {
      table.add_row({row.name, "n/a"});
      notes.push_back(row.name + ": n/a: " + *row.not_available);
      continue;
    }
    const Ratios ratios = ratios_of(row, rows.front());
    table.add_row({row.name, ui::format_ratio(ratios.steady), ui::format_ratio(ratios.first_call),
                   ui::format_ratio(ratios.first_calls), "|", ui::format_duration(ui::median(row.steady)),
                   ui::format_duration(ui::percentile(row.steady, 0.9)),
                   ui::format_duration(ui::percentile(row.steady, 0.99)), ui::format_duration(row.first_calls[0]),
                   ui::format_duration(total(row.first_calls)), ui::format_number(row.calls_per_second, 4),
                   ui::format_bytes(row.memory_bytes)});
    if (row.wrong) {
      notes.push_back(row.name + ": WRONG RESULT: " + *row.wrong);
    }
  }
  std::string text = table.render();
  for (const std::string& note : notes) {
    text += note + "\n";
  }
  return text;
}

Json json_of(const Measurement& row, const Measurement& sconce) {
  Json json{{"executor", row.name}};
  if (row.not_available) {
    json["not_available"] = *row.not_available;
    return json;
  }
  const Ratios ratios = ratios_of(row, sconce);
  json["ratio_steady"] = json_number(ratios.steady);
  json["ratio_first_call"] = json_number(ratios.first_call);
  json["ratio_first_calls"] = json_number(ratios.first_calls);
  json["median_seconds"] = ui::median(row.steady);
  json["p90_seconds"] = ui::percentile(row.steady, 0.9);
  json["p99_seconds"] = ui::percentile(row.steady, 0.99);
  json["calls"] = row.steady.size();
  json["first_calls_seconds"] = row.first_calls;
  json["calls_per_second"] = row.calls_per_second;
  json["memory_bytes"] = row.memory_bytes;
  json["correct"] = !row.wrong;
  if (row.wrong) {
    json["wrong"] = *row.wrong;
  }
  return json;
}

// Geometric means over the models, of executors that ran them all.
std::string summary_of(const std::vector<std::vector<Measurement>>& all) {
  ui::Table table(
      {{"all " + std::to_string(all.size()) + " models", ui::Align::kLeft}, {"steady"}, {"first call"}, {"first calls"}});
  for (size_t i = 1; i < all.front().size(); ++i) {
    Ratios logs = {0, 0, 0};
    for (const auto& rows : all) {
      const Ratios ratios = ratios_of(rows[i], rows.front());
      logs = {logs.steady + std::log(ratios.steady), logs.first_call + std::log(ratios.first_call),
              logs.first_calls + std::log(ratios.first_calls)};
    }
    const auto mean = [&](double sum) { return ui::format_ratio(std::exp(sum / static_cast<double>(all.size()))); };
    table.add_row({all.front()[i].name, mean(logs.steady), mean(logs.first_call), mean(logs.first_calls)});
  }
  return table.render();
}

int bench(const BenchOptions& options) {
  if (!options.train.empty()) {
    throw RefusedError("--train: this build of sconce cannot measure training yet; leave it out");
  }
  if (options.input_files.size() > 1 && options.input_files.size() != options.models.size()) {
    throw UserError("--inputs: " + std::to_string(options.input_files.size()) + " files for " +
                    std::to_string(options.models.size()) + " models; give one for all or one for each");
  }
  const Options settings = prepare(options.common);
  contestants_of(options.against, settings);  // a wrong name shows before anything is measured
  if (options.intra_op > 0) {
    at::set_num_threads(options.intra_op);
  }
  Json json = Json::array();
  bool good = true;
  std::vector<std::vector<Measurement>> all;
  for (size_t index = 0; index < options.models.size(); ++index) {
    MeasureSettings measured;
    all.push_back(measure_model(options, index, settings, measured));
    const std::vector<Measurement>& rows = all.back();
    good = good && !rows.front().not_available && !rows.front().wrong;
    if (options.common.json) {
      Json executors = Json::array();
      for (const Measurement& row : rows) {
        executors.push_back(json_of(row, rows.front()));
      }
      json.push_back(Json{{"model", options.models[index]},
                          {"method", measured.method},
                          {"threads", measured.threads},
                          {"intra_op_threads", at::get_num_threads()},
                          {"executors", std::move(executors)}});
    } else {
      std::cout << title_of(options, index, measured) << "\n" << table_of(rows) << std::endl;
    }
  }
  if (options.common.json) {
    std::cout << json_text(json);
  } else if (all.size() > 1) {
    std::cout << summary_of(all);
  }
  return good ? kGood : kMismatchOrRefusal;
}

}  // namespace

void add_bench_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App& command = add_command(app, chosen, "bench", "Time sconce and LibTorch's executors side by side", options, bench);
  command.add_option("MODEL", options->models, "models; each gets a table")->required();
  command.add_option("--method", options->method, "the method to call (forward, or what the CASES file names)")
      ->type_name("M");
  CLI::Option* files = command.add_option("--inputs", options->input_files,
                                          "arguments: one file for all models, or one for each; "
                                          "without any, NAME.cases.pt beside NAME.pt");
  files->type_name("FILE");
  command.add_option("--input", options->specs, "arguments, one SPEC each (see below)")->type_name("SPEC")->excludes(files);
  command.add_option("--seed", options->seed, "seed of random SPECs and of the model's random numbers (0)")->type_name("N");
  std::string peers_help = "executors to compare with, with commas between (all):";
  for (const peers::PeerInfo& peer : peers::peer_list()) {
    peers_help += std::string("\n  ") + peer.name + ": " + peer.help;
  }
  command.add_option("--against", options->against, peers_help)->type_name("NAMES");
  command.add_option("--train", options->train, "measure a training step with this optimizer (not yet)")
      ->type_name("OPTIMIZER");
  command.add_option("--threads", options->threads, "threads that call the one model at the same time (1)")
      ->type_name("N")
      ->check(between(1, 1024));
  command.add_option("--intra-op", options->intra_op, "LibTorch's threads inside one operator (as LibTorch chooses)")
      ->type_name("N")
      ->check(between(1, 1024));
  command.add_option("--seconds", options->seconds, "time in steady state, per model and executor (1)")
      ->type_name("S")
      ->check(between(0.01, 3600));
  command.add_flag("--with-grad", options->with_grad, "let autograd record, as in training; otherwise off");
  command.add_option("--rtol", options->rtol, "relative tolerance of the check of results (1e-3)")
      ->type_name("X")
      ->check(between(0, 1e30));
  command.add_option("--atol", options->atol, "absolute tolerance of the check of results (1e-4)")
      ->type_name("X")
      ->check(between(0, 1e30));
  command.add_flag("--progress", options->progress, "show progress even when stderr is no terminal");
  add_common_options(command, options->common);
  command.footer(
      "Executors take turns, so that the drift of the machine meets all alike. The left columns are ratios to sconce:\n"
      "1.50x means that sconce is 1.5 times faster. `first call`: on a model that was just read, with all that the\n"
      "executor does to it first; `first calls`: calls 1 to 10 together; `steady`: the median afterwards. Results are\n"
      "compared with eager LibTorch's. `memory`: growth of the process by the model and its first calls.\n\n" +
      std::string(kSpecHelp) +
      "\nExamples:\n"
      "  sconce bench resnet18.pt --input 'float32[1,3,224,224]'\n"
      "  sconce bench a.pt b.pt --against jit,eager --seconds 5 --json\n"
      "  sconce bench model.pt --inputs args.pt --threads 4 --intra-op 1\n"
      "\nExit codes: 0 good, 1 sconce's result is wrong or sconce refuses, 2 usage or a bad file.");
}

}  // namespace sconce::cli
