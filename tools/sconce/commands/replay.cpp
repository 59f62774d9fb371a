// sconce replay: runs a pass again on the graph on which it failed.
#include "base/exception_message.h"
#include "report/json.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/report/errors.h"

#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "pipeline/pass_runner.h"
#include "pipeline/reproducer.h"

#include <algorithm>
#include <iostream>

namespace sconce::cli {
namespace {

struct ReplayOptions {
  CommonOptions common;
  std::string file;
};

int replay(const ReplayOptions& options) {
  Options prepared = prepare(options.common);
  Reproducer reproducer;
  try {
    reproducer = read_reproducer(options.file);
  } catch (const ParseError& failure) {
    throw UserError(options.file + ":" + failure.what());
  } catch (const c10::Error& failure) {
    throw UserError(plain_message(failure));
  }
  const auto named = [&] {
    const auto& passes = prepared.passes().custom_passes();
    return std::find_if(passes.begin(), passes.end(), [&](const CustomPass& pass) { return pass.name == reproducer.pass; });
  };
  if (named() == prepared.passes().custom_passes().end() && !reproducer.library.empty()) {
    try {
      prepared.passes().load_plugin(reproducer.library);
    } catch (const c10::Error& failure) {
      throw UserError(options.file + ": the pass '" + reproducer.pass + "': " + plain_message(failure));
    }
  }
  const auto pass = named();
  if (pass == prepared.passes().custom_passes().end()) {
    throw UserError(options.file + ": the pass '" + reproducer.pass +
                    "' is in no library that is loaded; --pass-plugin LIB.so gives the one that has it");
  }
  PassRunner runner;
  runner.run_custom(*pass, reproducer.graph);
  const bool fails = !runner.refusals().empty();
  const std::string outcome = fails ? runner.refusals().front().reason : "nothing is wrong with it now";
  if (options.common.json) {
    std::cout << json_text({{"pass", reproducer.pass},
                            {"fails", fails},
                            {"problem", fails ? outcome : ""},
                            {"problem_then", reproducer.problem},
                            {"graph", print(*reproducer.graph)}});
  } else {
    std::cout << "pass " << reproducer.pass << ": " << outcome << "\n";
    std::cout << (fails ? "the graph before the pass:\n" : "the graph after the pass:\n") << print(*reproducer.graph);
  }
  return fails ? kMismatchOrRefusal : kGood;
}

}  // namespace

void add_replay_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App& command =
      add_command(app, chosen, "replay", "Run a pass again on the graph on which it failed", options, replay);
  command.add_option("REPRODUCER", options->file, "the .ir file that was written when the pass failed")->required();
  add_common_options(command, options->common);
  command.footer(
      "A pass of your own that throws, breaks the graph or is wrong about what it changed is left out, and the graph it "
      "was\n"
      "given is written to a file; 'sconce explain' names it.\n"
      "\n"
      "Examples:\n"
      "  sconce replay sconce-my_pass-4711-0.ir\n"
      "  sconce replay sconce-my_pass-4711-0.ir --pass-plugin libmy_passes.so    # a newer build of it\n"
      "\n"
      "Exit codes: 0 good, 1 it fails again, 2 usage or a bad file.");
}

}  // namespace sconce::cli
