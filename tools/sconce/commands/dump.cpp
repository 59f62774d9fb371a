// sconce dump: shows a model's graph after each stage.
#include "base/exception_message.h"
#include "base/nearest_name.h"
#include "report/json.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/commands/differentiated_plan.h"
#include "tools/sconce/commands/dump_calls.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/report/differentiable_text.h"
#include "tools/sconce/report/dump_page.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/report/graphviz.h"
#include "tools/sconce/values/spec.h"
#include "tools/sconce/values/write_file.h"

#include "analysis/dot.h"
#include "executor/compile.h"
#include "ir/text/print.h"
#include "load/function_table.h"
#include "passes/freeze/module_constants.h"
#include "pipeline/graph_file.h"

#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>

namespace sconce::cli {
namespace {

struct DumpOptions {
  CommonOptions common;
  InputOptions inputs;
  std::string model;
  std::string method;
  std::string stage;  // empty: the last one, from which plans are made
  std::string format = "ir";
  std::string output;
};

struct StageInfo {
  const char* name;
  const char* help;
};
constexpr std::array kStages = {
    StageInfo{"load", "as it was converted from the file"},
    StageInfo{"inline", "calls of methods and functions inlined, those of one function simplified together"},
    StageInfo{"freeze", "attributes that no method changes are constants, what they decide is done; with --frozen alone"},
    StageInfo{"required", "after the required passes: all that is done when the options switch optimization off"},
    StageInfo{"optimize", "after the optimizing passes: what the first plan runs"},
};

// A stage of the plan that calls with these arguments get, if they record gradients.
constexpr StageInfo kDifferentiate{"differentiate",
                                   "of a plan for calls that record gradients: differentiable subgraphs f, their gradients "
                                   "df, saved values; with arguments"};

// Not a stage of the graph: the arena of the plan.
constexpr StageInfo kMemory{"memory", "where the tensors of a call lie, and how long; with arguments and --format svg"};

struct StageGraph {
  std::string stage;
  std::shared_ptr<const Graph> graph;
  std::optional<DifferentiatedPlan> plan = {};  // of stage differentiate
};

bool has_arguments(const DumpOptions& options) { return !options.inputs.file.empty() || !options.inputs.specs.empty(); }

template <typename T>
T& expect(Expected<T>& result) {
  if (!result) {
    throw RefusedError(to_string(result.refusal()));
  }
  return *result;
}

// Adds stage differentiate. If all stages are requested and there is no such plan, a note tells why it is left out.
void add_differentiated(std::vector<StageGraph>& graphs, bool is_requested, const torch::jit::Module& module,
                        const Call& call, const CommonOptions& common, const Options& settings) {
  std::string why_not;
  try {
    std::vector<c10::IValue> arguments = fit_call(module, call, common);
    arguments.insert(arguments.begin(), module._ivalue());
    const auto inlined = std::find_if(graphs.rbegin(), graphs.rend(), [](const StageGraph& each) {
      return each.stage == "freeze" || each.stage == "inline";
    });
    auto plan = differentiated_plan(*inlined->graph, *graphs.back().graph, std::move(arguments), call.seed, settings);
    if (plan) {
      graphs.push_back({kDifferentiate.name, plan->graph, std::move(*plan)});  // from left to right
      return;
    }
    why_not = call.method + ": " + plan.refusal().reason;
  } catch (const std::exception& failure) {  // of the call, whose other stages need no arguments
    if (is_requested) {
      throw;
    }
    why_not = one_line_message(failure);
  }
  if (is_requested) {
    throw RefusedError(std::string("--stage ") + kDifferentiate.name + ": " + why_not);
  }
  std::cerr << "sconce: note: stage " << kDifferentiate.name << " is left out: " << why_not << "\n";
}

// Returns the graphs of the stages up to the last one requested.
std::vector<StageGraph> graphs_of(const torch::jit::Module& module, const DumpOptions& options, const Call& call,
                                  const std::string& stage, const Options& settings) {
  FunctionTable functions;
  auto source = functions.graph_of(module.get_method(call.method).function());
  CompileSettings compile(settings);
  compile.functions = &functions;
  std::optional<ModuleConstants> constants;
  if (settings.frozen()) {
    auto found = ModuleConstants::find(module._ivalue(), settings.preserved(), functions);
    compile.constants = &constants.emplace(std::move(expect(found)));
  }
  std::vector<StageGraph> graphs;
  try {
    auto shown = show_stages(expect(source)->clone(), compile, [&](std::string_view name, const Graph& graph) {
      graphs.push_back({std::string(name), graph.clone()});
      return name != stage;
    });
    expect(shown);
  } catch (const c10::Error& failure) {
    throw RefusedError(plain_message(failure));
  }
  if (stage == kDifferentiate.name || (stage == "all" && has_arguments(options))) {
    add_differentiated(graphs, stage != "all", module, call, options.common, settings);
  }
  std::erase_if(graphs, [&](const StageGraph& each) { return stage != "all" && each.stage != stage; });
  return graphs;
}

void expect_known(const std::string& option, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) == known.end()) {
    throw UserError(option + ": no '" + value + "'" + did_you_mean(value, known));
  }
}

std::string title_line(const StageGraph& stage, const std::string& method) {
  return "# " + method + ", " + stage.stage + "\n" + (stage.plan ? describe_subgraphs(*stage.plan) : "");
}

const char* help_of(const std::string& stage) {
  const auto* info = std::find_if(kStages.begin(), kStages.end(), [&](const auto& each) { return each.name == stage; });
  return info != kStages.end() ? info->help : kDifferentiate.help;
}

// Writes a file that `sconce opt` reads, with the graph's tensors beside it. /dev/stdout has no place beside it.
bool goes_into_a_graph_file(const DumpOptions& options) {
  std::error_code there_is_none;
  const auto status = std::filesystem::status(options.output, there_is_none);
  return options.format == "ir" && !options.common.json && !options.output.empty() &&
         (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status));
}

std::string text_of(const StageGraph& stage, const std::string& format, const std::string& method) {
  const std::string title = method + ", " + stage.stage;
  if (format == "html") {
    return print(*stage.graph);
  }
  if (format == "ir") {
    return title_line(stage, method) + print(*stage.graph);
  }
  const std::string dot = to_dot(*stage.graph, title);
  return format == "dot" ? dot : draw_svg(dot);
}

// Checks --stage memory. Returns whether it was given.
bool draws_memory(const DumpOptions& options) {
  if (options.stage != kMemory.name) {
    return false;
  }
  if (options.format != "svg") {
    throw UserError("--stage memory: is a picture: add --format svg; 'sconce explain' has the numbers");
  }
  if (!has_arguments(options)) {
    throw UserError("--stage memory: needs arguments, from which sizes are learned; give them with --inputs or --input");
  }
  return true;
}

int dump_model(const DumpOptions& options) {
  expect_known("--format", options.format, {"ir", "dot", "svg", "plan", "html", "kernel"});
  std::vector<std::string> stages = {"all"};
  std::transform(kStages.begin(), kStages.end(), std::back_inserter(stages),
                 [](const StageInfo& stage) { return stage.name; });
  stages.emplace_back(kDifferentiate.name);
  std::vector<std::string> known_stages = stages;
  known_stages.emplace_back(kMemory.name);
  if (!options.stage.empty()) {
    expect_known("--stage", options.stage, known_stages);
  }
  if ((options.format == "plan" || options.format == "kernel") && !options.stage.empty()) {
    throw UserError("--stage " + options.stage + ": --format " + options.format +
                    " shows what is made of the last stage; leave --stage out, or take --format ir");
  }
  if (options.format == "kernel" && !has_arguments(options)) {
    throw UserError("--format kernel: needs arguments, for which kernels are made; give them with --inputs or --input");
  }
  if (options.stage == kDifferentiate.name && !has_arguments(options)) {
    throw UserError("--stage differentiate: needs arguments, for which a plan is made; give them with --inputs or --input");
  }
  if (options.format == "svg" && options.stage == "all") {
    throw UserError("--format svg draws one stage; choose it with --stage (" +
                    join({known_stages.begin() + 1, known_stages.end()}) + ")");
  }
  const bool is_of_memory = draws_memory(options);
  Options settings = prepare(options.common);
  if (options.format == "kernel") {
    settings.compile(CompileMode::kBlocking);
  }
  if (options.stage == "freeze" && !settings.frozen()) {
    throw UserError("--stage freeze: nothing is frozen without --frozen");
  }
  if (!options.output.empty()) {
    expect_writable(options.output);
  }
  const Module module = load_model(options.model, settings);
  const Call call = read_call(options.inputs, options.method);
  expect_method(module.script_module(), call.method);

  const std::string title = std::filesystem::path(options.model).filename().string() + ", " + call.method;
  const auto arguments = [&] { return fit_call(module.script_module(), call, options.common); };
  std::string text;
  Json json = Json::array();
  if (is_of_memory) {
    text = picture_of_memory(module, call, arguments(), title);
    json.push_back(Json{{"stage", kMemory.name}, {"text", text}});
  } else if (options.format == "plan") {
    text = has_arguments(options) ? plans_of(module, call, arguments()) : generic_plan_of(module, call.method);
    json.push_back(Json{{"text", text}});
  } else if (options.format == "kernel") {
    for (const DumpedKernel& kernel : kernels_of(module, call, arguments(), settings.device().value_or(c10::kCPU))) {
      json.push_back(to_json(kernel, json.size()));
      text += (text.empty() ? "" : "\n") + json.back()["text"].get<std::string>();
    }
  } else {
    const std::string last = options.stage.empty() ? kStages.back().name : options.stage;
    const std::vector<StageGraph> graphs = graphs_of(module.script_module(), options, call, last, settings);
    if (graphs.size() == 1 && goes_into_a_graph_file(options)) {
      write_graph_file(options.output, title_line(graphs[0], call.method), *graphs[0].graph);
      return kGood;
    }
    std::vector<StageText> texts;
    for (const StageGraph& stage : graphs) {
      texts.push_back({stage.stage, help_of(stage.stage), stage.graph->node_count(),
                       text_of(stage, options.format, call.method),
                       stage.plan ? columns_of(*stage.plan) : std::vector<SubgraphColumns>()});
    }
    if (options.format == "html") {
      text = to_page(title, texts);
      json.push_back(Json{{"text", text}});
    } else {
      for (size_t i = 0; i < texts.size(); ++i) {
        const StageText& each = texts[i];
        text += (text.empty() ? "" : "\n") + each.text;
        json.push_back(Json{{"stage", each.stage}, {"nodes", each.nodes}, {"text", each.text}});
        if (graphs[i].plan) {
          json.back()["subgraphs"] = to_json(*graphs[i].plan);
        }
      }
    }
  }
  if (options.common.json) {
    text = json_text(
        {{"model", options.model}, {"method", call.method}, {"format", options.format}, {"dumps", std::move(json)}});
  }
  if (options.output.empty()) {
    std::cout << text;
  } else {
    write_file(options.output, text);
  }
  return kGood;
}

}  // namespace

void add_dump_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App& command =
      add_command(app, chosen, "dump", "Show a model's graph at the stages of its way to a plan", options, dump_model);
  command.add_option("MODEL", options->model, "what torch.jit.script(model).save(path) wrote")->required();
  command.add_option("--method", options->method, "the method to show (forward, or what the CASES file names)")
      ->type_name("M");
  add_input_options(command, options->inputs);
  std::string stage_help = "all, or one of these (" + std::string(kStages.back().name) + "):";
  for (const StageInfo& stage : kStages) {
    stage_help += std::string("\n  ") + stage.name + ": " + stage.help;
  }
  for (const StageInfo& stage : {kDifferentiate, kMemory}) {
    stage_help += std::string("\n  ") + stage.name + ": " + stage.help;
  }
  command.add_option("--stage", options->stage, stage_help)->type_name("NAME");
  command
      .add_option(
          "--format", options->format,
          "ir: text (ir); dot; svg: drawn by Graphviz, but for memory; html: a page that marks what each stage "
          "changes; plan: the steps that run; kernel: the compiled kernels of calls, without gradients and with, and "
          "of backward, as program, LLVM IR and assembly, or CUDA C++; with arguments")
      ->type_name("FORMAT");
  command
      .add_option("--output", options->output,
                  "write to this file instead of stdout; tensors of one graph as ir: to FILE.constants.pt")
      ->type_name("FILE");
  add_frozen_option(command, options->common);
  add_device_option(command, options->common);
  add_common_options(command, options->common);
  command.footer("Arguments show which argument specs the plan has met.\n\n" + std::string(kSpecHelp) +
                 "\n"
                 "Examples:\n"
                 "  sconce dump model.pt\n"
                 "  sconce dump model.pt --stage all > stages.ir\n"
                 "  sconce dump model.pt --stage inline --format svg --output graph.svg\n"
                 "  sconce dump model.pt --stage differentiate --inputs args.pt --format html --output training.html\n"
                 "  sconce dump model.pt --stage memory --format svg --inputs args.pt --output memory.svg\n"
                 "  sconce dump model.pt --frozen --output frozen.ir\n"
                 "  sconce dump model.pt --format plan --input 'float32[1,3,224,224]'\n"
                 "  sconce dump model.pt --format kernel --input 'float32[64,256]'\n"
                 "  sconce dump model.pt --format kernel --input 'float32[64,256]' --device cuda\n"
                 "\nExit codes: 0 good, 1 sconce refuses the model, 2 usage or a bad file.");
}

}  // namespace sconce::cli
