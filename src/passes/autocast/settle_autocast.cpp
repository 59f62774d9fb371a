#include "passes/autocast/settle_autocast.h"

#include "analysis/memory/alias_sets.h"
#include "base/flat_map.h"
#include "ir/constant_operands.h"
#include "ir/memory_types.h"
#include "ir/schema_match.h"
#include "passes/insert_node.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <vector>

namespace sconce {
namespace {

class Settlement {
 public:
  Settlement(Graph& graph, const CallersAutocast& autocast) : graph_(graph), aliases_(graph), autocast_(autocast) {}

  bool run() {
    std::vector<Node*> nodes;
    for_each_node(graph_.body(), [&](Node* node) { nodes.push_back(node); });
    bool changed = false;
    for (Node* node : nodes) {
      if (node->opcode() == Opcode::kAutocastCast) {
        changed |= settle(*node);
      } else if (node->op().cpu_autocast == CpuAutocast::kPromoted && !node->op().runs_under_autocast &&
                 !promotes_as_autocast(*node)) {
        run_under_autocast(*node);
        changed = true;
      }
    }
    return changed;
  }

 private:
  bool settle(Node& cast) {
    const TensorFacts* before = cast.input(0)->facts();
    const TensorFacts* after = cast.output()->facts();
    if (before == nullptr || after == nullptr || !before->dtype || !before->device || !after->dtype) {
      return false;
    }
    Value* result = before->dtype == after->dtype ? cast.input(0) : may_be_kept(cast) ? kept(cast) : converted(cast);
    if (result == cast.output()) {
      return false;
    }
    cast.output()->replace_all_uses_with(result);
    cast.erase();
    return true;
  }

  Value* converted(Node& cast) {
    Value* no = graph_.insert_constant(false, &cast);
    Value* none = graph_.insert_constant(c10::IValue(), &cast);
    return insert_operator(aten::to, {cast.input(0), cast.input(1), no, no, none}, cast, *cast.output()->facts());
  }

  // ---- casts that LibTorch keeps (at::autocast::cached_cast) ----------------------------------------------------------

  bool may_be_kept(const Node& cast) const {
    const TensorFacts& before = *cast.input(0)->facts();
    return autocast_.keeps_casts && before.dtype == c10::kFloat && cast.output()->facts()->dtype == autocast_.dtype &&
           before.requires_grad != false && may_be_leaf(*cast.input(0));
  }

  // Results of operators that require a gradient are no leaves, unless they are an operand itself.
  static bool may_be_leaf(const Value& value) {
    FlatSet<const Value*> visited;
    return may_be_leaf(value, visited);
  }

  static bool may_be_leaf(const Value& value, FlatSet<const Value*>& visited) {
    if (!visited.insert(&value).second || (value.facts() != nullptr && value.facts()->requires_grad == false)) {
      return false;
    }
    const auto any = [&](std::initializer_list<const Value*> values) {
      return std::ranges::any_of(values, [&](const Value* each) { return may_be_leaf(*each, visited); });
    };
    const Node& node = *value.node();
    const Node* const owner = node.kind() == prim::Param ? node.owning_block()->owner() : nullptr;
    if (node.opcode() == Opcode::kIf) {
      return any({node.block(0)->returns()[value.offset()], node.block(1)->returns()[value.offset()]});
    }
    if (node.opcode() == Opcode::kLoop) {
      return any({node.input(value.offset() + 2), node.block(0)->returns()[value.offset() + 1]});
    }
    if (owner != nullptr && owner->opcode() == Opcode::kLoop && value.offset() > 0) {
      return any({owner->input(value.offset() + 1), owner->block(0)->returns()[value.offset()]});
    }
    if (!node.op().dispatched || node.op().has_tag(at::Tag::inplace_view) || node.named_input("requires_grad") != nullptr) {
      return true;
    }
    const bool is_marked = node.schema()->returns()[value.offset()].alias_info() != nullptr;
    const auto inputs = node.inputs();
    return (is_marked || node.op().results_may_share_memory) && std::ranges::any_of(inputs, [&](const Value* each) {
             return holds_memory(each->type()) && (!is_tensor(*each) || may_be_leaf(*each, visited));
           });
  }

  // Returns the cast of the value that serves all uses: it comes right after the value. In place of a value that the graph
  // may write, each use asks the cache itself, as in LibTorch.
  Value* kept(Node& cast) {
    Value* leaf = cast.input(0);
    if (aliases_.may_be_written(*leaf)) {
      return cast.output();
    }
    Value*& shared = kept_[leaf];
    if (shared == nullptr) {
      const Node& definition = *leaf->node();
      const Block& block = *definition.owning_block();
      Node* position = definition.kind() == prim::Param ? block.first() : definition.next();
      position = position != nullptr ? position : block.return_node();
      Value* dtype = graph_.insert_constant(static_cast<int64_t>(autocast_.dtype), position);
      shared = insert_operator(cast.kind(), {leaf, dtype}, *position, *cast.output()->facts());
      shared->node()->set_location(cast.location());
    }
    return shared;
  }

  // ---- joins ----------------------------------------------------------------------------------------------------------

  // Autocast casts to float32 if there is a float32 tensor, ignores double, and rejects every other dtype but its own. The
  // operator itself promotes to the same dtype.
  bool promotes_as_autocast(const Node& join) const {
    const auto inputs = join.inputs();
    return std::ranges::all_of(inputs, [this](const Value* input) {
      return is_tensor(*input) ? is_promoted(*input) : !is_list_of_tensors(*input) || has_promoted_elements(*input);
    });
  }

  static bool is_list_of_tensors(const Value& value) { return value.type()->isSubtypeOf(*c10::ListType::ofTensors()); }

  bool has_promoted_elements(const Value& list) const {
    return list.node()->opcode() == Opcode::kListConstruct && !aliases_.may_be_written(list) &&
           std::ranges::all_of(list.node()->inputs(), [this](const Value* each) { return is_promoted(*each); });
  }

  bool is_promoted(const Value& tensor) const {
    const auto dtype = tensor.facts() == nullptr ? std::nullopt : tensor.facts()->dtype;
    return dtype &&
           (dtype == autocast_.dtype || dtype == c10::kFloat || dtype == c10::kDouble || !c10::isFloatingType(*dtype));
  }

  Graph& graph_;
  const AliasSets aliases_;
  const CallersAutocast& autocast_;
  FlatMap<const Value*, Value*> kept_;
};

}  // namespace

bool settle_autocast(Graph& graph, const CallersAutocast& autocast) { return Settlement(graph, autocast).run(); }

}  // namespace sconce
