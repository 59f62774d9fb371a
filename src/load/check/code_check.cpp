#include "load/check/code_check.h"

#include "load/check/zip_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace sconce {
namespace {

constexpr size_t kDeepestBrackets = 200;
constexpr size_t kDeepestIndentation = 600;  // columns; LibTorch writes two per block
constexpr size_t kLongestExpression = 1000;  // operators; the tree of a sum is as deep as its number of terms

class CodeCheck {
 public:
  explicit CodeCheck(std::string_view code) : code_(code) {}

  void run() {
    while (position_ < code_.size()) {
      const char letter = code_[position_];
      if (letter == '"' || letter == '\'') {
        skip_text(letter);
      } else if (letter == '#') {
        position_ = std::min(code_.find('\n', position_), code_.size());
      } else if (letter == '\n') {
        ++position_;
        begin_line();
      } else if (is_word_letter(letter)) {
        read_word();
      } else {
        count(letter);
        ++position_;
      }
    }
  }

 private:
  static bool is_word_letter(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_'; }

  // Moves past the end of the string. A string in single quotes ends at the end of the line, even if it is
  // unterminated.
  void skip_text(char quote) {
    const std::string three(3, quote);
    if (code_.substr(position_).starts_with(three)) {
      const size_t end = code_.find(three, position_ + 3);
      position_ = end == std::string_view::npos ? code_.size() : end + 3;
      return;
    }
    for (++position_; position_ < code_.size() && code_[position_] != '\n'; ++position_) {
      if (code_[position_] == quote) {
        ++position_;
        return;
      }
      position_ += code_[position_] == '\\' ? 1 : 0;
    }
  }

  void begin_line() {
    const size_t text = std::min(code_.find_first_not_of(" \t", position_), code_.size());
    if (depth_ == 0) {
      operators_ = 0;
      require(text - position_ <= kDeepestIndentation, "its blocks are nested too deeply");
    }
    position_ = text;
  }

  void read_word() {
    const size_t begin = position_;
    while (position_ < code_.size() && is_word_letter(code_[position_])) {
      ++position_;
    }
    static constexpr std::array<std::string_view, 8> kOperators = {"not", "if", "else", "and", "or", "in", "is", "lambda"};
    if (std::find(kOperators.begin(), kOperators.end(), code_.substr(begin, position_ - begin)) != kOperators.end()) {
      add_operator();
    }
  }

  void count(char letter) {
    switch (letter) {
      case '(':
      case '[':
      case '{':
        ++depth_;
        require(depth_ <= kDeepestBrackets, "its brackets are nested more than 200 deep");
        add_operator();  // f()()() is nested, too
        break;
      case ')':
      case ']':
      case '}': depth_ -= depth_ > 0 ? 1 : 0; break;
      case ',': operators_ = 0; break;
      default:
        if (std::string_view("+-*/~%&|^<>=.@").find(letter) != std::string_view::npos) {
          add_operator();
        }
    }
  }

  void add_operator() {
    ++operators_;
    require(operators_ <= kLongestExpression, "an expression has more than 1000 operators");
  }

  static void require(bool condition, const char* problem) {
    if (!condition) {
      throw MalformedArchive(problem);
    }
  }

  std::string_view code_;
  size_t position_ = 0;
  size_t depth_ = 0;
  size_t operators_ = 0;  // since the last comma or statement
};

}  // namespace

void check_code(std::string_view code) { CodeCheck(code).run(); }

}  // namespace sconce
