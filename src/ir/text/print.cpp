#include "ir/text/print.h"

#include "ir/delegate.h"
#include "ir/text/print_literal.h"
#include "ir/text/printed_names.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

// "x.12" → "x": the frontend's suffix that makes names unique.
std::string_view without_numeric_suffix(std::string_view name) {
  const size_t dot = name.find_last_of('.');
  const bool numeric = dot != std::string_view::npos && dot + 1 < name.size() &&
                       name.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
  return numeric ? name.substr(0, dot) : name;
}

// A graph that a node has, and the name that stands before it. The name ends in the attribute's for all but attr::kSubgraph.
struct Subgraph {
  std::string name;
  const Graph* graph;
};

// Prints one graph with a name scope of its own. The caller prints the subgraphs that it meets.
class Printer {
 public:
  Printer(std::string& out, const PrintOptions& options, std::vector<Subgraph>& subgraphs)
      : out_(out), options_(options), subgraphs_(subgraphs) {}

  void print_graph(const Graph& graph) {
    reserve_names(graph.body());
    out_ += "graph(";
    print_params(graph.body(), ",\n      ");
    out_ += "):\n";
    print_nodes(graph.body(), 1);
    out_ += "  return (";
    print_names(graph.outputs());
    out_ += ")\n";
  }

  std::vector<std::string> names_in(const Graph& graph, c10::ArrayRef<const Value*> values) {
    reserve_names(graph.body());
    std::vector<std::string> names;
    for (const Value* value : values) {
      names.push_back(name_of(value));
    }
    return names;
  }

  void print_head(const Node& node) {
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      write(i == 0 ? "" : ", ", name_of(node.output(i)), " : ", print_type(*node.output(i)));
    }
    write(node.outputs().empty() ? "" : " = ", node.kind().toQualString());
    if (const auto* subgraph = node.attribute(attr::kSubgraph)) {
      const std::string suffix = "_" + std::to_string(subgraphs_.size());
      write(suffix);
      const std::string name = node.kind().toQualString() + suffix;
      subgraphs_.push_back({name, std::get<std::shared_ptr<Graph>>(*subgraph).get()});
      for (const Attribute& attribute : node.attributes()) {
        const auto* other = std::get_if<std::shared_ptr<Graph>>(&attribute.value);
        if (other != nullptr && attribute.name != attr::kSubgraph) {
          subgraphs_.push_back({name + " " + attribute.name.toUnqualString(), other->get()});
        }
      }
    }
    print_attributes(node);
    out_ += "(";
    print_names(node.inputs());
    out_ += ")";
  }

 private:
  // Names are assigned in the order of the text, so that the first holder keeps its name.
  void reserve_names(const Block& block) {
    for (const Value* param : block.params()) {
      reserve_name(param);
    }
    for (const Node* node : block.nodes()) {
      for (const Value* output : node->outputs()) {
        reserve_name(output);
      }
      for (const Block* nested : node->blocks()) {
        reserve_names(*nested);
      }
    }
  }

  void reserve_name(const Value* value) {
    std::string name = value->name().empty() ? std::to_string(value->id()) : value->name();
    if (!taken_.insert(name).second) {
      const std::string base(without_numeric_suffix(name));
      size_t& suffix = next_suffix_[base];
      do {
        name = base + "." + std::to_string(++suffix);
      } while (!taken_.insert(name).second);
      renamed_[value] = name;
    }
  }

  std::string name_of(const Value* value) const {
    const auto found = renamed_.find(value);
    return found == renamed_.end() ? print_value_name(*value) : "%" + found->second;
  }

  void print_names(c10::ArrayRef<Value*> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      write(i == 0 ? "" : ", ", name_of(values[i]));
    }
  }

  void print_params(const Block& block, const char* separator) {
    for (size_t i = 0; i < block.params().size(); ++i) {
      const Value* param = block.params()[i];
      write(i == 0 ? "" : separator, name_of(param), " : ", print_type(*param));
    }
  }

  void print_attributes(const Node& node) {
    bool first = true;
    for (const Attribute& attribute : node.attributes()) {
      if (std::holds_alternative<std::shared_ptr<Graph>>(attribute.value) || attribute.name == attr::kKernel ||
          attribute.name == attr::kRecordedGradient) {
        continue;
      }
      write(first ? "[" : ", ", attribute.name.toUnqualString(), "=");
      print_attribute_value(out_, attribute.value, options_.constants);
      first = false;
    }
    out_ += (first ? "" : "]");
  }

  void print_nodes(const Block& block, size_t depth) {
    for (const Node* node : block.nodes()) {
      indent(depth);
      print_head(*node);
      print_location(*node);
      out_ += "\n";
      for (size_t i = 0; i < node->blocks().size(); ++i) {
        const Block& nested = *node->block(i);
        indent(depth + 1);
        write("block", std::to_string(i), "(");
        print_params(nested, ", ");
        out_ += "):\n";
        print_nodes(nested, depth + 2);
        indent(depth + 2);
        out_ += "-> (";
        print_names(nested.returns());
        out_ += ")\n";
      }
    }
  }

  void print_location(const Node& node) {
    if (options_.locations && node.location()) {
      const std::string place = node.location()->file_line_column();
      if (!place.empty()) {
        write(" # ", place);
      }
    }
  }

  void indent(size_t depth) { out_.append(2 * depth, ' '); }

  void write(const auto&... pieces) { (out_.append(pieces), ...); }

  std::string& out_;
  const PrintOptions& options_;
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, size_t> next_suffix_;
  std::unordered_map<const Value*, std::string> renamed_;
  std::vector<Subgraph>& subgraphs_;
};

}  // namespace

std::string print(const Graph& graph, const PrintOptions& options) {
  std::string out;
  std::vector<Subgraph> subgraphs;
  Printer(out, options, subgraphs).print_graph(graph);
  // The list grows during the loop, because subgraphs may have subgraphs.
  for (size_t i = 0; i < subgraphs.size(); ++i) {
    out += "with " + subgraphs[i].name + " = ";
    Printer(out, options, subgraphs).print_graph(*subgraphs[i].graph);
  }
  return out;
}

std::string print_node_line(const Node& node) {
  std::string out;
  const PrintOptions options;
  std::vector<Subgraph> subgraphs;
  Printer(out, options, subgraphs).print_head(node);
  return out;
}

std::vector<std::string> printed_names(const Graph& graph, c10::ArrayRef<const Value*> values) {
  std::string out;
  const PrintOptions options;
  std::vector<Subgraph> subgraphs;
  return Printer(out, options, subgraphs).names_in(graph, values);
}

std::string print_value_name(const Value& value) {
  return "%" + (value.name().empty() ? std::to_string(value.id()) : value.name());
}

std::string print_type(const Value& value) {
  return value.facts() != nullptr ? to_string(*value.facts()) : type_text(*value.type());
}

}  // namespace sconce
