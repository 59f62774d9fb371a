#include "ir/text/parse.h"

#include "ir/schema_match.h"
#include "ir/text/parse_literal.h"

#include <charconv>
#include <utility>

namespace sconce {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const ParseOptions& options)
      : options_(options), cursor_(text), types_(options), literals_(cursor_, types_, options) {}

  std::unique_ptr<Graph> parse() {
    auto graph = parse_graph();
    // Subgraphs are numbered through the whole text and follow the graph in that order.
    while (cursor_.accept("with")) {
      const size_t begin = cursor_.position();
      const std::string name(cursor_.identifier("the name of a subgraph"));
      // A node's further graphs follow its first, with the names of their attributes.
      const bool is_first = cursor_.peek("=");
      const c10::Symbol attribute =
          is_first ? attr::kSubgraph : c10::Symbol::attr(std::string(cursor_.identifier("the name of an attribute")));
      cursor_.expect("=");
      const auto found = subgraph_users_.find(name);
      if (found == subgraph_users_.end() || (found->second->attribute(attribute) != nullptr)) {
        cursor_.fail_at(begin, "no node uses the subgraph " + name);
      }
      Node* user = found->second;
      user->set_attribute(attribute, std::shared_ptr<Graph>(parse_graph()));
    }
    for (const auto& [name, user] : subgraph_users_) {
      if (user->attribute(attr::kSubgraph) == nullptr) {
        cursor_.fail("the subgraph " + name + " is missing");
      }
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

  // A `%name : Type`, read before the node or block that defines it exists.
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

  // A printed number of a value without a name becomes its name, which keeps the text stable.
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
    if (cursor_.at_end()) {
      cursor_.fail(depth == 0 ? "the graph ends without its `return (…)`" : "a block ends without its `-> (…)`");
    }
    std::vector<Definition> definitions;
    while (cursor_.peek("%")) {
      definitions.push_back(parse_definition());
      cursor_.accept(",");
    }
    if (!cursor_.accept("=") && !definitions.empty()) {
      cursor_.fail("expected '='");
    }
    const size_t kind_begin = cursor_.position();
    std::string kind(cursor_.identifier("an operator"));
    if (kind.find("::") == std::string::npos) {
      cursor_.fail_at(kind_begin, "expected an operator with its namespace, like aten::add");
    }
    const std::string subgraph = split_subgraph_name(kind);
    if (kind.starts_with("::") || kind.ends_with("::") || kind.find("::") != kind.rfind("::")) {
      cursor_.fail_at(kind_begin, "malformed operator name '" + kind + "'");
    }
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
    // Declared after the blocks, because a node's blocks cannot use its outputs.
    for (size_t i = 0; i < definitions.size(); ++i) {
      define(definitions[i], node->output(i));
    }
    declare_attributes(*node);
    // A subgraph of an unknown kind is kept as it is.
    if (!resolve(*node) && subgraph.empty() && options_.require_schemas) {
      cursor_.fail_at(kind_begin, explain_no_match(*node));
    }
  }

  // Removes the number from `kind`, such as "prim::DifferentiableGraph_0", which names the node's subgraph. Returns
  // the whole name.
  static std::string split_subgraph_name(std::string& kind) {
    const size_t underscore = kind.find_last_of('_');
    if (!(kind.starts_with("prim::") || kind.starts_with("sconce::")) || underscore == std::string::npos ||
        underscore + 1 == kind.size() || kind.find_first_not_of("0123456789", underscore + 1) != std::string::npos) {
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
    const size_t line =
        column == std::string_view::npos || column == 0 ? std::string_view::npos : comment.find_last_of(':', column - 1);
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
    if (node.kind() == prim::GetAttr && node.inputs().size() == 1 && node.outputs().size() == 1 &&
        node.attribute(attr::kName)) {
      types_.declare_attribute(node.input(0)->type(), node.attribute_as<std::string>(attr::kName), node.output()->type());
    } else if (node.kind() == prim::SetAttr && node.inputs().size() == 2 && node.attribute(attr::kName)) {
      types_.declare_attribute(node.input(0)->type(), node.attribute_as<std::string>(attr::kName), node.input(1)->type());
    }
  }

  void parse_attributes(Node& node) {
    while (!cursor_.accept("]")) {
      const c10::Symbol name = c10::Symbol::attr(std::string(cursor_.identifier("an attribute's name")));
      cursor_.expect("=");
      if (node.kind() == prim::Constant && name == attr::kValue) {
        if (node.outputs().size() != 1) {
          cursor_.fail("a prim::Constant has one output");
        }
        node.set_attribute(name, literals_.parse_constant(node.output()->type()));
      } else {
        const size_t begin = cursor_.position();
        node.set_attribute(name, literals_.parse_attribute());
        if (name == attr::kName && !std::holds_alternative<std::string>(*node.attribute(name))) {
          cursor_.fail_at(begin, "a name is a text in quotes");
        }
        if (node.kind() == prim::Constant && name == attr::kName) {
          resolve_function(node, begin);
        }
      }
      if (!cursor_.peek("]")) {
        cursor_.expect(",");
      }
    }
  }

  // A function constant holds a name; its type holds the function.
  void resolve_function(Node& constant, size_t begin) {
    const auto& name = constant.attribute_as<std::string>(attr::kName);
    const c10::TypePtr type = options_.resolve_function ? options_.resolve_function(name) : nullptr;
    if (!type || constant.outputs().size() != 1) {
      cursor_.fail_at(begin,
                      "the function '" + name + "' is not defined: calls can be read only beside their module, or inlined");
    }
    constant.output()->set_type(type);
  }

  const ParseOptions& options_;
  Lexer cursor_;
  TypeParser types_;
  LiteralParser literals_;
  Scope scope_;
  std::vector<std::string> defined_in_order_;
  std::unordered_map<std::string, Node*> subgraph_users_;
};

}  // namespace

std::unique_ptr<Graph> parse(std::string_view text, const ParseOptions& options) { return Parser(text, options).parse(); }

}  // namespace sconce
