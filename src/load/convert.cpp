#include "load/convert.h"

#include "ir/schema_match.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <utility>

namespace sconce {
namespace {

namespace jit = torch::jit;

class Converter {
 public:
  explicit Converter(Graph& target) : target_(target) {}

  std::optional<Refusal> convert_block(const jit::Block& source, Block& block) {
    for (const jit::Value* input : source.inputs()) {
      describe(*block.add_param(input->type()), *input);
    }
    for (const jit::Node* node : source.nodes()) {
      if (auto refusal = convert_node(*node, block)) {
        return refusal;
      }
    }
    for (const jit::Value* output : source.outputs()) {
      block.add_return(values_.at(output));
    }
    return std::nullopt;
  }

 private:
  void describe(Value& value, const jit::Value& source) {
    if (source.hasDebugName()) {
      value.set_name(source.debugName());
    }
    values_[&source] = &value;
  }

  std::optional<Refusal> convert_node(const jit::Node& source, Block& block) {
    Node* node = target_.create(source.kind(), {}, 0);
    node->set_location(std::make_shared<SourceLocation>(source.sourceRange()));
    for (const jit::Value* input : source.inputs()) {
      node->add_input(values_.at(input));
    }
    for (const jit::Value* output : source.outputs()) {
      describe(*node->add_output(output->type()), *output);
    }
    node->append_to(block);
    if (auto refusal =
            source.kind() == prim::Constant ? convert_constant(source, *node) : convert_attributes(source, *node)) {
      return refusal;
    }
    for (const jit::Block* nested : source.blocks()) {
      if (auto refusal = convert_block(*nested, *node->add_block())) {
        return refusal;
      }
    }
    if (!is_language_kind(node->kind())) {
      const c10::FunctionSchema* schema = source.maybeSchema();
      node->set_schema(schema == nullptr || gives_results_of(*schema, *node) ? schema : match_schema(*node));
    }
    return std::nullopt;
  }

  static std::optional<Refusal> convert_constant(const jit::Node& source, Node& node) {
    // A function is named, not stored: its type holds it.
    if (const auto function = node.output()->type()->cast<c10::FunctionType>()) {
      node.set_attribute(attr::kName, function->function()->qualname().qualifiedName());
      return std::nullopt;
    }
    std::optional<c10::IValue> value = jit::toIValue(source.output());
    if (!value) {
      return Refusal::of(node, "the constant's value cannot be read from the file");
    }
    if (!value->isNone()) {
      node.set_attribute(attr::kValue, std::move(*value));
    }
    return std::nullopt;
  }

  static std::optional<Refusal> convert_attributes(const jit::Node& source, Node& node) {
    for (const c10::Symbol name : source.attributeNames()) {
      switch (source.kindOf(name)) {
        case jit::AttributeKind::i: node.set_attribute(name, source.i(name)); break;
        case jit::AttributeKind::f: node.set_attribute(name, source.f(name)); break;
        case jit::AttributeKind::s: node.set_attribute(name, source.s(name)); break;
        case jit::AttributeKind::ty: node.set_attribute(name, source.ty(name)); break;
        case jit::AttributeKind::is: node.set_attribute(name, source.is(name)); break;
        case jit::AttributeKind::fs: node.set_attribute(name, source.fs(name)); break;
        case jit::AttributeKind::ss: node.set_attribute(name, source.ss(name)); break;
        case jit::AttributeKind::tys: node.set_attribute(name, source.tys(name)); break;
        case jit::AttributeKind::ival: node.set_attribute(name, source.ival(name)); break;
        case jit::AttributeKind::g: {
          auto subgraph = convert(*source.g(name));
          if (!subgraph) {
            return subgraph.refusal();
          }
          node.set_attribute(name, std::shared_ptr<Graph>(std::move(*subgraph)));
          break;
        }
        default:
          return Refusal::of(node,
                             std::string("its attribute '") + name.toUnqualString() + "' is of a form sconce does not hold");
      }
    }
    return std::nullopt;
  }

  Graph& target_;
  std::unordered_map<const jit::Value*, Value*> values_;
};

}  // namespace

OrRefusal<std::unique_ptr<Graph>> convert(const torch::jit::Graph& source) {
  auto graph = std::make_unique<Graph>();
  // The loader's graph is only read; LibTorch's accessors to its body are not all const.
  if (auto refusal = Converter(*graph).convert_block(*const_cast<torch::jit::Graph&>(source).block(), graph->body())) {
    return *refusal;
  }
  return graph;
}

}  // namespace sconce
