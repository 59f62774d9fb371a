#include "tools/sconce/report/text_diff.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <sstream>
#include <unordered_map>
#include <utility>

namespace sconce::cli {
namespace {

struct Line {
  std::string text;
  std::string code;  // without the location
  std::string key;   // also without the numbers of values without a name
};

std::string key_of(const std::string& line) {
  const size_t end = end_of_code(line);
  std::string key;
  for (size_t i = 0; i < end; ++i) {
    key += line[i];
    if (line[i] == '%') {
      while (i + 1 < end && std::isdigit(static_cast<unsigned char>(line[i + 1])) != 0) {
        ++i;
      }
    }
  }
  return key;
}

std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    std::string key = key_of(line);
    std::string code = line.substr(0, end_of_code(line));
    lines.push_back({std::move(line), std::move(code), std::move(key)});
  }
  return lines;
}

// A value in a line of IR. At its definition its type follows.
struct Name {
  std::string text;
  bool is_definition;
};

std::vector<Name> names_in(const std::string& line) {
  const size_t end = end_of_code(line);
  std::vector<Name> names;
  for (size_t i = line.find('%'); i < end; i = line.find('%', i + 1)) {
    size_t end_of_name = i + 1;
    while (end_of_name < end && (std::isalnum(static_cast<unsigned char>(line[end_of_name])) != 0 ||
                                 line[end_of_name] == '_' || line[end_of_name] == '.')) {
      ++end_of_name;
    }
    names.push_back({line.substr(i, end_of_name - i), line.compare(end_of_name, 3, " : ") == 0});
  }
  return names;
}

class Diff {
 public:
  Diff(const std::string& before, const std::string& after) : before_(lines_of(before)), after_(lines_of(after)) {
    compare({0, before_.size(), 0, after_.size()}, &Line::code);
    part_rewired_lines();
  }

  std::vector<DiffLine> take() { return std::move(result_); }

 private:
  using Kind = DiffLine::Kind;
  // Compares lines [before_begin, before_end) with [after_begin, after_end).
  struct Piece {
    size_t before_begin, before_end, after_begin, after_end;
    size_t before_size() const { return before_end - before_begin; }
    size_t after_size() const { return after_end - after_begin; }
  };
  using Field = std::string Line::*;
  using Anchors = std::vector<std::pair<size_t, size_t>>;

  bool same_key(size_t before, size_t after) const { return before_[before].key == after_[after].key; }
  void keep(size_t before, size_t after) { result_.push_back({Kind::kSame, before_[before].text, after_[after].text}); }
  void lose(size_t before) { result_.push_back({Kind::kGone, before_[before].text, ""}); }
  void add(size_t after) { result_.push_back({Kind::kNew, "", after_[after].text}); }
  void replace(const Piece& piece) {
    for (size_t i = piece.before_begin; i < piece.before_end; ++i) {
      lose(i);
    }
    for (size_t i = piece.after_begin; i < piece.after_end; ++i) {
      add(i);
    }
  }

  // Compares exact lines first, because numbers mostly stay the same; pieces without a common line are then compared
  // by key.
  void compare(Piece piece, Field field) {
    const auto same = [&](size_t before, size_t after) { return before_[before].*field == after_[after].*field; };
    for (; piece.before_size() > 0 && piece.after_size() > 0 && same(piece.before_begin, piece.after_begin);
         ++piece.before_begin, ++piece.after_begin) {
      keep(piece.before_begin, piece.after_begin);
    }
    const Piece all = piece;
    while (piece.before_size() > 0 && piece.after_size() > 0 && same(piece.before_end - 1, piece.after_end - 1)) {
      --piece.before_end;
      --piece.after_end;
    }
    compare_middle(piece, field);
    for (size_t i = 0; piece.before_end + i < all.before_end; ++i) {
      keep(piece.before_end + i, piece.after_end + i);
    }
  }

  void compare_middle(const Piece& piece, Field field) {
    constexpr size_t kMaxCells = 1'000'000;  // limit for the table of common subsequences
    if (piece.before_size() == 0 || piece.after_size() == 0) {
      replace(piece);
    } else if (const Anchors anchors = increasing(unique_lines(piece, field)); !anchors.empty()) {
      Piece rest = piece;
      for (const auto& [before, after] : anchors) {
        compare({rest.before_begin, before, rest.after_begin, after}, field);
        keep(before, after);
        rest.before_begin = before + 1;
        rest.after_begin = after + 1;
      }
      compare(rest, field);
    } else if (field == &Line::code) {
      compare(piece, &Line::key);
    } else if (piece.before_size() * piece.after_size() <= kMaxCells) {
      compare_by_table(piece);
    } else {
      replace(piece);
    }
  }

  // The lines that occur once in the piece on each side, in the order before.
  Anchors unique_lines(const Piece& piece, Field field) const {
    struct Places {
      size_t count_before = 0, count_after = 0, before = 0, after = 0;
    };
    std::unordered_map<std::string_view, Places> places;
    for (size_t i = piece.before_begin; i < piece.before_end; ++i) {
      Places& line = places[before_[i].*field];
      ++line.count_before;
      line.before = i;
    }
    for (size_t i = piece.after_begin; i < piece.after_end; ++i) {
      Places& line = places[after_[i].*field];
      ++line.count_after;
      line.after = i;
    }
    Anchors unique;
    for (const auto& [key, line] : places) {
      if (line.count_before == 1 && line.count_after == 1) {
        unique.emplace_back(line.before, line.after);
      }
    }
    std::sort(unique.begin(), unique.end());
    return unique;
  }

  // Finds the longest subsequence whose positions after increase, too, with piles, as in patience sorting.
  static Anchors increasing(const Anchors& anchors) {
    constexpr size_t kNone = SIZE_MAX;
    std::vector<size_t> tops;  // top of each pile: an index into `anchors`
    std::vector<size_t> previous(anchors.size(), kNone);
    for (size_t i = 0; i < anchors.size(); ++i) {
      const auto pile = std::lower_bound(tops.begin(), tops.end(), anchors[i].second,
                                         [&](size_t top, size_t after) { return anchors[top].second < after; });
      previous[i] = pile == tops.begin() ? kNone : *(pile - 1);
      if (pile == tops.end()) {
        tops.push_back(i);
      } else {
        *pile = i;
      }
    }
    Anchors longest;
    for (size_t i = tops.empty() ? kNone : tops.back(); i != kNone; i = previous[i]) {
      longest.push_back(anchors[i]);
    }
    std::reverse(longest.begin(), longest.end());
    return longest;
  }

  void compare_by_table(const Piece& piece) {
    const size_t width = piece.after_size() + 1;
    // For the lines from (row, column) on.
    std::vector<uint32_t> longest((piece.before_size() + 1) * width, 0);
    for (size_t row = piece.before_size(); row-- > 0;) {
      for (size_t column = piece.after_size(); column-- > 0;) {
        longest[row * width + column] =
            same_key(piece.before_begin + row, piece.after_begin + column)
                ? longest[(row + 1) * width + column + 1] + 1
                : std::max(longest[(row + 1) * width + column], longest[row * width + column + 1]);
      }
    }
    size_t row = 0;
    size_t column = 0;
    while (row < piece.before_size() || column < piece.after_size()) {
      const size_t before = piece.before_begin + row;
      const size_t after = piece.after_begin + column;
      const bool has_both = row < piece.before_size() && column < piece.after_size();
      if (has_both && same_key(before, after)) {
        keep(before, after);
        ++row;
        ++column;
      } else if (column == piece.after_size() ||
                 (has_both && longest[(row + 1) * width + column] >= longest[row * width + column + 1])) {
        lose(before);
        ++row;
      } else {
        add(after);
        ++column;
      }
    }
  }

  // Lines that differ only in numbers of values are equal only if they use the same values.
  void part_rewired_lines() {
    std::unordered_map<std::string, std::string> renamed;
    std::vector<DiffLine> parted;
    for (DiffLine& line : result_) {
      bool is_rewired = false;
      if (line.kind == Kind::kSame) {
        const std::vector<Name> before = names_in(line.before);
        const std::vector<Name> after = names_in(line.after);
        for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
          if (before[i].is_definition) {
            renamed[before[i].text] = after[i].text;
          } else {
            const auto found = renamed.find(before[i].text);
            is_rewired |= before[i].text != after[i].text && (found == renamed.end() || found->second != after[i].text);
          }
        }
      }
      if (is_rewired) {
        parted.push_back({Kind::kGone, std::move(line.before), ""});
        parted.push_back({Kind::kNew, "", std::move(line.after)});
      } else {
        parted.push_back(std::move(line));
      }
    }
    result_ = std::move(parted);
  }

  std::vector<Line> before_;
  std::vector<Line> after_;
  std::vector<DiffLine> result_;
};

}  // namespace

size_t end_of_code(const std::string& line) { return std::min(line.find(" # "), line.size()); }

std::vector<DiffLine> diff_texts(const std::string& before, const std::string& after) { return Diff(before, after).take(); }

std::string unified_diff(const std::vector<DiffLine>& lines, size_t context) {
  using Kind = DiffLine::Kind;
  std::string text;
  size_t before = 1;  // number of the next line on each side
  size_t after = 1;
  const auto next_change = [&](size_t from) {
    while (from < lines.size() && lines[from].kind == Kind::kSame) {
      ++from;
    }
    return from;
  };
  for (size_t i = 0; i < lines.size();) {
    const size_t change = next_change(i);
    if (change == lines.size()) {
      break;
    }
    const size_t begin = std::max(i, change - std::min(change, context));
    before += begin - i;
    after += begin - i;
    // Changes with at most twice the context between them are one hunk.
    size_t end = change;
    for (size_t next = change; next < lines.size() && (end == change || next <= end + 2 * context);) {
      while (next < lines.size() && lines[next].kind != Kind::kSame) {
        ++next;
      }
      end = next;
      next = next_change(next);
    }
    end = std::min(end + context, lines.size());
    std::string hunk;
    size_t in_before = 0;
    size_t in_after = 0;
    for (i = begin; i < end; ++i) {
      const DiffLine& line = lines[i];
      hunk += line.kind == Kind::kSame ? " " + line.after : line.kind == Kind::kGone ? "-" + line.before : "+" + line.after;
      hunk += "\n";
      in_before += line.kind == Kind::kNew ? 0 : 1;
      in_after += line.kind == Kind::kGone ? 0 : 1;
    }
    text += "@@ -" + std::to_string(before) + "," + std::to_string(in_before) + " +" + std::to_string(after) + "," +
            std::to_string(in_after) + " @@\n" + hunk;
    before += in_before;
    after += in_after;
  }
  return text;
}

}  // namespace sconce::cli
