// Parses the text form of a graph: the inverse of print.h.
#pragma once

#include "ir/graph.h"
#include "ir/text/lexer.h"

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace sconce {

struct ParseOptions {
  // Returns the class, interface, enum or named tuple of a qualified name, or null. For null, and if this function is empty,
  // the name becomes a class whose attributes are declared by the GetAttr and SetAttr nodes of the text.
  std::function<c10::TypePtr(const std::string& qualified_name)> resolve_type;
  // Returns the type of the function that `%f : Function = prim::Constant[name="…"]()` names. Null is an error.
  std::function<c10::TypePtr(const std::string& qualified_name)> resolve_function;
  // The values of `<Tensor:0>`, …; see PrintOptions::constants.
  const std::vector<c10::IValue>* constants = nullptr;
  // If true, an operator that the registry lacks is an error. If false, its node gets no schema.
  bool require_schemas = true;
};

// Parses a graph. Throws ParseError for malformed text. Does not verify the graph (verify.h).
std::unique_ptr<Graph> parse(std::string_view text, const ParseOptions& options = {});

// A type with its facts: "Float(2, *, device=cpu)", "Dict(str, Tensor)[]".
struct ParsedType {
  c10::TypePtr type;
  TensorFacts facts;
};

// Parses types. Keeps the classes it declares, so that equal names mean one class.
class TypeParser {
 public:
  explicit TypeParser(const ParseOptions& options) : options_(options) {}
  ParsedType parse(Lexer& cursor);
  // Adds an attribute to a class that this parser declared. Does nothing for other types.
  void declare_attribute(const c10::TypePtr& owner, const std::string& name, const c10::TypePtr& type);

 private:
  ParsedType parse_with_suffixes(Lexer& cursor);
  ParsedType parse_base(Lexer& cursor);
  ParsedType parse_tensor(Lexer& cursor, std::string_view name);
  c10::TypePtr parse_nested(Lexer& cursor);
  c10::TypePtr parse_named(Lexer& cursor, std::string_view name);

  const ParseOptions& options_;
  std::unordered_map<std::string, c10::ClassTypePtr> declared_;
  size_t depth_ = 0;
};

}  // namespace sconce
