// Text form → Graph: the inverse of print.h.
#pragma once

#include "ir/graph.h"
#include "ir/text/lexer.h"

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace sconce {

struct ParseOptions {
  // The class, interface, enum or named tuple of a qualified name. Names it does not know (null), and all names when it
  // is empty, become classes whose attributes are declared by the GetAttr and SetAttr nodes of the text.
  std::function<c10::TypePtr(const std::string& qualified_name)> resolve_type;
  // The type of the function that `%f : Function = prim::Constant[name="…"]()` names. Names it does not know are an error.
  std::function<c10::TypePtr(const std::string& qualified_name)> resolve_function;
  // What `<Tensor:0>` stands for, see PrintOptions::constants.
  const std::vector<c10::IValue>* constants = nullptr;
  // An operator that the registry does not have is an error; when false its node is left without schema.
  bool require_schemas = true;
};

// Throws ParseError on malformed text, with line, column and caret. The graph is not verified (verify.h).
std::unique_ptr<Graph> parse(std::string_view text, const ParseOptions& options = {});

// A type alone, facts included: "Float(2, *, device=cpu)", "Dict(str, Tensor)[]".
struct ParsedType {
  c10::TypePtr type;
  TensorFacts facts;
};

// Reads types; keeps the classes it had to declare, so that equal names give the same class.
class TypeParser {
 public:
  explicit TypeParser(const ParseOptions& options) : options_(options) {}
  ParsedType parse(Lexer& cursor);
  // Adds an attribute to a class that this parser declared; other types are left alone.
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
