#include "tests/differential/composed/program.h"
#include "tests/differential/composed/templates.h"

#include <algorithm>
#include <regex>
#include <set>

namespace sconce::testing::composed {
namespace {

using Uses = std::set<std::string>;

// The names that the line assigns; nothing if it may do more than that.
std::vector<std::string> assigned_names(const std::string& text) {
  static const std::regex kAssignment("((?:[a-z][0-9]+(?:, )?)+)(?:: List\\[Tensor\\])? = (.*)|(k[0-9]+) \\+= 1");
  static const std::regex kEffect(
      "[a-z0-9]_\\(|\\.(append|extend|insert|pop|clear|reverse)\\(|rand|dropout|bernoulli|multinomial|rrelu");
  std::smatch match;
  const bool is_pure = std::regex_match(text, match, kAssignment) && !std::regex_search(text, kEffect);
  std::vector<std::string> names;
  if (is_pure) {
    for (const std::string& name : names_in(match[1].matched ? match[1] : match[3])) {
      names.push_back(name);
    }
  }
  return names;
}

// Adds the names that lines use which do not assign them.
void add_uses(const Lines& lines, Uses& uses) {
  for (const Line& line : lines) {
    const std::vector<std::string> assigned = assigned_names(line.text);
    for (const std::string& name : names_in(line.text)) {
      if (std::ranges::find(assigned, name) == assigned.end()) {
        uses.insert(name);
      }
    }
    add_uses(line.body, uses);
  }
}

bool remove_from(Lines& lines, const Uses& uses) {
  bool changed = false;
  for (size_t i = lines.size(); i-- > 0;) {
    Line& line = lines[i];
    changed |= remove_from(line.body, uses);
    const bool is_head = line.text.ends_with(":");
    const bool has_else = i + 1 < lines.size() && lines[i + 1].text == "else:";
    const std::vector<std::string> names = assigned_names(line.text);
    const bool is_unused =
        !names.empty() && std::ranges::none_of(names, [&](const std::string& name) { return uses.contains(name); });
    const bool is_empty = is_head && line.body.empty() && line.text != "else:" && (!has_else || lines[i + 1].body.empty());
    if (is_unused || is_empty) {
      const auto at = lines.begin() + static_cast<std::ptrdiff_t>(i);
      lines.erase(at, at + (is_empty && has_else ? 2 : 1));
      changed = true;
    } else if (is_head && line.body.empty() && line.text != "else:") {
      line.body.push_back({"pass"});
    } else if (line.text == "else:" && line.body.empty()) {
      line.body.push_back({"pass"});
    }
  }
  return changed;
}

void remove_empty_else(Lines& lines) {
  for (Line& line : lines) {
    remove_empty_else(line.body);
  }
  std::erase_if(lines, [](const Line& line) {
    return line.text == "else:" && (line.body.empty() || (line.body.size() == 1 && line.body[0].text == "pass"));
  });
}

void collect_texts(const Lines& lines, std::vector<std::string>& texts) {
  for (const Line& line : lines) {
    texts.push_back(line.text);
    collect_texts(line.body, texts);
  }
}

}  // namespace

bool reads_no_element(const Program& program, const std::string& line) {
  static const std::regex kQuestion(
      "[kb][0-9]+ = [a-z][0-9]+\\.(size|numel|dim|ndim|is_[a-z]+|requires_grad|dtype|stride|layout|device)\\b.*");
  std::vector<std::string> texts;
  collect_texts(program.lines, texts);
  std::vector<std::string> names = assigned_names(line);
  bool reads_none = !names.empty();
  for (size_t i = 0; reads_none && i < names.size(); ++i) {
    const std::string name = names[i];
    reads_none = std::ranges::find(program.outputs, name) == program.outputs.end();
    for (const std::string& text : texts) {
      const std::vector<std::string> assigned = assigned_names(text);
      if (!names_in(text).contains(name) || std::ranges::find(assigned, name) != assigned.end() ||
          std::regex_match(text, kQuestion)) {
        continue;
      }
      reads_none = reads_none && !assigned.empty();
      for (const std::string& next : assigned) {
        if (std::ranges::find(names, next) == names.end()) {
          names.push_back(next);
        }
      }
    }
  }
  return reads_none;
}

void remove_dead_lines(Program& program) {
  bool changed = true;
  while (changed) {
    Uses uses(program.outputs.begin(), program.outputs.end());
    add_uses(program.lines, uses);
    changed = remove_from(program.lines, uses);
  }
  remove_empty_else(program.lines);
}

}  // namespace sconce::testing::composed
