// sconce passes: lists the named passes.
#include "report/json.h"
#include "report/table.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/report/errors.h"

#include "pipeline/pass_list.h"

#include <iostream>

namespace sconce::cli {
namespace {

std::string place_of(const CustomPass& pass) {
  return std::string(pass.is_after ? "after " : "before ") + to_string(pass.stage);
}

int list_passes(const CommonOptions& options) {
  const Options prepared = prepare(options);
  if (options.json) {
    Json passes = Json::array();
    for (const PassInfo& pass : all_passes()) {
      passes.push_back(Json{{"name", pass.name}, {"where", to_string(pass.stage)}, {"help", pass.help}});
    }
    for (const CustomPass& pass : prepared.passes().custom_passes()) {
      passes.push_back(Json{{"name", pass.name}, {"where", place_of(pass)}, {"help", pass.help}, {"library", pass.library}});
    }
    std::cout << json_text(passes);
    return kGood;
  }
  Table table({{"pass", Align::kLeft}, {"where it runs", Align::kLeft}, {"what it does", Align::kLeft}});
  for (const PassInfo& pass : all_passes()) {
    table.add_row({std::string(pass.name), to_string(pass.stage), std::string(pass.help)});
  }
  for (const CustomPass& pass : prepared.passes().custom_passes()) {
    table.add_row({pass.name, place_of(pass), pass.help + " (" + pass.library + ")"});
  }
  std::cout << table.render();
  return kGood;
}

}  // namespace

void add_passes_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App& command =
      add_command(app, chosen, "passes", "List the passes, with a line of help and where each runs", options, list_passes);
  add_common_options(command, *options);
  command.footer(
      "Examples:\n  sconce passes\n  sconce passes --pass-plugin libmy_passes.so\n\nExit codes: 0 good, 1 refused, 2 usage "
      "or a bad file.");
}

}  // namespace sconce::cli
