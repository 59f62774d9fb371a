#include "load/convert.h"

#include "ir/refusal.h"
#include "ir/schema_match.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

namespace jit = torch::jit;

// Returns a constant's value; null for any other node.
const at::Tensor* constant_tensor(const jit::Node& node) {
  const bool is_tensor = node.kind() == prim::Constant && node.hasAttribute(c10::attr::value) &&
                         node.kindOf(c10::attr::value) == jit::AttributeKind::t;
  return is_tensor && node.t(c10::attr::value).defined() ? &node.t(c10::attr::value) : nullptr;
}

// The constant tensors of a graph that code outside also holds: another function of the archive, or the program that
// traced it.
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
    size_t nodes = 0;  // number of nodes of the graph that hold it
  };
  std::unordered_map<const c10::TensorImpl*, Held> held_;
  std::unordered_map<const c10::StorageImpl*, size_t> in_storage_;  // storage → number of these tensors in it
  std::unordered_set<const c10::TensorImpl*> shared_;
};

class Converter {
 public:
  Converter(Graph& target, const jit::Block& source) : target_(target), shared_(source) {}

  Expected<void> convert_block(const jit::Block& source, Block& block) {
    for (const jit::Value* input : source.inputs()) {
      describe(*block.add_param(input->type()), *input);
    }
    for (const jit::Node* node : source.nodes()) {
      if (auto done = convert_node(*node, block); !done) {
        return done.refusal();
      }
    }
    for (const jit::Value* output : source.outputs()) {
      block.add_return(values_.at(output));
    }
    return {};
  }

 private:
  // A module that this process traced has the example's sizes and dtypes in its types; other calls have others. What is
  // known of a constant holds in each.
  void describe(Value& value, const jit::Value& source) {
    if (source.node()->kind() != prim::Constant) {
      value.set_facts({});
    }
    if (source.hasDebugName()) {
      value.set_name(source.debugName());
    }
    values_[&source] = &value;
  }

  Expected<void> convert_node(const jit::Node& source, Block& block) {
    Node* node = target_.create(source.kind(), {}, 0);
    node->set_location(std::make_shared<SourceLocation>(source.sourceRange()));
    for (const jit::Value* input : source.inputs()) {
      node->add_input(values_.at(input));
    }
    for (const jit::Value* output : source.outputs()) {
      describe(*node->add_output(output->type()), *output);
    }
    node->append_to(block);
    if (auto done = source.kind() == prim::Constant ? convert_constant(source, *node) : convert_attributes(source, *node);
        !done) {
      return done.refusal();
    }
    for (const jit::Block* nested : source.blocks()) {
      if (auto done = convert_block(*nested, *node->add_block()); !done) {
        return done.refusal();
      }
    }
    const c10::FunctionSchema* schema = node->op().is_language() ? nullptr : source.maybeSchema();
    if (schema != nullptr && produces_results_of(*schema, *node)) {
      node->set_op(op_of(*schema));
    } else if (schema != nullptr) {
      resolve(*node);
    }
    return {};
  }

  Expected<void> convert_constant(const jit::Node& source, Node& node) const {
    // A function constant holds a name; its type holds the function.
    if (const auto function = node.output()->type()->cast<c10::FunctionType>()) {
      node.set_attribute(attr::kName, function->function()->qualname().qualifiedName());
      return {};
    }
    std::optional<c10::IValue> value = jit::toIValue(source.output());
    if (!value) {
      return refusal_of(node, "the constant's value cannot be read from the file");
    }
    if (!value->isNone()) {
      node.set_attribute(attr::kValue, std::move(*value));
    }
    if (const at::Tensor* tensor = constant_tensor(source); tensor != nullptr && shared_.contains(*tensor)) {
      node.set_attribute(attr::kShared, int64_t{1});
    }
    return {};
  }

  static Expected<void> convert_attributes(const jit::Node& source, Node& node) {
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
          return refusal_of(node,
                            std::string("its attribute '") + name.toUnqualString() + "' is of a form sconce does not hold");
      }
    }
    return {};
  }

  Graph& target_;
  const SharedTensors shared_;
  std::unordered_map<const jit::Value*, Value*> values_;
};

}  // namespace

Expected<std::unique_ptr<Graph>> convert(const torch::jit::Graph& source) {
  auto graph = std::make_unique<Graph>();
  // The loader's graph is only read, but some of LibTorch's accessors to its body are not const.
  const jit::Block& body = *const_cast<torch::jit::Graph&>(source).block();
  if (auto done = Converter(*graph, body).convert_block(body, graph->body()); !done) {
    return done.refusal();
  }
  return graph;
}

}  // namespace sconce
