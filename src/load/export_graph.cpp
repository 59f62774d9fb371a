#include "load/export_graph.h"

#include "ir/text/gradient_text.h"

#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <unordered_map>
#include <variant>

namespace sconce {
namespace {

namespace jit = torch::jit;

class Exporter {
 public:
  explicit Exporter(jit::Graph& target) : target_(target) {}

  void export_block(const Block& source, jit::Block& block) {
    for (const Value* param : source.params()) {
      describe(*block.addInput(), *param);
    }
    for (const Node* node : source.nodes()) {
      export_node(*node, block);
    }
    for (const Value* result : source.returns()) {
      block.registerOutput(values_.at(result));
    }
  }

 private:
  // LibTorch makes names unique, and rejects numbers.
  void describe(jit::Value& value, const Value& source) {
    value.setType(source.type());
    if (const TensorFacts* facts = source.facts()) {
      value.setType(type_of(*facts));
    }
    if (source.name().find_first_not_of("0123456789") != std::string::npos) {
      value.setDebugName(source.name());
    }
    values_[&source] = &value;
  }

  // Returns the facts that LibTorch's type can hold.
  static c10::TypePtr type_of(const TensorFacts& facts) {
    const auto shape_of = [](const std::optional<std::vector<Dim>>& dims) {
      if (!dims) {
        return c10::SymbolicShape();
      }
      std::vector<c10::ShapeSymbol> symbols;
      for (const Dim& dim : *dims) {
        symbols.push_back(dim.is_known() ? c10::ShapeSymbol::fromStaticSize(dim.value()) : c10::ShapeSymbol::newSymbol());
      }
      return c10::SymbolicShape(std::move(symbols));
    };
    c10::VaryingShape<c10::Stride> strides;
    if (facts.strides) {
      std::vector<std::optional<c10::Stride>> all;
      for (const Dim& dim : *facts.strides) {
        all.emplace_back(dim.is_known() ? std::optional(c10::Stride(std::nullopt, std::nullopt, dim.value()))
                                        : std::nullopt);
      }
      strides = c10::VaryingShape<c10::Stride>(std::move(all));
    }
    const std::optional<bool> undefined = facts.defined ? std::optional(!*facts.defined) : std::nullopt;
    return c10::TensorType::create(facts.dtype, facts.device, shape_of(facts.sizes), strides, facts.requires_grad,
                                   undefined);
  }

  void export_node(const Node& source, jit::Block& block) {
    jit::Node* node = target_.create(source.kind(), 0);
    block.appendNode(node);
    for (const Value* input : source.inputs()) {
      node->addInput(values_.at(input));
    }
    for (const Value* output : source.outputs()) {
      describe(*node->addOutput(), *output);
    }
    if (source.location() && source.location()->range() != nullptr) {
      node->setSourceRange(*source.location()->range());
    }
    if (source.kind() == prim::Constant) {
      export_constant(source, *node);
    } else {
      for (const Attribute& attribute : source.attributes()) {
        std::visit([&](const auto& value) { set(*node, attribute.name, value); }, attribute.value);
      }
    }
    for (const Block* nested : source.blocks()) {
      export_block(*nested, *node->addBlock());
    }
  }

  // LibTorch keeps a constant's value in an attribute whose form depends on the type.
  void export_constant(const Node& source, jit::Node& node) {
    static const c10::Symbol kValue = c10::Symbol::attr("value");
    if (source.output()->type()->kind() == c10::TypeKind::FunctionType) {
      node.s_(attr::kName, source.attribute_as<std::string>(attr::kName));
      return;
    }
    const auto* value = source.output()->constant();
    if (!value || value->isNone()) {
      return;
    }
    if (value->isTensor()) {
      node.t_(kValue, value->toTensor());
    } else if (value->isInt()) {
      node.i_(kValue, value->toInt());
    } else if (value->isBool()) {
      node.i_(kValue, value->toBool() ? 1 : 0);
    } else if (value->isDouble()) {
      node.f_(kValue, value->toDouble());
    } else if (value->isComplexDouble()) {
      node.c_(kValue, value->toComplexDouble());
    } else if (value->isString()) {
      node.s_(kValue, value->toStringRef());
    } else if (value->isDevice()) {
      node.s_(kValue, value->toDevice().str());
    } else {
      node.ival_(kValue, *value);
    }
  }

  static void set(jit::Node& node, c10::Symbol name, int64_t value) { node.i_(name, value); }
  static void set(jit::Node& node, c10::Symbol name, double value) { node.f_(name, value); }
  static void set(jit::Node& node, c10::Symbol name, const std::string& value) { node.s_(name, value); }
  static void set(jit::Node& node, c10::Symbol name, const c10::TypePtr& value) { node.ty_(name, value); }
  static void set(jit::Node& node, c10::Symbol name, const std::vector<int64_t>& value) { node.is_(name, value); }
  static void set(jit::Node& node, c10::Symbol name, const std::vector<double>& value) { node.fs_(name, value); }
  static void set(jit::Node& node, c10::Symbol name, const std::vector<std::string>& value) { node.ss_(name, value); }
  static void set(jit::Node& node, c10::Symbol name, const std::vector<c10::TypePtr>& value) { node.tys_(name, value); }
  static void set(jit::Node& node, c10::Symbol name, const c10::IValue& value) { node.ival_(name, value); }
  static void set(jit::Node& node, c10::Symbol name, const std::shared_ptr<Graph>& value) {
    node.g_(name, export_graph(*value));
  }
  static void set(jit::Node& node, c10::Symbol name, const std::shared_ptr<const GradientSignature>& value) {
    node.s_(name, print_gradient(*value));
  }

  jit::Graph& target_;
  std::unordered_map<const Value*, jit::Value*> values_;
};

}  // namespace

std::shared_ptr<torch::jit::Graph> export_graph(const Graph& source) {
  auto graph = std::make_shared<jit::Graph>();
  Exporter(*graph).export_block(source.body(), *graph->block());
  return graph;
}

}  // namespace sconce
