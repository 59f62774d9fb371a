// sconce info: what a model has, and what a call of it has to do.
#include "base/exception_message.h"
#include "base/storage_of.h"
#include "report/json.h"
#include "report/number_format.h"
#include "report/table.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/spec.h"

#include "executor/compile.h"
#include "ir/graph.h"
#include "load/function_table.h"

#include <sconce/graph_executor.h>
#include <sconce/step_trace.h>

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace sconce::cli {
namespace {

struct InfoOptions {
  CommonOptions common;
  InputOptions input;
  std::string model;
  std::string method;
};

using Counts = std::vector<std::pair<std::string, size_t>>;  // of operators, the most frequent first

struct MethodInfo {
  std::string name;
  std::string signature;  // "forward(Tensor x, int n=1) -> Tensor"
  Counts operators;       // with all calls inlined
  std::string refusal;    // why sconce runs no call of it; empty if it does
};

// Tensors of one kind. One that has several names counts once.
struct TensorsInfo {
  std::string kind;  // "parameters" or "buffers"
  std::string dtype;
  std::string device;
  size_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;  // of strided ones
};

// What one call has to do at least, once its plans are compiled.
struct CallInfo {
  std::string method;
  double flops = 0;
  double bytes = 0;
  uint64_t steps = 0;
  uint64_t unknown_steps = 0;  // whose work is not known
};

std::string signature_of(const std::string& name, const c10::FunctionSchema& schema) {
  std::string text = name + "(";
  for (size_t i = 1; i < schema.arguments().size(); ++i) {  // the first is the module
    const c10::Argument& argument = schema.arguments()[i];
    std::ostringstream value;
    if (argument.default_value()) {
      value << "=" << *argument.default_value();
    }
    text += (i == 1 ? "" : ", ") + argument.type()->annotation_str() + " " + argument.name() + value.str();
  }
  text += ") -> ";
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    text += (i == 0 ? "" : ", ") + schema.returns()[i].type()->annotation_str();
  }
  return text;
}

Counts operators_of(const Graph& graph) {
  std::map<std::string, size_t> found;
  for_each_node(graph.body(), [&](const Node* node) {
    if (node->schema() != nullptr) {
      ++found[node->kind().toQualString()];
    }
  });
  Counts counts(found.begin(), found.end());
  std::ranges::stable_sort(counts, [](const auto& a, const auto& b) { return a.second > b.second; });
  return counts;
}

MethodInfo info_of(const torch::jit::Method& method, FunctionTable& functions, const Options& settings) {
  MethodInfo info{.name = method.name(), .signature = signature_of(method.name(), method.function().getSchema())};
  CompileSettings compile(settings);
  compile.functions = &functions;
  const auto source = functions.graph_of(method.function());
  if (!source) {
    info.refusal = to_string(source.refusal());
    return info;
  }
  try {
    const auto stages = show_stages((*source)->clone(), compile, [&](std::string_view stage, const Graph& graph) {
      if (stage == "inline") {
        info.operators = operators_of(graph);
      }
      return stage != "inline";
    });
    info.refusal = stages ? "" : to_string(stages.refusal());
  } catch (const c10::Error& failure) {
    info.refusal = plain_message(failure);
  }
  return info;
}

std::vector<TensorsInfo> tensors_of(const torch::jit::Module& module) {
  std::map<std::tuple<std::string, std::string, std::string>, TensorsInfo> found;
  // Memory, and which part of it: a tensor with two names is loaded as two tensors.
  std::set<std::tuple<const void*, int64_t, int64_t>> seen;
  const auto add = [&](const std::string& kind, const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return;
    }
    const bool has_memory = tensor.layout() == c10::kStrided && storage_of(tensor) != nullptr;
    const auto part =
        has_memory ? std::tuple<const void*, int64_t, int64_t>(storage_of(tensor), tensor.storage_offset(), tensor.numel())
                   : std::tuple<const void*, int64_t, int64_t>(tensor.unsafeGetTensorImpl(), 0, 0);
    if (!seen.insert(part).second) {
      return;
    }
    const std::string dtype = c10::toString(tensor.scalar_type());
    const std::string device = tensor.device().str();
    TensorsInfo& info = found[{kind, dtype, device}];
    info.kind = kind;
    info.dtype = dtype;
    info.device = device;
    ++info.tensors;
    info.elements += static_cast<uint64_t>(tensor.numel());
    info.bytes += has_memory ? tensor.nbytes() : 0;
  };
  for (const at::Tensor& parameter : module.parameters()) {
    add("parameters", parameter);
  }
  for (const at::Tensor& buffer : module.buffers()) {
    add("buffers", buffer);
  }
  std::vector<TensorsInfo> all;
  for (auto each = found.rbegin(); each != found.rend(); ++each) {  // parameters first
    all.push_back(std::move(each->second));
  }
  return all;
}

// Calls the method, which may change the model, until its plans are compiled, and then once more.
CallInfo info_of_call(const Module& model, const InfoOptions& options) {
  const Call call = read_call(options.input, options.method);
  const std::vector<c10::IValue> arguments = fit_call(model.script_module(), call, options.common);
  GraphExecutor& executor = executor_of(model, call.method);
  const at::NoGradGuard no_grad;
  const auto run = [&] {
    at::manual_seed(call.seed);
    torch::jit::Stack stack = deep_copy(arguments);
    executor.run(stack);
  };
  constexpr int kCallsBefore = 3;  // the first ask for a specialized plan, and the next for its kernels
  for (int phase = 0; phase < 2; ++phase) {
    for (int i = 0; i < kCallsBefore; ++i) {
      run();
    }
    executor.wait_for_compiles();
  }
  StepTrace trace;
  run();
  CallInfo info{.method = call.method};
  for (const StepTiming& step : trace.timings()) {
    info.steps += step.runs;
    info.unknown_steps += step.work ? 0 : step.runs;
    if (step.work) {
      info.flops += step.work->flops * static_cast<double>(step.runs);
      info.bytes += step.work->bytes * static_cast<double>(step.runs);
    }
  }
  return info;
}

Json to_json(const CallInfo& call) {
  return Json{{"method", call.method},
              {"flops", call.flops},
              {"bytes", call.bytes},
              {"steps", call.steps},
              {"unknown_steps", call.unknown_steps}};
}

void print_call(const CallInfo& call) {
  std::cout << "\na call of " << call.method << ": " << format_si(call.flops) << "FLOP, " << format_bytes(call.bytes)
            << " read and written, in " << format_count(call.steps) << " steps\n";
  if (call.unknown_steps > 0) {
    std::cout << "  without " << format_count(call.unknown_steps) << " steps whose work is not known\n";
  }
}

Json to_json(const MethodInfo& method) {
  Json operators = Json::object();
  for (const auto& [name, times] : method.operators) {
    operators[name] = times;
  }
  return Json{{"name", method.name},
              {"signature", method.signature},
              {"operators", operators},
              {"refusal", method.refusal.empty() ? Json() : Json(method.refusal)}};
}

Json to_json(const TensorsInfo& tensors) {
  return Json{{"kind", tensors.kind},       {"dtype", tensors.dtype},       {"device", tensors.device},
              {"tensors", tensors.tensors}, {"elements", tensors.elements}, {"bytes", tensors.bytes}};
}

void print_tensors(const std::vector<TensorsInfo>& all) {
  if (all.empty()) {
    std::cout << "\nno parameters and no buffers\n";
    return;
  }
  Table table(
      {{"tensors", Align::kLeft}, {"dtype", Align::kLeft}, {"device", Align::kLeft}, {"number"}, {"elements"}, {"memory"}});
  for (const TensorsInfo& each : all) {
    table.add_row({each.kind, each.dtype, each.device, format_count(each.tensors), format_count(each.elements),
                   format_bytes(static_cast<double>(each.bytes))});
  }
  std::cout << "\n" << table.render();
}

void print_method(const MethodInfo& method) {
  std::cout << "\n" << method.signature << "\n";
  if (!method.refusal.empty()) {
    std::cout << "  sconce does not run it: " << method.refusal << "\n";
    return;
  }
  Table table({{"  operator", Align::kLeft}, {"times"}});
  for (const auto& [name, times] : method.operators) {
    table.add_row({"  " + name, format_count(times)});
  }
  std::cout << (method.operators.empty() ? "  no operators\n" : table.render());
}

int show_info(const InfoOptions& options) {
  const Options settings = prepare(options.common);
  const Module model = load_model(options.model, settings);
  const torch::jit::Module& module = model.script_module();
  FunctionTable functions;
  std::vector<MethodInfo> methods;
  for (const torch::jit::Method& method : module.get_methods()) {
    methods.push_back(info_of(method, functions, settings));
  }
  const std::vector<TensorsInfo> tensors = tensors_of(module);
  const bool has_call = !options.input.file.empty() || !options.input.specs.empty();
  const std::optional<CallInfo> call = has_call ? std::optional(info_of_call(model, options)) : std::nullopt;
  const std::string name = module.type()->name()->name();
  const uint64_t bytes = std::filesystem::file_size(options.model);
  if (options.common.json) {
    Json all{{"model", options.model},           {"class", name},
             {"training", module.is_training()}, {"file_bytes", bytes},
             {"methods", Json::array()},         {"tensors", Json::array()}};
    for (const MethodInfo& method : methods) {
      all["methods"].push_back(to_json(method));
    }
    for (const TensorsInfo& each : tensors) {
      all["tensors"].push_back(to_json(each));
    }
    if (call) {
      all["call"] = to_json(*call);
    }
    std::cout << json_text(all);
    return kGood;
  }
  std::cout << options.model << ": " << name << " in " << (module.is_training() ? "training" : "evaluation") << " mode, "
            << format_bytes(static_cast<double>(bytes)) << "\n";
  print_tensors(tensors);
  std::ranges::for_each(methods, print_method);
  if (call) {
    print_call(*call);
  }
  return kGood;
}

}  // namespace

void add_info_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App& command = add_command(app, chosen, "info", "Show a model's methods, arguments, operators, parameters and size",
                                  options, show_info);
  command.add_option("MODEL", options->model, "what torch.jit.script(model).save(path) wrote")->required();
  command.add_option("--method", options->method, "the method to call (forward, or what the CASES file names)")
      ->type_name("M");
  add_input_options(command, options->input);
  add_frozen_option(command, options->common);
  add_common_options(command, options->common);
  command.footer(
      "Operators are counted with all calls inlined; one in a loop or a branch counts once. A tensor with several names\n"
      "counts once. Calls nothing, unless there are arguments: then a few calls, without gradients, show what one has to\n"
      "do (docs/performance.md, 'How far a step is from the machine's limit'). 'sconce explain' shows what runs.\n\n" +
      std::string(kSpecHelp) +
      "\nExamples:\n  sconce info resnet18.pt\n  sconce info resnet18.pt --json\n"
      "  sconce info resnet18.pt --frozen --input 'float32[1,3,224,224]'\n\nExit codes: 0 good, 1 sconce refuses the "
      "model, 2 usage or a bad file.");
}

}  // namespace sconce::cli
