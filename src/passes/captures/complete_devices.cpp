#include "passes/captures/complete_devices.h"

#include "analysis/effects.h"
#include "base/flat_map.h"
#include "ir/constant_operands.h"
#include "ir/memory_types.h"

#include <ATen/core/jit_type.h>

#include <optional>

namespace sconce {
namespace {

class Devices {
 public:
  Devices(Graph& graph, c10::Device assumed) : assumed_(assumed) {
    for (Value* input : graph.inputs()) {
      set(*input, assumed_);
    }
    visit(graph.body());
  }

  void set_facts() const {
    for (const auto& [value, device] : found_) {
      if (device && is_tensor(*value) && (value->facts() == nullptr || !value->facts()->device)) {
        TensorFacts facts = value->facts() != nullptr ? *value->facts() : TensorFacts();
        facts.device = device;
        value->set_facts(std::move(facts));
      }
    }
  }

 private:
  static bool is_none(const Value& value) {
    const c10::IValue* constant = value.constant();
    return constant != nullptr && constant->isNone();
  }

  // Returns the device of the tensor, or of all tensors of the list.
  std::optional<c10::Device> device_of(const Value& value) const {
    if (const c10::IValue* constant = value.constant(); constant != nullptr && constant->isTensor()) {
      return constant->toTensor().defined() ? std::optional(constant->toTensor().device()) : std::nullopt;
    }
    if (value.facts() != nullptr && value.facts()->device) {
      return value.facts()->device;
    }
    const auto found = found_.find(const_cast<Value*>(&value));
    return found == found_.end() ? std::nullopt : found->second;
  }

  void set(Value& value, std::optional<c10::Device> device) {
    if (may_hold_tensors(value.type())) {
      found_[&value] = device;
    }
  }

  // Returns the device of all operands that hold tensors; none if they differ, or one is unknown.
  std::optional<c10::Device> common_device(const Node& node) const {
    std::optional<c10::Device> common;
    for (const Value* input : node.inputs()) {
      if (!may_hold_tensors(input->type()) || is_none(*input)) {
        continue;
      }
      const std::optional<c10::Device> device = device_of(*input);
      if (!device || (common && *common != *device)) {
        return std::nullopt;
      }
      common = device;
    }
    return common;
  }

  // Returns whether the node's results lie where its operands do.
  static bool stays_on_device(const Node& node) {
    switch (node.opcode()) {
      case Opcode::kListConstruct:
      case Opcode::kListUnpack:
      case Opcode::kUncheckedCast:
      case Opcode::kConstantChunk: return true;
      default: break;
    }
    if (comes_from_outside(node) || node.op().leaves_device) {
      return false;
    }
    for (const Value* input : node.inputs()) {
      const c10::TypePtr& type = input->type();
      const bool is_device = type->isSubtypeOf(*c10::OptionalType::create(c10::DeviceObjType::get()));
      if (is_device && type->kind() != c10::TypeKind::NoneType && !is_none(*input)) {
        return false;
      }
    }
    return true;
  }

  // Returns whether the node takes its results out of objects and containers, or code that is not in the graph makes them.
  static bool comes_from_outside(const Node& node) {
    return node.op().is_language() || node.op().returns_existing || node.schema() == nullptr || effects_of(node).unknown;
  }

  void visit(Block& block) {
    for (Node* node : block.nodes()) {
      if (node->opcode() == Opcode::kLoop) {
        visit_loop(*node);
        continue;
      }
      for (Block* nested : node->blocks()) {
        visit(*nested);
      }
      for (size_t i = 0; i < node->outputs().size(); ++i) {
        set(*node->output(i), device_of_output(*node, i));
      }
    }
  }

  std::optional<c10::Device> device_of_output(const Node& node, size_t i) const {
    if (node.blocks().empty()) {
      return stays_on_device(node) ? common_device(node) : comes_from_outside(node) ? std::optional(assumed_) : std::nullopt;
    }
    if (node.opcode() != Opcode::kIf && node.opcode() != Opcode::kKernel) {
      return std::nullopt;
    }
    std::optional<c10::Device> common;
    for (const Block* block : node.blocks()) {
      const std::optional<c10::Device> device = device_of(*block->returns()[i]);
      if (!device || (common && *common != *device)) {
        return std::nullopt;
      }
      common = device;
    }
    return common;
  }

  // A value that one trip hands to the next must lie where the loop began.
  void visit_loop(Node& loop) {
    Block& body = *loop.block(0);
    FlatSet<size_t> moving;
    for (bool is_settled = false; !is_settled;) {
      for (size_t i = 0; i < loop.outputs().size(); ++i) {
        set(*body.params()[i + 1], moving.contains(i) ? std::nullopt : device_of(*loop.input(i + 2)));
      }
      visit(body);
      is_settled = true;
      for (size_t i = 0; i < loop.outputs().size(); ++i) {
        const auto begins = device_of(*body.params()[i + 1]);
        if (begins && device_of(*body.returns()[i + 1]) != begins && moving.insert(i).second) {
          is_settled = false;
        }
      }
    }
    for (size_t i = 0; i < loop.outputs().size(); ++i) {
      set(*loop.output(i), device_of(*body.params()[i + 1]));
    }
  }

  const c10::Device assumed_;
  FlatMap<Value*, std::optional<c10::Device>> found_;
};

}  // namespace

void complete_devices(Graph& graph, c10::Device assumed) { Devices(graph, assumed).set_facts(); }

}  // namespace sconce
