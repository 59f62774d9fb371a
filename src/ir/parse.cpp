#include "ir/parse.h"

#include "ir/schema_match.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/scalar_tensor.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace sconce {
namespace {

constexpr size_t kMaxDepth = 200;

double to_double(TextCursor& cursor, std::string_view digits) {
  const bool negative = digits.starts_with('-');
  if (digits.ends_with("inf")) {
    return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  }
  if (digits.ends_with("nan")) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ptr != digits.data() + digits.size()) {
    cursor.fail("malformed number '" + std::string(digits) + "'");
  }
  return value;
}

bool is_floating_literal(std::string_view digits) { return digits.find_first_of(".eEn") != std::string_view::npos; }

class Parser {
 public:
  Parser(std::string_view text, const ParseOptions& options) : options_(options), cursor_(text), types_(options) {}

  std::unique_ptr<Graph> parse() {
    auto graph = parse_graph();
    // Subgraphs are numbered through the whole text and stand behind the graph in that order.
    while (cursor_.accept("with")) {
      const size_t begin = cursor_.position();
      const std::string name(cursor_.identifier("the name of a subgraph"));
      cursor_.expect("=");
      const auto found = subgraph_users_.find(name);
      if (found == subgraph_users_.end()) {
        cursor_.fail_at(begin, "no node uses the subgraph " + name);
      }
      Node* user = found->second;
      subgraph_users_.erase(found);
      user->set_attribute(attr::kSubgraph, std::shared_ptr<Graph>(parse_graph()));
    }
    if (!subgraph_users_.empty()) {
      cursor_.fail("the subgraph " + subgraph_users_.begin()->first + " is missing");
    }
    if (!cursor_.at_end()) {
      cursor_.fail("expected the end of the text");
    }
    return graph;
  }

 private:
  using Scope = std::unordered_map<std::string, Value*>;

  std::unique_ptr<Graph> parse_graph() {
    auto graph = std::make_unique<Graph>();
    scope_.clear();
    defined_in_order_.clear();
    cursor_.expect("graph");
    parse_params(graph->body());
    while (!cursor_.peek("return")) {
      parse_node(*graph, graph->body(), 0);
    }
    cursor_.expect("return");
    parse_returns(graph->body());
    return graph;
  }

  void parse_params(Block& block) {
    cursor_.expect("(");
    while (!cursor_.accept(")")) {
      Definition definition = parse_definition();
      Value* param = block.add_param(definition.parsed.type);
      describe(*param, definition);
      define(definition, param);
      if (!cursor_.peek(")")) {
        cursor_.expect(",");
      }
    }
    cursor_.expect(":");
  }

  // `%name : Type`, read before the node or block that defines it exists.
  struct Definition {
    size_t begin;
    std::string name;
    ParsedType parsed;
  };

  Definition parse_definition() {
    const size_t begin = cursor_.position();
    std::string name(cursor_.value_name());
    cursor_.expect(":");
    return {begin, std::move(name), types_.parse(cursor_)};
  }

  // A number printed for a nameless value becomes its name, which keeps the text stable.
  static void describe(Value& value, Definition& definition) {
    value.set_facts(std::move(definition.parsed.facts));
    value.set_name(definition.name);
  }

  void define(const Definition& definition, Value* value) {
    if (!scope_.emplace(definition.name, value).second) {
      cursor_.fail_at(definition.begin, "%" + definition.name + " is defined twice");
    }
    defined_in_order_.push_back(definition.name);
  }

  Value* parse_use() {
    const size_t begin = cursor_.position();
    const std::string name(cursor_.value_name());
    const auto found = scope_.find(name);
    if (found == scope_.end()) {
      cursor_.fail_at(begin, "%" + name + " is not defined here");
    }
    return found->second;
  }

  void parse_returns(Block& block) {
    cursor_.expect("(");
    while (!cursor_.accept(")")) {
      block.add_return(parse_use());
      if (!cursor_.peek(")")) {
        cursor_.expect(",");
      }
    }
  }

  void parse_node(Graph& graph, Block& block, size_t depth) {
    std::vector<Definition> definitions;
    while (cursor_.peek("%")) {
      definitions.push_back(parse_definition());
      cursor_.accept(",");
    }
    cursor_.expect("=");
    const size_t kind_begin = cursor_.position();
    std::string kind(cursor_.identifier("an operator"));
    if (kind.find("::") == std::string::npos) {
      cursor_.fail_at(kind_begin, "expected an operator with its namespace, like aten::add");
    }
    const std::string subgraph = split_subgraph_name(kind);
    Node* node = graph.create(c10::Symbol::fromQualString(kind), {}, 0);
    for (Definition& definition : definitions) {
      describe(*node->add_output(definition.parsed.type), definition);
    }
    if (!subgraph.empty()) {
      subgraph_users_[subgraph] = node;
    }
    if (cursor_.accept("[")) {
      parse_attributes(*node);
    }
    cursor_.expect("(");
    while (!cursor_.accept(")")) {
      node->add_input(parse_use());
      if (!cursor_.peek(")")) {
        cursor_.expect(",");
      }
    }
    parse_location(*node);
    node->append_to(block);
    while (cursor_.peek("block" + std::to_string(node->blocks().size()))) {
      parse_block(graph, *node, depth);
    }
    // Only now: a node's blocks do not see its outputs.
    for (size_t i = 0; i < definitions.size(); ++i) {
      define(definitions[i], node->output(i));
    }
    declare_attributes(*node);
    if (subgraph.empty() && !is_language_kind(node->kind())) {
      node->set_schema(match_schema(*node));
      if (node->schema() == nullptr && options_.require_schemas) {
        cursor_.fail_at(kind_begin, explain_no_match(*node));
      }
    }
  }

  // "prim::DifferentiableGraph_0" names its subgraph: takes the number off `kind` and returns the whole name.
  static std::string split_subgraph_name(std::string& kind) {
    const size_t underscore = kind.find_last_of('_');
    if (!kind.starts_with("prim::") || underscore == std::string::npos || underscore + 1 == kind.size() ||
        kind.find_first_not_of("0123456789", underscore + 1) != std::string::npos) {
      return {};
    }
    std::string name = kind;
    kind.resize(underscore);
    return name;
  }

  void parse_block(Graph& graph, Node& owner, size_t depth) {
    if (depth > kMaxDepth) {
      cursor_.fail("blocks are nested too deep");
    }
    cursor_.identifier("a block");
    const size_t outer = defined_in_order_.size();
    Block& block = *owner.add_block();
    parse_params(block);
    while (!cursor_.peek("->")) {
      parse_node(graph, block, depth + 1);
    }
    cursor_.expect("->");
    parse_returns(block);
    for (; defined_in_order_.size() > outer; defined_in_order_.pop_back()) {
      scope_.erase(defined_in_order_.back());
    }
  }

  void parse_location(Node& node) {
    const std::string_view comment = cursor_.trailing_comment();
    const size_t column = comment.find_last_of(':');
    const size_t line = column == std::string_view::npos || column == 0 ? std::string_view::npos : comment.find_last_of(':', column - 1);
    if (line == std::string_view::npos) {
      return;
    }
    size_t line_number = 0;
    size_t column_number = 0;
    const std::string_view line_digits = comment.substr(line + 1, column - line - 1);
    const std::string_view column_digits = comment.substr(column + 1);
    if (std::from_chars(line_digits.begin(), line_digits.end(), line_number).ptr == line_digits.end() &&
        std::from_chars(column_digits.begin(), column_digits.end(), column_number).ptr == column_digits.end()) {
      node.set_location(std::make_shared<SourceLocation>(std::string(comment.substr(0, line)), line_number, column_number));
    }
  }

  void declare_attributes(const Node& node) {
    if (node.kind() == prim::GetAttr && node.inputs().size() == 1 && node.outputs().size() == 1 && node.attribute(attr::kName)) {
      types_.declare_attribute(node.input(0)->type(), node.attribute_as<std::string>(attr::kName), node.output()->type());
    } else if (node.kind() == prim::SetAttr && node.inputs().size() == 2 && node.attribute(attr::kName)) {
      types_.declare_attribute(node.input(0)->type(), node.attribute_as<std::string>(attr::kName), node.input(1)->type());
    }
  }

  // ---- literals -----------------------------------------------------------------------------------------------------

  void parse_attributes(Node& node) {
    while (!cursor_.accept("]")) {
      const c10::Symbol name = c10::Symbol::attr(std::string(cursor_.identifier("an attribute's name")));
      cursor_.expect("=");
      if (node.kind() == prim::Constant && name == attr::kValue) {
        if (node.outputs().size() != 1) {
          cursor_.fail("a prim::Constant has one output");
        }
        node.set_attribute(name, parse_constant(node.output()->type(), 0));
      } else {
        node.set_attribute(name, parse_attribute_value());
      }
      if (!cursor_.peek("]")) {
        cursor_.expect(",");
      }
    }
  }

  AttributeValue parse_attribute_value() {
    if (cursor_.accept("[")) {
      return parse_attribute_list();
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

  AttributeValue parse_attribute_list() {
    std::vector<int64_t> integers;
    std::vector<double> doubles;
    std::vector<std::string> strings;
    std::vector<c10::TypePtr> type_list;
    while (!cursor_.accept("]")) {
      AttributeValue item = parse_attribute_value();
      if (auto* integer = std::get_if<int64_t>(&item)) {
        integers.push_back(*integer);
      } else if (auto* number = std::get_if<double>(&item)) {
        doubles.push_back(*number);
      } else if (auto* text = std::get_if<std::string>(&item)) {
        strings.push_back(*text);
      } else if (auto* type = std::get_if<c10::TypePtr>(&item)) {
        type_list.push_back(*type);
      } else {
        cursor_.fail("lists of lists are not attributes");
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

  c10::IValue parse_constant(const c10::TypePtr& type, size_t depth) {
    if (depth > kMaxDepth) {
      cursor_.fail("the constant is nested too deep");
    }
    if (cursor_.peek("<")) {
      return parse_reference();
    }
    if (cursor_.accept("None")) {
      return {};
    }
    switch (type->kind()) {
      case c10::TypeKind::OptionalType:
        return parse_constant(type->expectRef<c10::OptionalType>().getElementType(), depth + 1);
      case c10::TypeKind::IntType:
      case c10::TypeKind::ScalarTypeType:
      case c10::TypeKind::LayoutType:
      case c10::TypeKind::MemoryFormatType:
        return cursor_.integer();
      case c10::TypeKind::BoolType:
        return cursor_.integer() != 0;
      case c10::TypeKind::FloatType:
        return to_double(cursor_, cursor_.number());
      case c10::TypeKind::ComplexType:
        return parse_complex();
      case c10::TypeKind::NumberType:
        return parse_number();
      case c10::TypeKind::StringType:
        return cursor_.string_literal();
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
        auto items = parse_sequence("(", ")", [&](size_t i) { return i < elements.size() ? elements[i] : c10::TypePtr(); }, depth);
        return c10::ivalue::Tuple::create(std::move(items));
      }
      default:
        cursor_.fail("a constant of type " + type->str() + " has no literal form");
    }
  }

  template <typename TypeAt>
  std::vector<c10::IValue> parse_sequence(std::string_view open, std::string_view close, const TypeAt& type_at, size_t depth) {
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

  c10::IValue parse_number() {
    const size_t begin = cursor_.position();
    const std::string_view digits = cursor_.number();
    if (is_floating_literal(digits)) {
      return to_double(cursor_, digits);
    }
    cursor_.rewind(begin);
    return cursor_.integer();
  }

  c10::IValue parse_complex() {
    const double real = to_double(cursor_, cursor_.number());
    cursor_.accept("+");
    const double imaginary = to_double(cursor_, cursor_.number());
    cursor_.expect("j");
    return c10::complex<double>(real, imaginary);
  }

  c10::IValue parse_reference() {
    const size_t begin = cursor_.position();
    cursor_.expect("<");
    cursor_.identifier("a kind of value");
    if (!cursor_.accept(":")) {
      cursor_.fail_at(begin, "the text leaves this constant's value out; print the graph with its constants");
    }
    const int64_t index = cursor_.integer();
    cursor_.expect(">");
    if (options_.constants == nullptr || index < 0 || static_cast<size_t>(index) >= options_.constants->size()) {
      cursor_.fail_at(begin, "constant " + std::to_string(index) + " is not among the constants given with the text");
    }
    return (*options_.constants)[static_cast<size_t>(index)];
  }

  const ParseOptions& options_;
  TextCursor cursor_;
  TypeParser types_;
  Scope scope_;
  std::vector<std::string> defined_in_order_;
  std::unordered_map<std::string, Node*> subgraph_users_;
};

}  // namespace

std::unique_ptr<Graph> parse(std::string_view text, const ParseOptions& options) { return Parser(text, options).parse(); }

}  // namespace sconce
