// sconce run: runs a model, and shows its result or writes it to a file.
#include "base/exception_message.h"
#include "report/number_format.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/commands/missing_kernels.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/ui/percentile.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/describe.h"
#include "tools/sconce/values/spec.h"
#include "tools/sconce/values/torch_file.h"
#include "tools/sconce/values/write_file.h"

#include <ATen/Context.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/jit/api/module.h>

#include <chrono>
#include <exception>
#include <iostream>
#include <latch>
#include <thread>

namespace sconce::cli {
namespace {

struct RunOptions {
  CommonOptions common;
  InputOptions inputs;
  std::string model;
  std::string method;
  std::string output;
  size_t repeat = 1;
  size_t threads = 1;
  bool no_grad = false;
};

// The results of one thread.
struct ThreadResult {
  c10::IValue first_output;
  std::vector<double> seconds;  // per call
  std::exception_ptr failure;
};

// Calls the model `repeat` times on the calling thread, each time with its own copy of the arguments.
void call_repeatedly(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments,
                     const RunOptions& options, ThreadResult& result) {
  const torch::autograd::AutoGradMode grad_mode(!options.no_grad);
  for (size_t i = 0; i < options.repeat; ++i) {
    std::vector<c10::IValue> copies = deep_copy(arguments);
    const auto start = std::chrono::steady_clock::now();
    const AutocastRegion autocast;
    c10::IValue output =
        call.method == "forward" ? module.forward(std::move(copies)) : module.run_method(call.method, std::move(copies));
    result.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (i == 0) {
      result.first_output = std::move(output);
    }
  }
}

// All threads start at once, so that their first calls coincide.
std::vector<ThreadResult> call_on_threads(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments,
                                          const RunOptions& options) {
  std::vector<ThreadResult> results(options.threads);
  std::latch start(static_cast<std::ptrdiff_t>(options.threads));
  const auto work = [&](ThreadResult& result) {
    start.arrive_and_wait();
    try {
      call_repeatedly(module, call, arguments, options, result);
    } catch (const std::exception&) {
      result.failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < options.threads; ++i) {
    others.emplace_back(work, std::ref(results[i]));
  }
  work(results[0]);
  for (std::thread& thread : others) {
    thread.join();
  }
  for (const ThreadResult& result : results) {
    if (result.failure) {
      std::rethrow_exception(result.failure);
    }
  }
  return results;
}

void write_output(const c10::IValue& output, const std::string& path) {
  output.visit([](const c10::IValue& value) {
    if (value.isObject()) {
      throw RefusedError("--output: the output holds an object of class " + value.toObjectRef().name() +
                         ", which no reader of the file would know; return its fields instead");
    }
    return false;
  });
  std::vector<char> bytes;
  try {
    bytes = torch_file(deep_copy(output));  // the copy has no gradient graph, which a file cannot hold
  } catch (const c10::Error& failure) {
    throw RefusedError("the output cannot be written to a file: " + one_line_message(failure));
  }
  write_file(path, {bytes.data(), bytes.size()});
}

Json report(const RunOptions& options, const Call& call, const std::vector<ThreadResult>& results, double wall_seconds) {
  Json json{{"model", options.model}, {"method", call.method}, {"output", to_json(results[0].first_output)}};
  if (!options.output.empty()) {
    json["output_file"] = options.output;
  }
  std::vector<double> later;
  size_t calls = 0;
  for (const ThreadResult& result : results) {
    calls += result.seconds.size();
    later.insert(later.end(), result.seconds.begin() + 1, result.seconds.end());
  }
  json["calls"] = calls;
  json["threads"] = results.size();
  json["first_call_seconds"] = results[0].seconds.front();
  if (!later.empty()) {
    json["median_seconds"] = ui::median(later);
    json["p90_seconds"] = ui::percentile(later, 0.9);
    json["calls_per_second"] = static_cast<double>(calls) / wall_seconds;
  }
  return json;
}

void print_timing(const Json& json) {
  std::cout << "first call " << format_duration(json["first_call_seconds"]);
  if (json.contains("median_seconds")) {
    std::cout << "; later calls: median " << format_duration(json["median_seconds"]) << ", p90 "
              << format_duration(json["p90_seconds"]) << "; " << json["calls"] << " calls";
    if (json["threads"] > 1) {
      std::cout << " on " << json["threads"] << " threads";
    }
    std::cout << ", " << format_rate(json["calls_per_second"]) << " calls/s";
  }
  std::cout << "\n";
}

int run(const RunOptions& options) {
  const Options settings = prepare(options.common);
  warn_of_missing_kernels(settings);
  if (!options.output.empty()) {
    expect_writable(options.output);
  }
  const Module module = load_model(options.model, settings);
  const Call call = read_call(options.inputs, options.method);
  const std::vector<c10::IValue> arguments = fit_call(module.script_module(), call, options.common);
  executor_of(module, call.method);

  at::manual_seed(call.seed);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<ThreadResult> results = call_on_threads(module, call, arguments, options);
  const double wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  if (!options.output.empty()) {
    write_output(results[0].first_output, options.output);
  }
  const Json json = report(options, call, results, wall_seconds);
  if (options.common.json) {
    std::cout << json_text(json);
    return kGood;
  }
  std::cout << describe(results[0].first_output);
  if (!options.output.empty()) {
    std::cout << "written to " << options.output << "\n";
  }
  if (options.repeat > 1 || options.threads > 1) {
    print_timing(json);
  }
  return kGood;
}

}  // namespace

void add_run_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<RunOptions>();
  CLI::App& command = add_command(app, chosen, "run", "Run a model and show what it returns", options, run);
  command.add_option("MODEL", options->model, "what torch.jit.script(model).save(path) wrote")->required();
  command.add_option("--method", options->method, "the method to call (forward, or what the CASES file names)")
      ->type_name("M");
  add_input_options(command, options->inputs);
  command.add_option("--output", options->output, "write the result; torch.load and --inputs read it")->type_name("FILE");
  command.add_option("--repeat", options->repeat, "calls, each with fresh copies of the arguments (1)")
      ->type_name("N")
      ->check(whole_between(1, 1e9));
  command.add_option("--threads", options->threads, "threads that call the one module at the same time (1)")
      ->type_name("N")
      ->check(whole_between(1, 1024));
  command.add_flag("--no-grad", options->no_grad,
                   "record nothing for gradients, as in inference, and as bench does unless --with-grad is given");
  add_frozen_option(command, options->common);
  add_device_option(command, options->common);
  add_intra_op_option(command, options->common);
  add_autocast_option(command, options->common);
  add_common_options(command, options->common);
  command.footer(std::string(kSpecHelp) +
                 "\nExamples:\n"
                 "  sconce run model.pt --input 'float32[1,3,224,224]'\n"
                 "  sconce run model.pt --method encode --input 'int64[1,128]=0..30000' --json\n"
                 "  sconce run model.pt --inputs args.pt --output result.pt\n"
                 "  sconce run model.pt --inputs args.pt --repeat 100 --threads 4 --frozen --no-grad\n"
                 "\nExit codes: 0 good, 1 sconce refuses the model, 2 usage, a bad file, or the model raised an error.");
}

}  // namespace sconce::cli
