#include "report/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <string_view>

namespace sconce {
namespace {

constexpr const char* kGap = "  ";

void append_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

// Returns their indices, in order.
std::vector<size_t> columns_that_fit(const std::vector<Column>& columns, const std::vector<size_t>& widths, size_t width) {
  std::vector<size_t> shown(columns.size());
  std::iota(shown.begin(), shown.end(), 0);
  const auto total = [&] {
    size_t sum = shown.empty() ? 0 : (shown.size() - 1) * std::string_view(kGap).size();
    for (const size_t i : shown) {
      sum += widths[i];
    }
    return sum;
  };
  while (total() > width) {
    const auto least = std::max_element(shown.begin(), shown.end(),
                                        [&](size_t a, size_t b) { return columns[a].dispensable < columns[b].dispensable; });
    if (least == shown.end() || columns[*least].dispensable == 0) {
      break;
    }
    shown.erase(least);
  }
  return shown;
}

}  // namespace

size_t display_width(const std::string& text) {
  // Bytes 10xxxxxx continue a character.
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::string Table::render(size_t width) const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) {
    widths.push_back(display_width(column.title));
  }
  const auto is_note = [&](const std::vector<std::string>& row) { return row.size() == 1 && columns_.size() > 1; };
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size() && i < widths.size() && !is_note(row); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  const std::vector<size_t> shown = columns_that_fit(columns_, widths, width);

  const auto line_of = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (const size_t i : shown) {
      const std::string cell = i < cells.size() ? cells[i] : "";
      const std::string padding(widths[i] - std::min(display_width(cell), widths[i]), ' ');
      line += (i == shown.front() ? "" : kGap) + (columns_[i].align == Align::kLeft ? cell + padding : padding + cell);
    }
    return line;
  };

  std::vector<std::string> titles;
  std::vector<std::string> rules;
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    rules.emplace_back(widths[i], '-');
  }
  std::string out;
  append_line(out, line_of(titles));
  append_line(out, line_of(rules));
  for (const auto& row : rows_) {
    append_line(out, is_note(row) ? row[0] : line_of(row));
  }
  return out;
}

size_t output_width() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 100;
}

}  // namespace sconce
