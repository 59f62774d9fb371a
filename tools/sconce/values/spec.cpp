#include "tools/sconce/values/spec.h"

#include "base/exception_message.h"
#include "base/nearest_name.h"
#include "report/number_format.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/spec_dtypes.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace sconce::cli {
namespace {

class SpecParser {
 public:
  SpecParser(std::string_view text, at::Generator& generator) : text_(text), generator_(generator) {}

  c10::IValue parse() {
    c10::IValue result = value();
    if (!at_end()) {
      fail("nothing should follow here");
    }
    return result;
  }

 private:
  c10::IValue value() {
    if (++depth_ > kMaxNested) {
      fail("nested too deeply");
    }
    c10::IValue result = one_value();
    --depth_;
    return result;
  }

  c10::IValue one_value() {
    skip_blanks();
    if (accept('(')) {
      return c10::ivalue::Tuple::create(elements(')'));
    }
    if (accept('[')) {
      return list(elements(']'));
    }
    if (accept('{')) {
      return dict();
    }
    if (peek() == '"') {
      return text_literal();
    }
    const size_t start = position_;
    if (const auto number = accept_number()) {
      return *number;
    }
    const std::string_view word = accept_word();
    if (word == "true" || word == "false") {
      return word == "true";
    }
    if (word == "none" || word == "None") {
      return {};
    }
    if (const SpecDtype* dtype = find_spec_dtype(word)) {
      return tensor(*dtype);
    }
    position_ = start;
    if (word.empty()) {
      fail(at_end() ? "a value is missing" : "this is no value");
    }
    std::vector<std::string> names = {"true", "false", "none"};
    for (const SpecDtype& dtype : spec_dtypes()) {
      names.emplace_back(dtype.name);
    }
    if (const auto reason = why_no_spec_dtype(word)) {
      fail(*reason + "; make the tensor in Python and give it with --inputs FILE");
    }
    fail("'" + std::string(word) + "' is neither a dtype nor a value" + did_you_mean(word, names));
  }

  std::vector<c10::IValue> elements(char close) {
    std::vector<c10::IValue> values;
    while (!accept(close)) {
      values.push_back(value());
      if (!accept(',') && peek() != close) {
        fail(std::string("expected ',' or '") + close + "'");
      }
    }
    return values;
  }

  static c10::TypePtr common_type(const std::vector<c10::IValue>& values) {
    if (values.empty()) {
      return c10::AnyType::get();
    }
    const c10::TypePtr first = values.front().isTensor() ? c10::TensorType::get() : values.front().type();
    for (const c10::IValue& each : values) {
      if (!each.type()->isSubtypeOf(*first)) {
        return c10::AnyType::get();
      }
    }
    return first;
  }

  static c10::IValue list(const std::vector<c10::IValue>& values) {
    c10::impl::GenericList result(common_type(values));
    for (const c10::IValue& each : values) {
      result.push_back(each);
    }
    return result;
  }

  c10::IValue dict() {
    std::vector<c10::IValue> keys;
    std::vector<c10::IValue> values;
    while (!accept('}')) {
      keys.push_back(value());
      if (!keys.back().isString() && !keys.back().isInt() && !keys.back().isDouble() && !keys.back().isBool()) {
        fail("a key must be a text, a number, true or false");
      }
      if (!accept(':')) {
        fail("expected ':' after the key");
      }
      values.push_back(value());
      if (!accept(',') && peek() != '}') {
        fail("expected ',' or '}'");
      }
    }
    const c10::TypePtr key_type = keys.empty() ? c10::TypePtr(c10::StringType::get()) : common_type(keys);
    if (key_type->kind() == c10::TypeKind::AnyType) {
      fail("the keys of a dict must be of one kind");
    }
    c10::impl::GenericDict result(key_type, common_type(values));
    for (size_t i = 0; i < keys.size(); ++i) {
      result.insert_or_assign(keys[i], values[i]);
    }
    return result;
  }

  c10::IValue text_literal() {
    std::string text;
    for (++position_; position_ < text_.size() && text_[position_] != '"'; ++position_) {
      if (text_[position_] == '\\' && position_ + 1 < text_.size()) {
        const char escaped = text_[++position_];
        text += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
      } else {
        text += text_[position_];
      }
    }
    if (position_ >= text_.size()) {
      fail("the closing '\"' is missing");
    }
    ++position_;
    return text;
  }

  c10::IValue tensor(const SpecDtype& dtype) {
    if (!accept('[')) {
      fail("a dtype is followed by its sizes, as in float32[1,3,224,224]");
    }
    std::vector<int64_t> sizes;
    while (!accept(']')) {
      const auto size = accept_number();
      if (!size || !size->isInt() || size->toInt() < 0) {
        fail("a size must be a whole number, not negative");
      }
      sizes.push_back(size->toInt());
      if (!accept(',') && peek() != ']') {
        fail(peek() == '.' ? "a range of sizes is for `sconce bench` alone" : "expected ',' or ']'");
      }
    }
    try {
      return (accept('=') ? filled(dtype, sizes) : random(dtype, sizes)).to(dtype.dtype);
    } catch (const c10::Error& failure) {
      fail(reason_of(one_line_message(failure)));
    }
  }

  // Returns what LibTorch says: that a value is out of range, or how much memory it could not allocate.
  static std::string reason_of(const std::string& message) {
    const std::string asked = "you tried to allocate ";
    const size_t bytes = message.find(asked);
    return bytes == std::string::npos
               ? message
               : "not enough memory: it needs " + format_bytes(std::strtod(message.c_str() + bytes + asked.size(), nullptr));
  }

  at::Tensor random(const SpecDtype& dtype, at::IntArrayRef sizes) {
    if (c10::isIntegralType(dtype.dtype, /*includeBool=*/true)) {
      return at::randint(0, dtype.dtype == c10::kBool ? 2 : 10, sizes, generator_, at::TensorOptions(dtype.made_in));
    }
    return at::randn(sizes, generator_, at::TensorOptions(dtype.made_in));
  }

  at::Tensor filled(const SpecDtype& dtype, at::IntArrayRef sizes) {
    skip_blanks();
    const size_t start = position_;
    const at::TensorOptions made(dtype.made_in);
    const auto low = accept_number();
    if (!low) {
      const std::string_view word = accept_word();
      if (word == "zeros" || word == "ones") {
        return at::full(sizes, word == "ones" ? 1 : 0, made);
      }
      if (dtype.dtype == c10::kBool && (word == "true" || word == "false")) {
        return at::full(sizes, word == "true", made);
      }
      if (word == "arange") {
        const int64_t count = c10::multiply_integers(sizes);
        expect_value(dtype, std::max<int64_t>(count - 1, 0), start);
        return at::arange(count, at::TensorOptions(c10::kDouble)).to(dtype.made_in).view(sizes);
      }
      position_ = start;
      fail("after '=' comes zeros, ones, arange, a number, or a range as in 0..10");
    }
    if (!accept('.', '.')) {
      expect_value(dtype, low->toScalar(), start);
      return at::full(sizes, low->toScalar(), made);
    }
    skip_blanks();
    return uniform(dtype, sizes, *low, start);
  }

  // Parses the rest of LOW.., which begins at `start`.
  at::Tensor uniform(const SpecDtype& dtype, at::IntArrayRef sizes, const c10::IValue& low, size_t start) {
    const size_t high_start = position_;
    const auto high = accept_number();
    if (!high) {
      fail("the end of the range is missing");
    }
    const double from = low.toScalar().toDouble();
    const double to = high->toScalar().toDouble();
    if (!std::isfinite(from) || !std::isfinite(to)) {
      fail_at(std::isfinite(from) ? high_start : start, "a range ends at finite numbers");
    }
    if (!(to > from)) {
      fail("the end of the range must be above its beginning");
    }
    expect_value(dtype, low.toScalar(), start);
    if (c10::isIntegralType(dtype.dtype, /*includeBool=*/true)) {
      if (!low.isInt() || !high->isInt()) {
        fail("the range of an integer tensor must be of whole numbers");
      }
      expect_value(dtype, high->toInt() - 1, high_start);
      return at::randint(low.toInt(), high->toInt(), sizes, generator_, at::TensorOptions(dtype.made_in));
    }
    expect_value(dtype, high->toScalar(), high_start);
    return (at::rand(sizes, generator_, at::TensorOptions(c10::kDouble)) * (to - from) + from).to(dtype.made_in);
  }

  void expect_value(const SpecDtype& dtype, const c10::Scalar& value, size_t start) {
    if (const auto reason = why_no_value(dtype, value)) {
      fail_at(start, *reason);
    }
  }

  // Stops before "..", so that 0..10 is a range.
  std::optional<c10::IValue> accept_number() {
    skip_blanks();
    const std::string_view rest = text_.substr(position_);
    const bool negative = !rest.empty() && rest[0] == '-';
    for (const std::string_view word : {"inf", "nan"}) {
      const size_t length = word.size() + (negative ? 1 : 0);
      const bool is_word = rest.substr(negative ? 1 : 0, word.size()) == word &&
                           (rest.size() == length || std::isalnum(static_cast<unsigned char>(rest[length])) == 0);
      if (is_word) {
        position_ += length;
        const double number = word == "inf" ? std::numeric_limits<double>::infinity() : std::nan("");
        return negative ? -number : number;
      }
    }
    size_t length = negative || (!rest.empty() && rest[0] == '+') ? 1 : 0;
    const size_t digits = length;
    bool is_float = false;
    for (; length < rest.size(); ++length) {
      const char c = rest[length];
      const bool exponent = (c == 'e' || c == 'E') && length > digits;
      const bool point = c == '.' && rest.substr(length, 2) != "..";
      const bool sign = (c == '-' || c == '+') && length > 0 && (rest[length - 1] == 'e' || rest[length - 1] == 'E');
      if (std::isdigit(static_cast<unsigned char>(c)) == 0 && !exponent && !point && !sign) {
        break;
      }
      is_float = is_float || exponent || point;
    }
    if (length == digits) {
      return std::nullopt;
    }
    const std::string_view digits_text = rest.substr(rest[0] == '+' ? 1 : 0, length - (rest[0] == '+' ? 1 : 0));
    int64_t whole = 0;
    double real = 0;
    const char* end = digits_text.data() + digits_text.size();
    const auto result =
        is_float ? std::from_chars(digits_text.data(), end, real) : std::from_chars(digits_text.data(), end, whole);
    if (result.ec != std::errc() || result.ptr != end) {
      fail("'" + std::string(digits_text) + "' is no number" + (is_float ? "" : " of 64 bits"));
    }
    position_ += length;
    return is_float ? c10::IValue(real) : c10::IValue(whole);
  }

  std::string_view accept_word() {
    skip_blanks();
    const size_t start = position_;
    while (position_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[position_])) != 0 || text_[position_] == '_')) {
      ++position_;
    }
    return text_.substr(start, position_ - start);
  }

  void skip_blanks() {
    while (position_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[position_])) != 0) {
      ++position_;
    }
  }
  bool at_end() {
    skip_blanks();
    return position_ >= text_.size();
  }
  char peek() {
    skip_blanks();
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  bool accept(char c) {
    const bool is_next = peek() == c && position_ < text_.size();
    position_ += is_next ? 1 : 0;
    return is_next;
  }
  bool accept(char first, char second) {
    const bool is_next = peek() == first && text_.substr(position_, 2).back() == second && text_.size() - position_ >= 2;
    position_ += is_next ? 2 : 0;
    return is_next;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError("bad SPEC '" + std::string(text_) + "' at character " + std::to_string(position_ + 1) + ": " + what);
  }

  [[noreturn]] void fail_at(size_t position, const std::string& what) {
    position_ = position;
    fail(what);
  }

  static constexpr int kMaxNested = 100;
  const std::string_view text_;
  at::Generator& generator_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace

c10::IValue parse_spec(const std::string& spec, at::Generator& generator) { return SpecParser(spec, generator).parse(); }

const char* const kSpecHelp =
    "SPEC, one argument of the model:\n"
    "  float32[1,3,224,224]      random tensor (normal; integers 0 to 9; bool)\n"
    "  int64[1,128]=0..30000     random tensor, 0 <= x < 30000\n"
    "  float32[4]=zeros          also =ones, =arange, =2.5\n"
    "                            dtypes: float16 to float64, bfloat16, float8_e4m3fn and _e5m2, complex32 to\n"
    "                            complex128, int8 to int64, uint8 to uint64, bool\n"
    "  3   2.5   true   \"text\"   none     a text also names a device or a member of an enum\n"
    "  (SPEC, SPEC)   [SPEC, SPEC]   {\"key\": SPEC}\n"
    "  Quote them for the shell: --input 'float32[2,3]' --input '\"text\"'. The same --seed gives the same\n"
    "  numbers.\n";

}  // namespace sconce::cli
