#include "tools/sconce/commands/command_line.h"

#include "base/nearest_name.h"
#include "ir/dump.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/report/command_line_page.h"
#include "tools/sconce/report/errors.h"

#include <sconce/log.h>
#include <sconce/status.h>

#include <torch/csrc/jit/runtime/print_handler.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>
#include <utility>

namespace sconce::cli {
namespace {

std::string footer() {
  std::string text =
      "Examples:\n"
      "  sconce run model.pt --input 'float32[1,3,224,224]'\n"
      "  sconce check model.pt model.cases.pt --grad\n"
      "  sconce bench model.pt --input 'float32[8,16]' --against jit,eager\n"
      "  sconce COMMAND --help     options and examples of one command\n"
      "\n"
      "Exit codes: 0 good, 1 mismatch or refusal, 2 usage or bad input.\n"
      "\n"
      "Environment:\n"
      "  SCONCE_DUMP=CHOICE,...    prints to stderr while compiling; the choices:\n";
  for (const DumpChoice& choice : dump_choices()) {
    text += "    " + std::string(choice.name) + std::string(10 - std::min<size_t>(10, choice.name.size()), ' ') +
            std::string(choice.help) + "\n";
  }
  text += "    all       everything\n";
  text += "  SCONCE_VERIFY=1           checks every graph after every pass\n";
  text += "  SCONCE_KERNEL_CACHE=DIR   keeps compiled kernels in DIR, not in ~/.cache/sconce/kernels; off: nowhere";
  return text;
}

std::string version_text() {
  set_log_callback([](LogLevel /*level*/, std::string_view /*line*/) {});  // the text says what is missing
  std::string text = to_text(capabilities());
  text.pop_back();  // the parser ends the line
  return text;
}

std::vector<std::string> arguments_of_command;

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  return names;
}

// Returns the command on the command line, or the application itself.
const CLI::App& command_of(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!arguments.empty() && arguments.front() == command->get_name()) {
      return *command;
    }
  }
  return app;
}

// Returns what a command does about gradients, and by which options: commands have different defaults and options. Empty for
// commands that call no model.
std::string_view about_gradients(const std::string& command) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kCommands = {{
      {"run", "run records gradients by default, as autograd does; --no-grad turns it off"},
      {"explain", "explain records gradients by default, as autograd does; --no-grad turns it off"},
      {"bench", "bench records no gradients by default; --with-grad turns it on, --train OPTIMIZER times training steps"},
      {"check", "check makes calls with and without gradients by default; --grad also compares the gradients"},
      {"dump", "dump shows plans without gradients by default; --stage differentiate shows those with"},
  }};
  const auto* found =
      std::find_if(kCommands.begin(), kCommands.end(), [&](const auto& each) { return each.first == command; });
  return found == kCommands.end() ? std::string_view() : found->second;
}

// Describes options that the command lacks, with the nearest that it has.
std::string explain_extras(const CLI::App& command, const CLI::ExtrasError& failure,
                           const std::vector<std::string>& arguments) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      known.push_back("--" + name);
    }
  }
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name.rfind("--", 0) == 0 && std::find(known.begin(), known.end(), name) == known.end()) {
      const bool is_about_gradients = name == "--grad" || name == "--no-grad" || name == "--with-grad";
      const std::string_view lesson = is_about_gradients ? about_gradients(command.get_name()) : "";
      return "no option " + name + (lesson.empty() ? did_you_mean(name, known) : "; " + std::string(lesson));
    }
  }
  return failure.what();
}

// Returns the parser's message as one line with a remedy.
[[noreturn]] void throw_usage_error(const CLI::App& app, const CLI::ParseError& failure,
                                    const std::vector<std::string>& arguments) {
  const CLI::App& command = command_of(app, arguments);
  const bool has_command = &command != &app;
  const auto* extras = dynamic_cast<const CLI::ExtrasError*>(&failure);
  std::string message = extras != nullptr ? explain_extras(command, *extras, arguments) : failure.what();
  constexpr std::string_view kNoNumber = "Could not convert: ";
  if (message.starts_with(kNoNumber)) {
    const size_t equals = message.find(" = ");
    message = message.substr(kNoNumber.size(), equals - kNoNumber.size()) + ": must be a whole number, not " +
              message.substr(std::min(message.size(), equals + 3));
  }
  std::replace(message.begin(), message.end(), '\n', ' ');
  throw UserError(message + " (see 'sconce " + (has_command ? command.get_name() + " " : "") + "--help')");
}

int run(const std::vector<std::string>& arguments) {
  CLI::App app("sconce runs and trains TorchScript models, and compares itself with LibTorch.", "sconce");
  Action chosen;
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text, "print the versions, whether kernels can be compiled, and exit");
  app.get_formatter()->column_width(34);
  add_run_command(app, chosen);
  add_check_command(app, chosen);
  add_bench_command(app, chosen);
  add_train_command(app, chosen);
  add_dump_command(app, chosen);
  add_explain_command(app, chosen);
  add_info_command(app, chosen);
  add_opt_command(app, chosen);
  add_passes_command(app, chosen);
  add_op_command(app, chosen);
  add_replay_command(app, chosen);
  app.footer(footer);

  const auto is_json = [](const std::string& argument) { return argument == "--json"; };
  if (std::all_of(arguments.begin(), arguments.end(), is_json)) {
    throw UserError("a command is missing; there are: " + join(command_names(app)) + " (see 'sconce --help')");
  }
  const std::vector<std::string> names = command_names(app);
  const std::string& first = arguments.front();
  if (first == "--help-markdown" && arguments.size() == 1) {  // not in the help: writes docs/command_line.md
    std::cout << command_line_page(app);
    return kGood;
  }
  if (first.rfind('-', 0) != 0 && std::find(names.begin(), names.end(), first) == names.end()) {
    throw UserError("no command '" + first + "'" + did_you_mean(first, names) + " (see 'sconce --help')");
  }
  try {
    // The parser takes arguments from the back.
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    for (std::string& argument : reversed) {
      // The parser would split "[1,2]", a SPEC of a list, into two values.
      argument.insert(0, argument.starts_with('[') ? " " : "");
    }
    app.parse(reversed);
  } catch (const CLI::Success& asked) {  // --help
    return app.exit(asked, std::cout, std::cerr);
  } catch (const CLI::ParseError& failure) {
    throw_usage_error(app, failure, arguments);
  }
  return chosen();
}

}  // namespace

const std::vector<std::string>& arguments_of_this_command() { return arguments_of_command; }

int run_command_line(const std::vector<std::string>& arguments) {
  arguments_of_command = arguments;
  set_log_callback([](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) {
      std::cerr << "sconce: warning: " + std::string(line) + "\n" << std::flush;
    }
  });
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  if (json) {
    // The model's prints must not be mixed with JSON.
    torch::jit::setPrintHandler([](const std::string& text) { std::cerr << text; });
  }
  int code = kGood;
  try {
    code = run(arguments);
  } catch (const std::exception& failure) {
    code = report_failure(failure, json);
  }
  if (!std::cout.flush()) {
    std::cerr << "sconce: error: the output could not be written: " << std::strerror(errno) << std::endl;
    return kUsageOrBadInput;
  }
  return code;
}

void end_program(int exit_code) {
#if defined(__SANITIZE_ADDRESS__)
  std::exit(exit_code);  // LeakSanitizer checks here
#else
  std::fflush(nullptr);
  std::cout.flush();
  std::cerr.flush();
  std::_Exit(exit_code);
#endif
}

}  // namespace sconce::cli
