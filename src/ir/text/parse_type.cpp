#include "ir/text/parse.h"

#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>

#include <map>
#include <sstream>

namespace sconce {
namespace {

const std::map<std::string_view, c10::TypePtr>& simple_types() {
  static const std::map<std::string_view, c10::TypePtr> types = {
      {"int", c10::IntType::get()},
      {"float", c10::FloatType::get()},
      {"bool", c10::BoolType::get()},
      {"complex", c10::ComplexType::get()},
      {"str", c10::StringType::get()},
      {"string", c10::StringType::get()},
      {"Scalar", c10::NumberType::get()},
      {"number", c10::NumberType::get()},
      {"NoneType", c10::NoneType::get()},
      {"Device", c10::DeviceObjType::get()},
      {"Generator", c10::GeneratorType::get()},
      {"Stream", c10::StreamObjType::get()},
      {"Storage", c10::StorageType::get()},
      {"Layout", c10::LayoutType::get()},
      {"ScalarType", c10::ScalarTypeType::get()},
      {"MemoryFormat", c10::MemoryFormatType::get()},
      {"QScheme", c10::QSchemeType::get()},
      {"Quantizer", c10::QuantizerType::get()},
      {"Capsule", c10::CapsuleType::get()},
      {"Any", c10::AnyType::get()},
      {"list", c10::AnyListType::get()},
      {"tuple", c10::AnyTupleType::get()},
      {"AnyClassType", c10::AnyClassType::get()},
      {"AnyEnumType", c10::AnyEnumType::get()},
      // A placeholder, until the constant's name determines the function (Parser::resolve_function).
      {"Function", c10::AnyType::get()},
      {"SymInt", c10::SymIntType::get()},
      {"SymFloat", c10::SymFloatType::get()},
      {"SymBool", c10::SymBoolType::get()},
  };
  return types;
}

std::optional<c10::ScalarType> dtype_of(std::string_view name) {
  for (int8_t i = 0; i < static_cast<int8_t>(c10::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<c10::ScalarType>(i);
    if (dtype != c10::ScalarType::Undefined && name == c10::toString(dtype)) {
      return dtype;
    }
  }
  return std::nullopt;
}

std::optional<c10::Layout> layout_of(std::string_view name) {
  for (const c10::Layout layout : {c10::kStrided, c10::kSparse, c10::kMkldnn, c10::kSparseCsr, c10::kSparseCsc,
                                   c10::kSparseBsr, c10::kSparseBsc, c10::kJagged}) {
    std::ostringstream printed;
    printed << layout;
    if (printed.str() == name) {
      return layout;
    }
  }
  return std::nullopt;
}

Dim parse_dim(Lexer& cursor) {
  if (cursor.accept("*")) {
    return Dim::unknown();
  }
  if (cursor.accept("SS")) {
    cursor.expect("(");
    const int64_t symbol = -cursor.integer();
    if (symbol <= 0) {
      cursor.fail("a symbolic size is written SS(-N)");
    }
    cursor.expect(")");
    return Dim::symbol(symbol);
  }
  return Dim::known(cursor.integer());
}

// Parses the text between the parentheses of a tensor type.
void parse_tensor_fields(Lexer& cursor, TensorFacts& facts, bool sizes_are_known) {
  if (sizes_are_known) {
    facts.sizes.emplace();
  }
  while (!cursor.accept(")")) {
    if (cursor.accept("strides")) {
      cursor.expect("=");
      cursor.expect("[");
      facts.strides.emplace();
      while (!cursor.accept("]")) {
        facts.strides->push_back(parse_dim(cursor));
        cursor.accept(",");
      }
    } else if (cursor.accept("contiguous")) {
      facts.contiguous = true;
    } else if (cursor.accept("number")) {
      facts.is_wrapped_number = facts.sizes && facts.sizes->empty();
      if (!facts.is_wrapped_number) {
        cursor.fail("a number has no dimensions");
      }
    } else if (cursor.accept("requires_grad")) {
      cursor.expect("=");
      facts.requires_grad = cursor.integer() != 0;
    } else if (cursor.accept("device")) {
      cursor.expect("=");
      const size_t begin = cursor.position();
      std::string device(cursor.identifier("a device"));
      if (cursor.accept(":")) {
        device += ":" + std::to_string(cursor.integer());
      }
      try {
        facts.device = c10::Device(device);
      } catch (const c10::Error& error) {
        cursor.fail_at(begin, error.what_without_backtrace());
      }
    } else if (cursor.accept("layout")) {
      cursor.expect("=");
      const size_t begin = cursor.position();
      facts.layout = layout_of(cursor.identifier("a layout"));
      if (!facts.layout) {
        cursor.fail_at(begin, "unknown layout");
      }
    } else if (sizes_are_known) {
      facts.sizes->push_back(parse_dim(cursor));
    } else {
      cursor.fail("expected requires_grad=, device=, strides=, contiguous, number or ')'");
    }
    cursor.accept(",");
  }
}

}  // namespace

ParsedType TypeParser::parse(Lexer& cursor) {
  if (++depth_ > kMaxDepth) {
    cursor.fail("the type is nested too deep");
  }
  const size_t begin = cursor.position();
  try {
    ParsedType parsed = parse_with_suffixes(cursor);
    --depth_;
    return parsed;
  } catch (const c10::Error& error) {
    // LibTorch rejects the type: a class named "a..b", a dict with lists as keys, `NoneType?`.
    cursor.fail_at(begin, error.what_without_backtrace());
  }
}

ParsedType TypeParser::parse_with_suffixes(Lexer& cursor) {
  ParsedType parsed = parse_base(cursor);
  for (size_t suffixes = 0; suffixes < kMaxDepth; ++suffixes) {
    if (cursor.accept("[]")) {
      parsed = {c10::ListType::create(parsed.type), {}};
    } else if (cursor.accept("?")) {
      parsed = {c10::OptionalType::create(parsed.type), {}};
    } else {
      return parsed;
    }
  }
  cursor.fail("the type is nested too deep");
}

c10::TypePtr TypeParser::parse_nested(Lexer& cursor) { return parse(cursor).type; }

ParsedType TypeParser::parse_base(Lexer& cursor) {
  if (cursor.accept("(")) {
    std::vector<c10::TypePtr> elements;
    while (!cursor.accept(")")) {
      elements.push_back(parse_nested(cursor));
      if (!cursor.peek(")")) {
        cursor.expect(",");
      }
    }
    return {c10::TupleType::create(std::move(elements)), {}};
  }
  const size_t begin = cursor.position();
  const std::string_view name = cursor.identifier("a type");
  if (const auto simple = simple_types().find(name); simple != simple_types().end()) {
    return {simple->second, {}};
  }
  const bool ends_in_tensor = name.ends_with("Tensor");
  if (name == "Tensor" || dtype_of(name) || (ends_in_tensor && dtype_of(name.substr(0, name.size() - 6)))) {
    return parse_tensor(cursor, name);
  }
  if (c10::TypePtr named = parse_named(cursor, name)) {
    return {std::move(named), {}};
  }
  cursor.fail_at(begin, "unknown type '" + std::string(name) + "'");
}

ParsedType TypeParser::parse_tensor(Lexer& cursor, std::string_view name) {
  ParsedType parsed{c10::TensorType::get(), {}};
  const bool rank_is_unknown = name.ends_with("Tensor") && name != "Tensor";
  if (rank_is_unknown) {
    parsed.facts.dtype = dtype_of(name.substr(0, name.size() - 6));
  } else if (name != "Tensor") {
    parsed.facts.dtype = dtype_of(name);
  }
  if (cursor.accept("(")) {
    // `Tensor(device=cpu)` has no rank; `Tensor(2, 3)` and `Float()` have one.
    const bool only_fields = cursor.peek("requires_grad") || cursor.peek("device") || cursor.peek("layout");
    parse_tensor_fields(cursor, parsed.facts, !rank_is_unknown && !(name == "Tensor" && only_fields));
  }
  if (cursor.accept("[Undefined]")) {
    parsed.facts.defined = false;
  }
  return parsed;
}

c10::TypePtr TypeParser::parse_named(Lexer& cursor, std::string_view name) {
  if (name == "Dict" || name == "Future" || name == "RRef" || name == "Await") {
    cursor.expect("(");
    const c10::TypePtr first = parse_nested(cursor);
    c10::TypePtr type;
    if (name == "Dict") {
      cursor.expect(",");
      type = c10::DictType::create(first, parse_nested(cursor));
    } else if (name == "Future") {
      type = c10::FutureType::create(first);
    } else if (name == "RRef") {
      type = c10::RRefType::create(first);
    } else {
      type = c10::AwaitType::create(first);
    }
    cursor.expect(")");
    return type;
  }
  if (name == "Union") {
    // LibTorch prints Union(int, str) in graphs and Union[int, str] in schemas.
    const bool round = cursor.accept("(");
    if (!round) {
      cursor.expect("[");
    }
    std::vector<c10::TypePtr> members;
    do {
      members.push_back(parse_nested(cursor));
    } while (cursor.accept(","));
    cursor.expect(round ? ")" : "]");
    return c10::UnionType::create(std::move(members));
  }
  if (name.find('.') == std::string_view::npos) {
    return nullptr;
  }
  const std::string qualified(name);
  if (options_.resolve_type) {
    if (c10::TypePtr type = options_.resolve_type(qualified)) {
      return type;
    }
  }
  c10::ClassTypePtr& declared = declared_[qualified];
  if (!declared) {
    declared = c10::ClassType::create(c10::QualifiedName(qualified), {}, /*is_module=*/true);
  }
  return declared;
}

void TypeParser::declare_attribute(const c10::TypePtr& owner, const std::string& name, const c10::TypePtr& type) {
  const auto class_type = owner->cast<c10::ClassType>();
  if (!class_type || !class_type->name()) {
    return;
  }
  const auto found = declared_.find(class_type->name()->qualifiedName());
  if (found != declared_.end() && found->second == class_type && !class_type->findAttribute(name)) {
    class_type->addAttribute(name, type);
  }
}

}  // namespace sconce
