#include "tools/sconce/report/command_line_page.h"

#include "tools/sconce/values/spec.h"

// All of CLI11: App.hpp alone declares classes that it uses (Formatter, ConfigBase).
#include <CLI/CLI.hpp>

#include <algorithm>
#include <sstream>
#include <vector>

namespace sconce::cli {
namespace {

constexpr const char* kHead =
    "# The command line\n"
    "\n"
    "Generated from the program's own options: `SCONCE_UPDATE_EXPECTATIONS=1 build/release/tests/docs_test` rewrites this\n"
    "page, and `tests/docs/command_line_test.cpp` fails when the program would write another one.\n"
    "\n";

bool is_same_option(const CLI::Option& a, const CLI::Option& b) {
  return a.get_lnames() == b.get_lnames() && a.get_description() == b.get_description();
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->nonpositional(); });
}

// Options that every command has, with the same text: --help, --json and others.
std::vector<const CLI::Option*> shared_options(const std::vector<const CLI::App*>& commands) {
  std::vector<const CLI::Option*> shared = options_of(*commands.front());
  for (const CLI::App* command : commands) {
    const std::vector<const CLI::Option*> options = options_of(*command);
    std::erase_if(shared, [&](const CLI::Option* each) {
      return std::none_of(options.begin(), options.end(),
                          [each](const CLI::Option* option) { return is_same_option(*each, *option); });
    });
  }
  return shared;
}

// Returns a description as a table cell; line breaks are kept.
std::string table_cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '\n' ? "<br>" : c == '|' ? "\\|" : std::string(1, c);
  }
  return out;
}

// "`-h`, `--help`", "`--inputs FILE`"
std::string names_of(const CLI::Option& option) {
  std::string names;
  const std::string value = option.get_expected_max() > 0 ? " " + option.get_type_name() : "";
  for (const std::string& name : option.get_snames()) {
    names += (names.empty() ? "`-" : ", `-") + name + value + "`";
  }
  for (const std::string& name : option.get_lnames()) {
    names += (names.empty() ? "`--" : ", `--") + name + value + "`";
  }
  return names;
}

std::string remarks_on(const CLI::Option& option) {
  std::string remarks = option.get_required() ? "; required" : "";
  if (option.get_expected_max() > 1 || option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll) {
    remarks += "; may be given several times";
  }
  std::vector<std::string> excluded;
  for (const CLI::Option* other : option.get_excludes()) {
    excluded.push_back(other->get_name());
  }
  std::sort(excluded.begin(), excluded.end());
  for (const std::string& name : excluded) {
    remarks += "; not with `" + name + "`";
  }
  return remarks;
}

std::string table_of(const std::vector<const CLI::Option*>& options) {
  std::string text = options.empty() ? "" : "| option | |\n|---|---|\n";
  for (const CLI::Option* option : options) {
    text += "| " + names_of(*option) + " | " + table_cell(option->get_description()) + remarks_on(*option) + " |\n";
  }
  return text + (options.empty() ? "" : "\n");
}

std::string table_of_positionals(const CLI::App& command) {
  const auto positionals = command.get_options([](const CLI::Option* option) { return option->get_positional(); });
  std::string text = positionals.empty() ? "" : "| positional | |\n|---|---|\n";
  for (const CLI::Option* option : positionals) {
    text += "| `" + option->get_name(/*positional=*/true) + (option->get_expected_max() > 1 ? " ..." : "") + "` | " +
            table_cell(option->get_description()) + " |\n";
  }
  return text + (positionals.empty() ? "" : "\n");
}

// Indented lines of a footer are commands or terms, and become a block of code. Other lines are text, unchanged.
std::string paragraphs_of(const std::string& footer) {
  std::string text;
  bool in_code = false;
  bool empty_line = true;
  std::istringstream lines(footer);
  for (std::string line; std::getline(lines, line);) {
    const bool code = line.starts_with("  ");
    if (in_code && !code) {
      text += "```\n";
    }
    if (code != in_code || (line.empty() && !empty_line)) {
      text += "\n";
    }
    if (code && !in_code) {
      text += "```\n";
    }
    if (!line.empty()) {
      text += line.substr(code ? 2 : 0) + "\n";
    }
    empty_line = line.empty() || (in_code && !code);
    in_code = code;
  }
  return text + (in_code ? "```\n\n" : "\n");
}

std::string section_of(const CLI::App& command, const std::vector<const CLI::Option*>& shared) {
  std::vector<const CLI::Option*> options = options_of(command);
  std::erase_if(options, [&](const CLI::Option* option) {
    return std::any_of(shared.begin(), shared.end(),
                       [option](const CLI::Option* each) { return is_same_option(*each, *option); });
  });
  std::string usage = CLI::Formatter().make_usage(&command, "sconce " + command.get_name());
  usage.erase(0, usage.find("sconce"));
  std::string footer = command.get_footer();
  const size_t grammar = footer.find(kSpecHelp);
  if (grammar != std::string::npos) {
    footer.replace(grammar, std::string(kSpecHelp).size(), "What a SPEC is: see [below](#spec).\n");
  }
  return "## sconce " + command.get_name() + "\n\n" + command.get_description() + ".\n\n```\n" + usage + "```\n\n" +
         table_of_positionals(command) + table_of(options) + paragraphs_of(footer);
}

}  // namespace

std::string command_line_page(const CLI::App& app) {
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  const std::vector<const CLI::Option*> shared = shared_options(commands);
  std::string text = kHead + app.get_description() + "\n\n```\nsconce COMMAND ...\n```\n\n" + table_of(options_of(app));
  text += "| command | |\n|---|---|\n";
  for (const CLI::App* command : commands) {
    text += "| [" + command->get_name() + "](#sconce-" + command->get_name() + ") | " +
            table_cell(command->get_description()) + " |\n";
  }
  text += "\nAll commands also take [these options](#options-of-every-command).\n\n" + paragraphs_of(app.get_footer());
  for (const CLI::App* command : commands) {
    text += section_of(*command, shared);
  }
  const std::string grammar = kSpecHelp;
  text += "## Options of every command\n\n" + table_of(shared) + "## SPEC\n\n" + paragraphs_of(grammar);
  text.erase(text.find_last_not_of('\n') + 1);
  return text + "\n";
}

}  // namespace sconce::cli
