// Tables in text.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace sconce {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kRight;
  // If a table must be narrower, columns with the highest number are left out first; those with 0 always stay.
  int dispensable = 0;
};

// Rows may be shorter than the header. A row with one cell, in a table with more columns, is a note and does not count for
// the width of its column.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // Returns lines that end in '\n', without trailing blanks: the header, a rule, the rows. Leaves out columns until the rest
  // fits into `width` characters, or until no dispensable column is left.
  std::string render(size_t width = std::numeric_limits<size_t>::max()) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Returns the width of stdout in characters: the terminal's, or 100 for a file or pipe.
size_t output_width();

// Returns the number of characters that a terminal shows for UTF-8 text without combining characters.
size_t display_width(const std::string& text);

}  // namespace sconce
