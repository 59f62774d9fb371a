#include "tools/sconce/ui/table.h"

#include <algorithm>

namespace sconce::ui {
namespace {

constexpr const char* kGap = "  ";

void append_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

}  // namespace

size_t display_width(const std::string& text) {
  // Bytes 10xxxxxx continue a character.
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::string Table::render() const {
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

  const auto line_of = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size() && i < columns_.size(); ++i) {
      const size_t width = display_width(cells[i]);
      const std::string padding(widths[i] - std::min(width, widths[i]), ' ');
      line += (i == 0 ? "" : kGap) + (columns_[i].align == Align::kLeft ? cells[i] + padding : padding + cells[i]);
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

}  // namespace sconce::ui
