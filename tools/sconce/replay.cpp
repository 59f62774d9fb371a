// sconce replay: a graph that sconce failed on, once more.
#include "tools/sconce/commands.h"
#include "tools/sconce/errors.h"

#include <filesystem>

namespace sconce::cli {
namespace {

struct ReplayOptions {
  CommonOptions common;
  std::string file;
};

int replay(const ReplayOptions& options) {
  prepare(options.common);
  if (!std::filesystem::exists(options.file)) {
    throw UserError(options.file + ": no such file");
  }
  throw RefusedError("this build of sconce writes no reproducers yet, so there is nothing to replay; 'sconce opt " +
                     options.file + " --passes A,B --verify-each' runs passes on a graph");
}

}  // namespace

void add_replay_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App& command =
      add_command(app, chosen, "replay", "Run a reproducer that a failing compile wrote (not yet)", options, replay);
  command.add_option("REPRODUCER", options->file, "the .ir file")->required();
  add_common_options(command, options->common);
  command.footer(
      "Example:\n  sconce replay reproducer.ir\n\nExit codes: 0 good, 1 it fails again or is refused, 2 usage or a bad "
      "file.");
}

}  // namespace sconce::cli
