// Parses the literals of the text form: attributes and constants. The inverse of print_literal.h.
#pragma once

#include "ir/text/parse.h"

#include <string_view>
#include <vector>

namespace sconce {

class LiteralParser {
 public:
  LiteralParser(Lexer& cursor, TypeParser& types, const ParseOptions& options)
      : cursor_(cursor), types_(types), options_(options) {}

  // Parses an attribute's value. The literal's form determines the kind; all items of a list have one kind.
  AttributeValue parse_attribute();
  // Parses a prim::Constant's value. The type determines how the text is read.
  c10::IValue parse_constant(const c10::TypePtr& type, size_t depth = 0);

 private:
  AttributeValue parse_attribute_list();
  template <typename TypeAt>
  std::vector<c10::IValue> parse_sequence(std::string_view open, std::string_view close, const TypeAt& type_at,
                                          size_t depth);
  c10::IValue parse_number();
  c10::IValue parse_complex();
  c10::IValue parse_reference();

  Lexer& cursor_;
  TypeParser& types_;
  const ParseOptions& options_;
};

}  // namespace sconce
