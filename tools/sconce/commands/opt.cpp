// sconce opt: passes on a graph in text form.
#include "base/nearest_name.h"
#include "report/json.h"
#include "report/number_format.h"
#include "report/table.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/report/text_diff.h"
#include "tools/sconce/values/read_file.h"

#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "pipeline/graph_file.h"
#include "pipeline/pass_runner.h"

#include <iostream>

namespace sconce::cli {
namespace {

struct OptOptions {
  CommonOptions common;
  std::string file;
  std::vector<std::string> passes;
  bool verify_each = false;
  bool diff = false;
};

std::unique_ptr<Graph> read_graph(const std::string& path) {
  const std::string text = read_text_file(path);
  if (text.empty()) {
    throw UserError(path + ": is empty");
  }
  if (text.starts_with("PK")) {
    throw UserError(path + ": is an archive, not a graph in text form; 'sconce dump " + path +
                    " --stage inline' prints its graph");
  }
  const std::vector<c10::IValue> constants = read_graph_constants(path);
  std::unique_ptr<Graph> graph;
  try {
    graph = parse(text, {.constants = &constants});
  } catch (const ParseError& failure) {
    throw UserError(path + ":" + failure.what());
  }
  const std::vector<Violation> violations = find_violations(*graph);
  if (!violations.empty()) {
    std::string message = path + ": not a well-formed graph";
    for (const Violation& violation : violations) {
      message += "\n" + std::string(violation.check) + ": " + violation.message;
    }
    throw UserError(message);
  }
  return graph;
}

// Finds a pass of sconce or of a plug-in.
struct ChosenPass {
  const PassInfo* own = nullptr;
  const CustomPass* custom = nullptr;
};

std::vector<ChosenPass> find_passes(const std::vector<std::string>& names, const PassPipeline& pipeline) {
  std::vector<std::string> known;
  for (const PassInfo& pass : all_passes()) {
    known.emplace_back(pass.name);
  }
  for (const CustomPass& pass : pipeline.custom_passes()) {
    known.push_back(pass.name);
  }
  std::vector<ChosenPass> passes;
  for (const std::string& name : names) {
    if (name.empty()) {
      throw UserError("--passes: a name is missing ('sconce passes' lists them)");
    }
    ChosenPass chosen{.own = find_pass(name)};
    for (const CustomPass& pass : pipeline.custom_passes()) {
      chosen.custom = pass.name == name ? &pass : chosen.custom;
    }
    if (chosen.own == nullptr && chosen.custom == nullptr) {
      throw UserError("no pass '" + name + "'" + did_you_mean(name, known) + " ('sconce passes' lists them)");
    }
    passes.push_back(chosen);
  }
  return passes;
}

int opt(const OptOptions& options) {
  const Options prepared = prepare(options.common);  // before the text is read, because its operators may be in a library
  const std::vector<ChosenPass> passes = find_passes(options.passes, prepared.passes());
  std::unique_ptr<Graph> graph = read_graph(options.file);
  PassRunner runner = options.verify_each ? PassRunner(PassRunner::Verify::kAfterChange) : PassRunner();
  std::vector<std::string> diffs;  // by pass
  for (const ChosenPass& pass : passes) {
    const std::string before = options.diff ? print(*graph) : "";
    if (pass.own != nullptr) {
      runner.run(*pass.own, *graph);
    } else {
      runner.run_custom(*pass.custom, graph);
    }
    diffs.push_back(options.diff ? unified_diff(diff_texts(before, print(*graph))) : "");
  }
  if (!runner.refusals().empty()) {
    throw RefusedError(runner.refusals().front().what + ": " + runner.refusals().front().reason);
  }
  if (options.common.json) {
    Json timings = Json::array();
    for (size_t i = 0; i < runner.timings().size(); ++i) {
      const PassTiming& timing = runner.timings()[i];
      timings.push_back(Json{{"pass", timing.pass}, {"seconds", timing.seconds}, {"changed", timing.changed}});
      if (options.diff) {
        timings.back()["diff"] = diffs[i];
      }
    }
    std::cout << json_text({{"file", options.file}, {"passes", std::move(timings)}, {"graph", print(*graph)}});
    return kGood;
  }
  if (options.diff) {
    for (size_t i = 0; i < diffs.size(); ++i) {
      if (!diffs[i].empty()) {
        const std::string& pass = options.passes[i];
        std::cout << "--- before " << pass << "\n+++ after " << pass << "\n" << diffs[i];
      }
    }
  } else {
    std::cout << print(*graph);
  }
  std::cout << std::flush;
  Table table({{"pass", Align::kLeft}, {"time"}, {"changed", Align::kLeft}});
  for (const PassTiming& timing : runner.timings()) {
    table.add_row({timing.pass, format_duration(timing.seconds), timing.changed ? "yes" : "no"});
  }
  std::cerr << table.render();
  return kGood;
}

}  // namespace

void add_opt_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<OptOptions>();
  CLI::App& command = add_command(app, chosen, "opt", "Run passes on a graph in text form", options, opt);
  command.add_option("FILE", options->file, "a graph, as 'sconce dump' prints it")->required();
  command.add_option("--passes", options->passes, "names of passes, with commas between, in the order in which they run")
      ->type_name("A,B,C")
      ->delimiter(',')
      ->required();
  command.add_flag("--verify-each", options->verify_each, "check the graph after every pass that changed it");
  command.add_flag("--diff", options->diff, "print what each pass changed, instead of the resulting graph");
  add_common_options(command, options->common);
  command.footer(
      "The resulting graph, or what each pass changed, goes to stdout, the times of the passes to stderr.\n"
      "\n"
      "Examples:\n"
      "  sconce dump model.pt --stage inline > model.ir\n"
      "  sconce opt model.ir --passes canonicalize_ops,eliminate_dead_nodes --verify-each\n"
      "  sconce opt model.ir --passes peephole,eliminate_common_nodes --diff\n"
      "  sconce opt model.ir --passes eliminate_dead_nodes --ops-library build/libmy_ops.so\n"
      "\nExit codes: 0 good, 1 a pass broke the graph, 2 usage or a malformed file.");
}

}  // namespace sconce::cli
