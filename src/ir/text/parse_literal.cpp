#include "ir/text/parse_literal.h"

#include "ir/text/gradient_text.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/scalar_tensor.h>

#include <charconv>
#include <limits>
#include <utility>

namespace sconce {
namespace {

double to_double(Lexer& cursor, std::string_view digits) {
  const bool negative = digits.starts_with('-');
  if (digits.ends_with("inf")) {
    return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  }
  if (digits.ends_with("nan")) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc() || result.ptr != digits.data() + digits.size()) {
    cursor.fail("malformed number '" + std::string(digits) + "'");
  }
  return value;
}

bool is_floating_literal(std::string_view digits) { return digits.find_first_of(".eEn") != std::string_view::npos; }

}  // namespace

AttributeValue LiteralParser::parse_attribute() {
  if (cursor_.accept("[")) {
    return parse_attribute_list();
  }
  if (cursor_.peek("{")) {
    return std::make_shared<const GradientSignature>(parse_gradient(cursor_));
  }
  if (cursor_.peek("\"")) {
    return cursor_.string_literal();
  }
  if (cursor_.peek_number()) {
    const size_t begin = cursor_.position();
    const std::string_view digits = cursor_.number();
    if (is_floating_literal(digits)) {
      return to_double(cursor_, digits);
    }
    cursor_.rewind(begin);
    return cursor_.integer();
  }
  return types_.parse(cursor_).type;
}

AttributeValue LiteralParser::parse_attribute_list() {
  std::vector<int64_t> integers;
  std::vector<double> doubles;
  std::vector<std::string> strings;
  std::vector<c10::TypePtr> type_list;
  while (!cursor_.accept("]")) {
    if (cursor_.peek("[") || cursor_.peek("{")) {
      cursor_.fail("an attribute is no list of lists or of gradient signatures");
    }
    AttributeValue item = parse_attribute();
    if (auto* integer = std::get_if<int64_t>(&item)) {
      integers.push_back(*integer);
    } else if (auto* number = std::get_if<double>(&item)) {
      doubles.push_back(*number);
    } else if (auto* text = std::get_if<std::string>(&item)) {
      strings.push_back(*text);
    } else {
      type_list.push_back(std::get<c10::TypePtr>(item));
    }
    if (!cursor_.peek("]")) {
      cursor_.expect(",");
    }
  }
  const int kinds = static_cast<int>(!integers.empty()) + static_cast<int>(!doubles.empty()) +
                    static_cast<int>(!strings.empty()) + static_cast<int>(!type_list.empty());
  if (kinds > 1) {
    cursor_.fail("the list mixes kinds of values");
  }
  if (!doubles.empty()) {
    return doubles;
  }
  if (!strings.empty()) {
    return strings;
  }
  if (!type_list.empty()) {
    return type_list;
  }
  return integers;
}

template <typename TypeAt>
std::vector<c10::IValue> LiteralParser::parse_sequence(std::string_view open, std::string_view close, const TypeAt& type_at,
                                                       size_t depth) {
  std::vector<c10::IValue> items;
  cursor_.expect(open);
  while (!cursor_.accept(close)) {
    const c10::TypePtr type = type_at(items.size());
    if (!type) {
      cursor_.fail("the tuple has more elements than its type");
    }
    items.push_back(parse_constant(type, depth + 1));
    if (!cursor_.peek(close)) {
      cursor_.expect(",");
    }
  }
  return items;
}

c10::IValue LiteralParser::parse_constant(const c10::TypePtr& type, size_t depth) {
  if (depth > kMaxDepth) {
    cursor_.fail("the constant is nested too deep");
  }
  if (cursor_.peek("<")) {
    return parse_reference();
  }
  const bool may_be_none = type->kind() == c10::TypeKind::OptionalType || type->kind() == c10::TypeKind::NoneType ||
                           type->kind() == c10::TypeKind::UnionType || type->kind() == c10::TypeKind::AnyType;
  if (may_be_none && cursor_.accept("None")) {
    return {};
  }
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      return parse_constant(type->expectRef<c10::OptionalType>().getElementType(), depth + 1);
    case c10::TypeKind::IntType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType: return cursor_.integer();
    case c10::TypeKind::BoolType: return cursor_.integer() != 0;
    case c10::TypeKind::FloatType: return to_double(cursor_, cursor_.number());
    case c10::TypeKind::ComplexType: return parse_complex();
    case c10::TypeKind::NumberType: return parse_number();
    case c10::TypeKind::StringType: return cursor_.string_literal();
    case c10::TypeKind::DeviceObjType: {
      const size_t begin = cursor_.position();
      try {
        return c10::Device(cursor_.string_literal());
      } catch (const c10::Error& error) {
        cursor_.fail_at(begin, error.what_without_backtrace());
      }
    }
    case c10::TypeKind::TensorType: {
      cursor_.expect("{");
      const c10::IValue number = parse_number();
      cursor_.expect("}");
      return at::scalar_tensor(number.toScalar(), number.isInt() ? at::kLong : at::kDouble);
    }
    case c10::TypeKind::ListType: {
      const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
      c10::impl::GenericList list(element);
      for (c10::IValue& item : parse_sequence("[", "]", [&](size_t) { return element; }, depth)) {
        list.push_back(std::move(item));
      }
      return list;
    }
    case c10::TypeKind::TupleType: {
      const auto elements = type->expectRef<c10::TupleType>().elements();
      auto items =
          parse_sequence("(", ")", [&](size_t i) { return i < elements.size() ? elements[i] : c10::TypePtr(); }, depth);
      return c10::ivalue::Tuple::create(std::move(items));
    }
    default: cursor_.fail("a constant of type " + type->str() + " has no literal form");
  }
}

c10::IValue LiteralParser::parse_number() {
  const size_t begin = cursor_.position();
  const std::string_view digits = cursor_.number();
  if (is_floating_literal(digits)) {
    return to_double(cursor_, digits);
  }
  cursor_.rewind(begin);
  return cursor_.integer();
}

c10::IValue LiteralParser::parse_complex() {
  const double real = to_double(cursor_, cursor_.number());
  cursor_.accept("+");
  const double imaginary = to_double(cursor_, cursor_.number());
  cursor_.expect("j");
  return c10::complex<double>(real, imaginary);
}

c10::IValue LiteralParser::parse_reference() {
  const size_t begin = cursor_.position();
  cursor_.expect("<");
  cursor_.identifier("a kind of value");
  if (!cursor_.accept(":")) {
    cursor_.fail_at(
        begin, "the text leaves this constant's value out; 'sconce dump MODEL --output FILE' writes it beside the text");
  }
  const int64_t index = cursor_.integer();
  cursor_.expect(">");
  if (options_.constants == nullptr || index < 0 || static_cast<size_t>(index) >= options_.constants->size()) {
    cursor_.fail_at(begin, "constant " + std::to_string(index) + " is not among the constants given with the text");
  }
  return (*options_.constants)[static_cast<size_t>(index)];
}

}  // namespace sconce
