// Which attributes of objects the nodes of a graph assign.
#pragma once

#include "ir/graph.h"

#include <set>
#include <string>
#include <utility>

namespace sconce {

// Objects are told apart by their classes alone: an attribute assigned in one counts as assigned in all of the class.
class AssignedAttributes {
 public:
  explicit AssignedAttributes(const Graph& graph);

  // Of a `prim::GetAttr` or `prim::SetAttr`: whether some node assigns the attribute. True for all where something of which
  // nothing is known runs.
  bool contains(const Node& access) const;

 private:
  std::set<std::pair<std::string, std::string>> assigned_;  // class, attribute
  bool any_may_be_ = false;
};

}  // namespace sconce
