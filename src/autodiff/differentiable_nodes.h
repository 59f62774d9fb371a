// Which nodes a differentiable graph may have.
#pragma once

#include "ir/graph.h"

#include <sconce/explanation.h>

#include <optional>

namespace sconce {

enum class Role : uint8_t {
  kOutside,         // ends a differentiable graph that it depends on
  kDifferentiated,  // a gradient flows through it
  kBystander,       // no gradient flows through it: numbers, lists, masks, statistics that it writes
};

// Returns what the node is to a differentiable graph. The facts of its operands decide whether a gradient may flow. A
// gradient flows through operators whose rows have a backward text, and through cats, stacks and cuts of tensors.
Role role_of(const Node& node);

// Returns why no gradient flows through the node in a differentiable graph, or nullopt if one does. Requires: the node is no
// bystander.
std::optional<NotDifferentiated> why_outside(const Node& node);

// Returns whether autograd may record the node where no differentiable graph has it: an operator, or a call, that a gradient
// flows through. Nodes with blocks and containers are none; those in their blocks are.
bool carries_gradient(const Node& node);

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
// is repeated where its results are used outside of a differentiable graph.
bool is_repeatable(const Node& node);

}  // namespace sconce
