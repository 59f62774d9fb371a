#include "ir/text/lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace sconce {
namespace {

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

std::string format(size_t line, size_t column, const std::string& message, std::string_view source_line) {
  // A line may be as long as the file, so only the neighborhood is shown.
  constexpr size_t kWidth = 120;
  const size_t begin = column > kWidth ? column - kWidth / 2 : 0;
  const std::string_view shown = source_line.substr(std::min(begin, source_line.size()), kWidth);
  std::string text = std::to_string(line) + ":" + std::to_string(column) + ": " + message + "\n  ";
  std::replace_copy_if(
      shown.begin(), shown.end(), std::back_inserter(text),
      [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }, ' ');
  return text + "\n  " + std::string(column - 1 - std::min(begin, column - 1), ' ') + "^";
}

}  // namespace

ParseError::ParseError(size_t line, size_t column, const std::string& message, std::string_view source_line)
    : std::runtime_error(format(line, column, message, source_line)), line_(line), column_(column) {}

void Lexer::skip_blanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '#') {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++position_;
    } else {
      return;
    }
  }
}

size_t Lexer::position() {
  skip_blanks();
  return position_;
}

bool Lexer::at_end() {
  skip_blanks();
  return position_ == text_.size();
}

bool Lexer::peek(std::string_view token) {
  skip_blanks();
  if (text_.substr(position_, token.size()) != token) {
    return false;
  }
  // A word must end here: "block" does not match the beginning of "blocks".
  const size_t end = position_ + token.size();
  return !is_name_character(token.back()) || end == text_.size() || !is_name_character(text_[end]);
}

bool Lexer::accept(std::string_view token) {
  if (!peek(token)) {
    return false;
  }
  position_ += token.size();
  return true;
}

void Lexer::expect(std::string_view token) {
  if (!accept(token)) {
    fail("expected '" + std::string(token) + "'");
  }
}

std::string_view Lexer::identifier(const char* what) {
  skip_blanks();
  const size_t begin = position_;
  while (position_ < text_.size() && (is_name_character(text_[position_]) || text_.substr(position_, 2) == "::")) {
    position_ += text_[position_] == ':' ? 2 : 1;
  }
  if (begin == position_) {
    fail(std::string("expected ") + what);
  }
  return text_.substr(begin, position_ - begin);
}

std::string_view Lexer::value_name() {
  expect("%");
  const size_t begin = position_;
  while (position_ < text_.size() && is_name_character(text_[position_])) {
    ++position_;
  }
  if (begin == position_) {
    fail("expected a value's name after '%'");
  }
  return text_.substr(begin, position_ - begin);
}

std::string Lexer::string_literal() {
  skip_blanks();
  const size_t begin = position_;
  expect("\"");
  std::string value;
  while (position_ < text_.size() && text_[position_] != '"') {
    char c = text_[position_++];
    if (c == '\\' && position_ < text_.size()) {
      c = text_[position_++];
      switch (c) {
        case 'n': c = '\n'; break;
        case 't': c = '\t'; break;
        case 'r': c = '\r'; break;
        default:
          if (c >= '0' && c <= '7') {
            int code = c - '0';
            for (int digits = 1;
                 digits < 3 && position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '7'; ++digits) {
              code = code * 8 + (text_[position_++] - '0');
            }
            c = static_cast<char>(code);
          }
      }
    }
    value.push_back(c);
  }
  if (position_ == text_.size()) {
    fail_at(begin, "the string is not closed");
  }
  ++position_;
  return value;
}

bool Lexer::peek_number() {
  skip_blanks();
  if (position_ == text_.size()) {
    return false;
  }
  const char c = text_[position_];
  const bool digit_follows =
      position_ + 1 < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[position_ + 1])) != 0 ||
                                       text_[position_ + 1] == '.' || text_[position_ + 1] == 'i');
  // "infj" is the imaginary part of a complex number.
  return std::isdigit(static_cast<unsigned char>(c)) != 0 || (c == '-' && digit_follows) || peek("inf") || peek("nan") ||
         peek("infj") || peek("nanj");
}

std::string_view Lexer::number() {
  if (!peek_number()) {
    fail("expected a number");
  }
  const size_t begin = position_;
  if (text_[position_] == '-' || text_[position_] == '+') {
    ++position_;
  }
  if (text_.substr(position_, 3) == "inf" || text_.substr(position_, 3) == "nan") {
    position_ += 3;
    return text_.substr(begin, position_ - begin);
  }
  const auto digits = [&] {
    while (position_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[position_])) != 0) {
      ++position_;
    }
  };
  digits();
  if (position_ < text_.size() && text_[position_] == '.') {
    ++position_;
    digits();
  }
  if (position_ < text_.size() && (text_[position_] == 'e' || text_[position_] == 'E')) {
    ++position_;
    if (position_ < text_.size() && (text_[position_] == '-' || text_[position_] == '+')) {
      ++position_;
    }
    digits();
  }
  return text_.substr(begin, position_ - begin);
}

int64_t Lexer::integer() {
  const size_t begin = position();
  const std::string_view digits = number();
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc() || result.ptr != digits.data() + digits.size()) {
    fail_at(begin, "expected an integer that fits 64 bits");
  }
  return value;
}

std::string_view Lexer::trailing_comment() {
  size_t at = position_;
  while (at < text_.size() && text_[at] == ' ') {
    ++at;
  }
  if (at == text_.size() || text_[at] != '#') {
    return {};
  }
  const size_t end = std::min(text_.find('\n', at), text_.size());
  std::string_view comment = text_.substr(at + 1, end - at - 1);
  comment.remove_prefix(std::min(comment.find_first_not_of(' '), comment.size()));
  return comment;
}

void Lexer::fail(const std::string& message) { fail_at(position(), message); }

void Lexer::fail_at(size_t position, const std::string& message) const {
  const std::string_view before = text_.substr(0, position);
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t line_begin = before.find_last_of('\n') == std::string_view::npos ? 0 : before.find_last_of('\n') + 1;
  const size_t line_end = std::min(text_.find('\n', line_begin), text_.size());
  throw ParseError(line, position - line_begin + 1, message, text_.substr(line_begin, line_end - line_begin));
}

}  // namespace sconce
