#include "tests/differential/composed/templates.h"

#include "tests/support/graphs.h"

#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace sconce::testing::composed {
namespace {

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Calls `visit` with the begin and end of every identifier.
void for_each_name(const std::string& text, const std::function<void(size_t, size_t)>& visit) {
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      i = text.find('"', i + 1) + 1;
      continue;
    }
    size_t end = i;
    while (end < text.size() && is_name_char(text[end])) {
      ++end;
    }
    const bool is_name = end > i && std::isdigit(static_cast<unsigned char>(text[i])) == 0;
    if (is_name && (i == 0 || text[i - 1] != '.')) {
      visit(i, end);
    }
    i = std::max(end, i + 1);
  }
}

// The end of what begins at the bracket, which is at `open`.
size_t closing(const std::string& text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '(' || text[i] == '[' ? 1 : text[i] == ')' || text[i] == ']' ? -1 : 0;
    if (depth == 0) {
      return i;
    }
  }
  throw std::logic_error("a bracket is not closed in " + text);
}

std::vector<std::string> split_arguments(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else if (c != ' ' || !parts.back().empty()) {
      parts.back() += c;
    }
  }
  return parts;
}

const std::map<std::string, Hole::Kind>& makers() {
  static const std::map<std::string, Hole::Kind> all = {{"x", Hole::Kind::kReal},      {"positive", Hole::Kind::kPositive},
                                                        {"unit", Hole::Kind::kUnit},   {"mask", Hole::Kind::kMask},
                                                        {"index", Hole::Kind::kIndex}, {"w", Hole::Kind::kWritten}};
  return all;
}

Template parse(const std::string& line, std::string text) {
  const std::string none = "none()";
  for (size_t at = text.find(none); at != std::string::npos; at = text.find(none)) {
    text.replace(at, none.size(), "None");
  }
  Template made{.text = line, .pieces = {""}, .holes = {}};
  size_t done = 0;
  for_each_name(text, [&](size_t begin, size_t end) {
    const auto maker = makers().find(text.substr(begin, end - begin));
    if (begin < done || maker == makers().end() || end >= text.size() || text[end] != '(') {
      return;
    }
    const size_t close = closing(text, end);
    const std::vector<std::string> arguments = split_arguments(text.substr(end + 1, close - end - 1));
    made.pieces.back() += text.substr(done, begin - done);
    made.pieces.emplace_back();
    made.holes.push_back({maker->second, arguments.back(), arguments.size() == 2 ? arguments[0] : ""});
    done = close + 1;
  });
  made.pieces.back() += text.substr(done);
  return made;
}

// "aten::add.Tensor(x([n]), 2)" as an expression, with names for arguments that have no position.
std::optional<Template> parse_call(const std::string& line, const std::string& suffix) {
  const size_t open = line.find('(');
  const std::string qualified = line.substr(0, open);
  const size_t dot = qualified.find('.');
  const std::string name = qualified.substr(0, dot) + suffix;
  const auto registered = torch::jit::findOperatorFor({name, dot == std::string::npos ? "" : qualified.substr(dot + 1)});
  std::vector<std::string> arguments = split_arguments(line.substr(open + 1, line.rfind(')') - open - 1));
  if (registered == nullptr) {
    return std::nullopt;
  }
  const auto& declared = registered->schema().arguments();
  if (declared.size() < arguments.size()) {
    return std::nullopt;
  }
  if (!suffix.empty()) {
    // Some results are larger than the first operand.
    static const std::set<std::string> kLarger = {"aten::sub.Tensor(x([3]), x([n, 3]))",
                                                  "aten::addmm(x([4]), x([n, 3]), x([3, 4]), 0.5, 2)",
                                                  "aten::baddbmm(x([2, 4]), x([n, 2, 3]), x([n, 3, 4]))"};
    if (!arguments[0].starts_with("x(") || kLarger.contains(line)) {
      return std::nullopt;
    }
    arguments[0].replace(0, 1, "w");
  }
  std::string text = "torch.ops.aten." + name.substr(name.find("::") + 2) + "(";
  for (size_t i = 0; i < arguments.size(); ++i) {
    text += (i == 0 ? "" : ", ") + (declared.at(i).kwarg_only() ? declared[i].name() + "=" : "") + arguments[i];
  }
  return parse(line, text + ")");
}

std::vector<Template> read_templates() {
  std::vector<Template> all;
  std::vector<std::filesystem::path> files = {testing::tests_dir() + "/differential/composed/operators.cases"};
  for (const auto& entry : std::filesystem::directory_iterator(testing::tests_dir() + "/ops/gradients")) {
    // Rounding decides on which side of a kink a computed operand is.
    if (entry.path().stem() != "kinks") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::string wrong;
  for (const std::filesystem::path& file : files) {
    std::istringstream lines(testing::read_text(file.string()));
    for (std::string line; std::getline(lines, line);) {
      // LibTorch's own view without checks reads outside of a smaller operand.
      if (line.empty() || line.front() == '#' || line.starts_with("aten::_reshape_alias")) {
        continue;
      }
      if (!line.starts_with("aten::")) {
        all.push_back(parse(line, line));
        continue;
      }
      if (auto made = parse_call(line, "")) {
        all.push_back(std::move(*made));
      } else {
        wrong += "\n" + line;
      }
      if (auto in_place = parse_call(line, "_")) {
        all.push_back(std::move(*in_place));
      }
    }
  }
  if (!wrong.empty()) {
    throw std::logic_error("no operator takes:" + wrong);
  }
  return all;
}

}  // namespace

const std::vector<Template>& templates() {
  static const std::vector<Template> all = read_templates();
  return all;
}

std::string with_name_replaced(const std::string& text, const std::string& name, const std::string& by) {
  std::string result;
  size_t done = 0;
  for_each_name(text, [&](size_t begin, size_t end) {
    if (text.compare(begin, end - begin, name) == 0) {
      result += text.substr(done, begin - done) + by;
      done = end;
    }
  });
  return result + text.substr(done);
}

std::set<std::string> names_in(const std::string& text) {
  std::set<std::string> names;
  for_each_name(text, [&](size_t begin, size_t end) { names.insert(text.substr(begin, end - begin)); });
  return names;
}

}  // namespace sconce::testing::composed
