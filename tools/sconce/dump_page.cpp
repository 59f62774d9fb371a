#include "tools/sconce/dump_page.h"

#include "tools/sconce/html.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <unordered_map>

namespace sconce::cli {
namespace {

constexpr const char* kStyle = R"(
body { max-width: none; }
.stages { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(40rem, 100%), 1fr)); gap: 1rem; }
pre { font: 13px/1.5 ui-monospace, monospace; overflow-x: auto; margin: 0.6rem 0; border: 1px solid var(--rule);
      padding: 0.5rem 0; max-height: 80vh; }
pre span { display: block; padding: 0 0.7rem; min-width: max-content; }
.gone { background: color-mix(in srgb, var(--bad) 18%, transparent); text-decoration: line-through; }
.new { background: color-mix(in srgb, var(--good) 18%, transparent); }
i { color: var(--soft); font-style: normal; }
)";

using Count = std::unordered_map<std::string, size_t>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

// Where the source location begins, if the line has one.
size_t end_of_code(const std::string& line) { return std::min(line.find(" # "), line.size()); }

// What is compared: without the numbers of nameless values, and without the location.
std::string compared(const std::string& line) {
  const auto is_digit = [&](size_t at) {
    return at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0;
  };
  std::string key;
  const size_t end = end_of_code(line);
  for (size_t i = 0; i < end; ++i) {
    key += line[i];
    if (line[i] == '%') {
      while (is_digit(i + 1)) {
        ++i;
      }
    }
  }
  return key;
}

Count count_of(const std::string& text) {
  Count count;
  for (const std::string& line : lines_of(text)) {
    ++count[compared(line)];
  }
  return count;
}

// The text, lines that `other` does not have marked. `marked` counts them.
std::string marked_text(const std::string& text, Count other, const std::string& mark, size_t& marked) {
  std::string html;
  for (const std::string& line : lines_of(text)) {
    size_t& left = other[compared(line)];
    const bool is_marked = left == 0;
    left -= is_marked ? 0 : 1;
    marked += is_marked ? 1 : 0;
    const size_t end = end_of_code(line);
    const std::string code =
        escape_html(line.substr(0, end)) + (end < line.size() ? element("i", escape_html(line.substr(end))) : "");
    html += element(is_marked ? "span class=\"" + mark + "\"" : "span", code.empty() ? "&nbsp;" : code);
  }
  return element("pre", html);
}

std::string count_text(size_t nodes) { return std::to_string(nodes) + (nodes == 1 ? " node" : " nodes"); }

}  // namespace

std::string to_page(const std::string& title, const std::vector<StageText>& stages) {
  std::string body = element("h1", escape_html(title)) + "\n";
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageText& stage = stages[i];
    std::string about = stage.help + ": " + count_text(stage.nodes);
    std::string columns;
    size_t gone = 0;
    size_t added = 0;
    if (i == 0) {
      columns = marked_text(stage.text, count_of(stage.text), "new", added);
    } else {
      const StageText& before = stages[i - 1];
      columns = marked_text(before.text, count_of(stage.text), "gone", gone) +
                marked_text(stage.text, count_of(before.text), "new", added);
      about = stage.help + ": " + count_text(before.nodes) + ", then " + std::to_string(stage.nodes) +
              "; lines gone: " + std::to_string(gone) + ", new: " + std::to_string(added);
    }
    const bool same = i > 0 && gone == 0 && added == 0;
    body += element("section", element("h2", escape_html(stage.stage)) +
                                   element("p", escape_html(same ? stage.help + ": nothing changes" : about)) +
                                   (same ? "" : element("div class=\"stages\"", columns))) +
            "\n";
  }
  return html_page(title, kStyle, body);
}

}  // namespace sconce::cli
