// Text in columns.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace sconce::ui {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kRight;
  // Where a table must be narrower, columns with the highest number go first; those with 0 stay.
  int dispensable = 0;
};

// Rows may be shorter than the header. A row with one cell, when there are more columns, is a note: it is not counted
// for the width of its column.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // Lines that end in '\n', without trailing blanks: the header, a rule, the rows. Columns are left out until they fit
  // into `width` characters, or no dispensable one is left.
  std::string render(size_t width = std::numeric_limits<size_t>::max()) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Characters in a line of stdout: the terminal's, or 100 in a file or pipe.
size_t output_width();

// Number of characters that a terminal shows for UTF-8 text without combining characters.
size_t display_width(const std::string& text);

}  // namespace sconce::ui
