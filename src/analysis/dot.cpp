#include "analysis/dot.h"

#include "analysis/effects.h"
#include "ir/differentiable.h"
#include "ir/text/print.h"
#include "ir/text/print_literal.h"

#include <sstream>
#include <unordered_map>

namespace sconce {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '<' || c == '>' || c == '{' || c == '}' || c == '|') {
      out += '\\';
    }
    out += c;
  }
  return out;
}

class DotWriter {
 public:
  explicit DotWriter(std::ostream& out) : out_(out) {}

  void write(const Graph& graph, const std::string& title) {
    out_ << "digraph \"" << escaped(title) << "\" {\n"
         << "  label=\"" << escaped(title) << "\"; labelloc=t; fontname=\"Helvetica\";\n"
         << "  node [shape=box, style=\"rounded,filled\", fillcolor=\"#eef3fb\", fontname=\"Helvetica\", fontsize=10];\n"
         << "  edge [fontname=\"Helvetica\", fontsize=8, color=\"#667788\"];\n";
    write_body(graph, "  ");
    write_subgraphs(graph);
    out_ << "}\n";
  }

 private:
  void write_body(const Graph& graph, const std::string& indent) {
    write_block(graph.body(), indent);
    const std::string result = prefix_ + "result";
    out_ << indent << result << " [label=\"return\", fillcolor=\"#dff3df\"];\n";
    write_edges(graph.outputs(), result, indent);
  }

  // Draws the graphs of nodes, each as a cluster that a dotted edge leads to. TracedBackward is nearly Backward.
  void write_subgraphs(const Graph& graph) {
    for_each_node(graph.body(), [this](Node* node) {
      for (const Attribute& attribute : node->attributes()) {
        const auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute.value);
        if (subgraph == nullptr || attribute.name == attr::kGeneralBackward) {
          continue;
        }
        const std::string id = ids_.at(node);
        prefix_ = "g" + std::to_string(++subgraphs_) + "_";
        out_ << "  subgraph \"cluster_" << prefix_ << "\" {\n    label=\"" << node->kind().toUnqualString() << " "
             << attribute.name.toUnqualString() << "\"; color=\"#3a6ea5\";\n";
        write_body(**subgraph, "    ");
        out_ << "  }\n  " << prefix_ << "result -> " << id << " [style=dotted, constraint=false];\n";
      }
    });
  }

  void write_block(const Block& block, const std::string& indent) {
    for (const Value* param : block.params()) {
      out_ << indent << value_id(*param) << " [label=\"" << escaped(print_value_name(*param) + " : " + print_type(*param))
           << "\", shape=ellipse, fillcolor=\"#fdf3dc\"];\n";
    }
    for (const Node* node : block.nodes()) {
      if (node->kind() != prim::Constant) {
        write_node(*node, indent);
      }
    }
  }

  void write_node(const Node& node, const std::string& indent) {
    const std::string id = "n" + std::to_string(next_++);
    ids_[&node] = id;
    out_ << indent << id << " [label=\"" << escaped(label(node)) << "\"" << (has_effects(node) ? ", color=\"#c0392b\"" : "");
    if (node.location()) {
      out_ << ", tooltip=\"" << escaped(node.location()->file_line_column()) << "\"";
    }
    out_ << "];\n";
    write_edges(node.inputs(), id, indent);
    for (size_t i = 0; i < node.blocks().size(); ++i) {
      out_ << indent << "subgraph \"cluster_" << id << "_" << i << "\" {\n"
           << indent << "  label=\"" << node.kind().toUnqualString() << " block" << i << "\"; color=\"#99aabb\";\n";
      write_block(*node.block(i), indent + "  ");
      const std::string result = id + "_r" + std::to_string(i);
      out_ << indent << "  " << result << " [label=\"->\", shape=plaintext, style=\"\"];\n";
      write_edges(node.block(i)->returns(), result, indent + "  ");
      out_ << indent << "}\n" << indent << result << " -> " << id << " [style=dashed, constraint=false];\n";
    }
  }

  static std::string label(const Node& node) {
    std::string text = node.kind().toQualString();
    for (const Attribute& attribute : node.attributes()) {
      if (!std::holds_alternative<std::shared_ptr<Graph>>(attribute.value)) {
        text += std::string("\n") + attribute.name.toUnqualString() + "=";
        print_attribute_value(text, attribute.value, nullptr);
      }
    }
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (const auto* constant = node.input(i)->constant()) {
        const bool named = node.schema() != nullptr && i < node.schema()->arguments().size();
        text += "\n" + (named ? node.schema()->arguments()[i].name() : std::to_string(i)) + "=";
        print_constant(text, *constant, nullptr);
      }
    }
    return text;
  }

  void write_edges(c10::ArrayRef<Value*> inputs, const std::string& target, const std::string& indent) {
    for (const Value* input : inputs) {
      if (input->node()->kind() != prim::Constant) {
        out_ << indent << value_id(*input) << " -> " << target << " [label=\""
             << escaped(print_value_name(*input) + " : " + print_type(*input)) << "\"];\n";
      }
    }
  }

  std::string value_id(const Value& value) const {
    const auto found = ids_.find(value.node());
    return found != ids_.end() ? found->second : prefix_ + "v" + std::to_string(value.id());
  }

  std::ostream& out_;
  std::unordered_map<const Node*, std::string> ids_;
  size_t next_ = 0;
  std::string prefix_;  // of names in a subgraph, whose values have numbers of their own
  size_t subgraphs_ = 0;
};

}  // namespace

std::string to_dot(const Graph& graph, const std::string& title) {
  std::ostringstream out;
  DotWriter(out).write(graph, title);
  return out.str();
}

}  // namespace sconce
