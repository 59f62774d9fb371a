#include "load/convert.h"

#include "ir/schema_match.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

namespace jit = torch::jit;

// Of a constant; null for any other node.
const at::Tensor* constant_tensor(const jit::Node& node) {
  const bool is_tensor = node.kind() == prim::Constant && node.hasAttribute(c10::attr::value) &&
                         node.kindOf(c10::attr::value) == jit::AttributeKind::t;
  return is_tensor && node.t(c10::attr::value).defined() ? &node.t(c10::attr::value) : nullptr;
}

// The constant tensors of a graph that others hold as well: another function of the archive, or the program that traced it.
class SharedTensors {
 public:
  explicit SharedTensors(const jit::Block& block) {
    count(block);
    for (const auto& [impl, held] : held_) {
      const at::Tensor& tensor = *held.tensor;
      if (tensor.use_count() > held.nodes ||
          (tensor.has_storage() && tensor.storage().use_count() > in_storage_.at(storage_of(tensor)))) {
        shared_.insert(impl);
      }
    }
  }

  bool contains(const at::Tensor& tensor) const { return shared_.count(tensor.unsafeGetTensorImpl()) != 0; }

 private:
  static const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
    return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  }

  void count(const jit::Block& block) {
    for (const jit::Node* node : block.nodes()) {
      if (const at::Tensor* tensor = constant_tensor(*node)) {
        Held& held = held_[tensor->unsafeGetTensorImpl()];
        if (held.nodes++ == 0) {
          held.tensor = tensor;
          ++in_storage_[storage_of(*tensor)];
        }
      }
      for (const jit::Block* nested : node->blocks()) {
        count(*nested);
      }
    }
  }

  struct Held {
    const at::Tensor* tensor = nullptr;
    size_t nodes = 0;  // of the graph, that hold it
  };
  std::unordered_map<const c10::TensorImpl*, Held> held_;
  std::unordered_map<const c10::StorageImpl*, size_t> in_storage_;  // how many of these tensors lie in it
  std::unordered_set<const c10::TensorImpl*> shared_;
};

class Converter {
 public:
  Converter(Graph& target, const jit::Block& source) : target_(target), shared_(source) {}

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
    const c10::FunctionSchema* schema = node->op().is_language() ? nullptr : source.maybeSchema();
    if (schema != nullptr && produces_results_of(*schema, *node)) {
      node->set_op(op_of(*schema));
    } else if (schema != nullptr) {
      resolve(*node);
    }
    return std::nullopt;
  }

  std::optional<Refusal> convert_constant(const jit::Node& source, Node& node) const {
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
    if (const at::Tensor* tensor = constant_tensor(source); tensor != nullptr && shared_.contains(*tensor)) {
      node.set_attribute(attr::kShared, int64_t{1});
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
  const SharedTensors shared_;
  std::unordered_map<const jit::Value*, Value*> values_;
};

}  // namespace

Expected<std::unique_ptr<Graph>> convert(const torch::jit::Graph& source) {
  auto graph = std::make_unique<Graph>();
  // The loader's graph is only read; LibTorch's accessors to its body are not all const.
  const jit::Block& body = *const_cast<torch::jit::Graph&>(source).block();
  if (auto refusal = Converter(*graph, body).convert_block(body, graph->body())) {
    return *refusal;
  }
  return graph;
}

}  // namespace sconce
