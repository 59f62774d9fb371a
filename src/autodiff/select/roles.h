// Which nodes a differentiable subgraph may have.
#pragma once

#include "base/flat_map.h"
#include "ir/graph.h"

#include <sconce/explanation.h>

#include <optional>

namespace sconce {

enum class Role : uint8_t {
  kOutside,         // ends a differentiable subgraph that it depends on
  kDifferentiated,  // a gradient flows through it
  kAuxiliary,       // no gradient flows through it: numbers, lists, masks, statistics that it writes
};

// The roles of a graph's nodes, those in nested blocks too. The facts of its operands decide whether a gradient may flow
// through a node. A gradient flows through operators that have a rule (rules/gradient_rule.h), and through cats, stacks and
// cuts of tensors. Nodes with blocks have no role (differentiable_blocks.h).
//
// Describes the graph as it is when the object is made: to find a role may run passes on the condition of a row's texts.
class Roles {
 public:
  explicit Roles(const Graph& graph);

  // Returns the node's role, kOutside if it has none.
  Role of(const Node& node) const;
  // Returns why the node is kOutside, or nullopt.
  std::optional<NotDifferentiated> why_outside(const Node& node) const;

 private:
  struct Entry {
    Role role;
    std::optional<NotDifferentiated> reason;  // of kOutside
  };
  FlatMap<const Node*, Entry> entries_;
};

// Returns whether no gradient flows through the node, and it may be in a differentiable subgraph. Cheap: needs no Roles.
bool is_auxiliary(const Node& node);

// Returns whether autograd may record the node where no differentiable subgraph has it: an operator, or a call, that a
// gradient flows through. Nodes with blocks and containers are none; those in their blocks are.
bool autograd_records(const Node& node);

// Returns whether a gradient may flow to the value: a floating-point or complex tensor that may require a gradient.
bool may_require_grad(const Value& value);

// Returns whether the value is known to require a gradient.
bool requires_grad(const Value& value);

// Returns whether the value is a tensor that is known to be of a real dtype, which the texts of gradients require.
bool is_real_tensor(const Value& value);

// Returns whether the value is a number or a list of numbers: it holds no tensor and no object.
bool is_number_like(const Value& value);

// Returns whether the node joins the tensors of a list that a prim::ListConstruct makes for it.
bool joins_list(const Node& node);
// Returns whether the node cuts a tensor into a list that is only unpacked.
bool cuts_list(const Node& node);

// Returns whether the node's results may share memory with its operands, or are containers. Such a node costs little, and
// is repeated where its results are used outside of a differentiable subgraph, and in backward.
bool is_cheap_view(const Node& node);

}  // namespace sconce
