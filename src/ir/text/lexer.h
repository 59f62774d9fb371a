// Lexer: tokens of the text form, and errors that show line, column and a caret.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sconce {

// The limit on nested types and values, so that malformed input cannot exhaust the stack.
inline constexpr size_t kMaxDepth = 200;

// Thrown for malformed text. what() is "LINE:COLUMN: message\n  the line\n      ^".
class ParseError : public std::runtime_error {
 public:
  ParseError(size_t line, size_t column, const std::string& message, std::string_view source_line);
  size_t line() const { return line_; }      // from 1
  size_t column() const { return column_; }  // from 1

 private:
  size_t line_;
  size_t column_;
};

// Skips blanks, newlines and `#` comments before every token.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  bool at_end();
  // Returns whether the next characters are `token`, without consuming them.
  bool peek(std::string_view token);
  // Consumes `token` if it is next, and returns whether it was.
  bool accept(std::string_view token);
  void expect(std::string_view token);

  // A name of letters, digits, `_`, `.`, and `::`; `what` names it in the error ("a type").
  std::string_view identifier(const char* what);
  // The name after a `%`.
  std::string_view value_name();
  // A quoted string with escapes resolved.
  std::string string_literal();
  // The characters of a number: sign, digits, '.', exponent, or inf/nan.
  std::string_view number();
  bool peek_number();
  int64_t integer();

  // Returns the comment after the previous token on its line, without '#'. Empty if there is none, or if a token follows.
  std::string_view trailing_comment();

  size_t position();
  void rewind(size_t position) { position_ = position; }
  [[noreturn]] void fail(const std::string& message);
  [[noreturn]] void fail_at(size_t position, const std::string& message) const;

 private:
  void skip_blanks();
  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace sconce
