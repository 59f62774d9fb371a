#include "passes/required/lower_autocast.h"

#include "ir/schema_match.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>

#include <array>
#include <vector>

namespace sconce {
namespace {

// The autocast state inside a block: for each kind of device, whether operands are cast, and to which dtype.
struct Region {
  bool cuda = false;
  bool cpu = false;
  c10::ScalarType cuda_dtype = c10::ScalarType::Half;
  c10::ScalarType cpu_dtype = c10::ScalarType::BFloat16;
  bool active() const { return cuda || cpu; }
};

bool is_autocast_object(const Value& value) {
  static const std::array<std::string_view, 5> names = {
      "__torch__.torch.amp.autocast_mode.autocast", "__torch__.torch.cuda.amp.autocast_mode.autocast",
      "__torch__.torch.cpu.amp.autocast_mode.autocast", "__torch__.torch.autocast_mode.autocast",
      "__torch__.torch.autocast"};
  const auto class_type = value.type()->cast<c10::ClassType>();
  return class_type && class_type->name() && std::ranges::find(names, class_type->name()->qualifiedName()) != names.end();
}

std::string at_place_of(const Node& node) {
  const std::string chain = describe_call_chain(node.location());
  return chain.empty() ? std::string() : "\n  at: " + chain;
}

// Returns the value if it is the same in every run: a constant, seen through the casts and the branches on None with
// which torch.autocast's constructor chooses its defaults.
std::optional<c10::IValue> constant_after(const Value& value) {
  const Node& node = *value.node();
  if (node.kind() == prim::unchecked_cast) {
    return constant_after(*node.input(0));
  }
  if (node.kind() == aten::__is__ || node.kind() == aten::__isnot__) {
    const auto left = constant_after(*node.input(0));
    const auto right = constant_after(*node.input(1));
    if (left && right && (left->isNone() || right->isNone())) {
      return (left->isNone() && right->isNone()) == (node.kind() == aten::__is__);
    }
    return std::nullopt;
  }
  if (node.kind() == prim::If) {
    const auto condition = constant_after(*node.input(0));
    return condition ? constant_after(*node.block(condition->toBool() ? 0 : 1)->returns()[value.offset()]) : std::nullopt;
  }
  static const c10::Symbol kDefaultDtype = c10::Symbol::aten("get_autocast_dtype");
  if (node.kind() == kDefaultDtype) {
    const auto device = constant_after(*node.input(0));
    return device ? std::optional<c10::IValue>(
                        static_cast<int64_t>(at::autocast::get_autocast_dtype(c10::Device(device->toStringRef()).type())))
                  : std::nullopt;
  }
  const c10::IValue* constant = value.constant();
  return constant != nullptr ? std::optional(*constant) : std::nullopt;
}

// Casts are placed at compile time, so their conditions must be known then.
c10::IValue attribute_constant(const Value& object, const char* attribute) {
  for (const Use& use : object.uses()) {
    if (use.user->kind() == prim::SetAttr && use.index == 0 &&
        use.user->attribute_as<std::string>(attr::kName) == attribute) {
      const auto constant = constant_after(*use.user->input(1));
      TORCH_CHECK(constant && !constant->isNone(), "torch.autocast in a script needs constant arguments; '", attribute,
                  "' is computed", at_place_of(*use.user));
      return *constant;
    }
  }
  TORCH_CHECK(false, "this torch.autocast object is made in a way sconce cannot follow: its '", attribute, "' is never set",
              at_place_of(*object.node()));
}

Region enter(const Node& node, Region region) {
  const Value& object = *node.input(0);
  TORCH_CHECK(object.node()->kind() == prim::CreateObject,
              "torch.autocast in a script must be made in the with statement itself", at_place_of(node));
  TORCH_CHECK(!node.output()->has_uses(), "`with torch.autocast(…) as x` is not supported in a script", at_place_of(node));
  const bool enabled = attribute_constant(object, "_enabled").toBool();
  const std::string device = attribute_constant(object, "device").toStringRef();
  const auto dtype = static_cast<c10::ScalarType>(attribute_constant(object, "fast_dtype").toInt());
  if (device == "cuda") {
    region.cuda = enabled;
    region.cuda_dtype = dtype;
  } else {
    TORCH_CHECK(device == "cpu", "torch.autocast in a script knows the devices cpu and cuda, not '", device, "'",
                at_place_of(node));
    region.cpu = enabled;
    region.cpu_dtype = dtype;
  }
  return region;
}

class AutocastLowering {
 public:
  explicit AutocastLowering(Graph& graph) : graph_(graph) {}

  bool run() {
    visit_block(graph_.body(), Region{});
    return changed_;
  }

 private:
  void visit_block(const Block& block, Region region) {
    std::vector<Region> outer;
    for (Node* node : block.nodes()) {
      const bool is_autocast = !node->inputs().empty() && is_autocast_object(*node->input(0));
      if (node->kind() == prim::Enter && is_autocast) {
        outer.push_back(region);
        region = enter(*node, region);
        remove(node);
        continue;
      }
      if (node->kind() == prim::Exit && is_autocast) {
        TORCH_CHECK(!outer.empty(), "a torch.autocast block ends where it did not begin", at_place_of(*node));
        region = outer.back();
        outer.pop_back();
        remove(node);
        continue;
      }
      if (region.active()) {
        cast_operands(node, region);
      }
      for (const Block* nested : node->blocks()) {
        visit_block(*nested, region);
      }
    }
    TORCH_CHECK(outer.empty(), "a torch.autocast block does not end in the block it begins in");
  }

  void remove(Node* node) {
    for (Value* output : node->outputs()) {
      TORCH_CHECK(!output->has_uses(), "the value of a torch.autocast block is used", at_place_of(*node));
    }
    node->erase();
    changed_ = true;
  }

  void cast_operands(Node* node, const Region& region) {
    if (node->schema() == nullptr) {
      return;
    }
    TORCH_CHECK(node->kind() != aten::binary_cross_entropy,
                "binary_cross_entropy is unsafe under autocast; use binary_cross_entropy_with_logits", at_place_of(*node));
    switch (node->op().autocast) {
      case Autocast::kNone: return;
      case Autocast::kReduced: return cast_tensors(node, region, aten::_autocast_to_reduced_precision);
      case Autocast::kFullUnlessDtype:
        if (!names_dtype(*node)) {
          cast_tensors(node, region, aten::_autocast_to_full_precision);
        }
        return;
      case Autocast::kFullOnCudaUnlessDtype: {
        Region cuda_only = region;
        cuda_only.cpu = false;
        if (cuda_only.active() && !names_dtype(*node)) {
          cast_tensors(node, cuda_only, aten::_autocast_to_full_precision);
        }
        return;
      }
      case Autocast::kFull:
      case Autocast::kWidest:
        // Dtypes are not known here. An unknown dtype counts as float32.
        return cast_tensors(node, region, aten::_autocast_to_full_precision);
    }
  }

  static bool names_dtype(const Node& node) {
    const Value* dtype = node.named_input("dtype");
    return dtype != nullptr && dtype->type()->kind() != c10::TypeKind::NoneType;
  }

  void cast_tensors(Node* node, const Region& region, c10::Symbol cast) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      Value* operand = node->input(i);
      if (operand->type()->kind() != c10::TypeKind::TensorType || operand->node()->kind() == cast) {
        continue;
      }
      std::vector<Value*> arguments = {operand, graph_.insert_constant(region.cuda, node),
                                       graph_.insert_constant(region.cpu, node)};
      if (cast == aten::_autocast_to_reduced_precision) {
        arguments.push_back(graph_.insert_constant(static_cast<int64_t>(region.cuda_dtype), node));
        arguments.push_back(graph_.insert_constant(static_cast<int64_t>(region.cpu_dtype), node));
      }
      Node* cast_node = graph_.create(cast, arguments, 1);
      cast_node->set_location(node->location());
      resolve(*cast_node);
      cast_node->insert_before(node);
      for (size_t same = i; same < node->inputs().size(); ++same) {
        if (node->input(same) == operand) {
          node->set_input(same, cast_node->output());
        }
      }
      changed_ = true;
    }
  }

  Graph& graph_;
  bool changed_ = false;
};

}  // namespace

bool lower_autocast(Graph& graph) { return AutocastLowering(graph).run(); }

}  // namespace sconce
