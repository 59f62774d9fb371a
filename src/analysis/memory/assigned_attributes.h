// The attributes of objects that a graph, or a program, assigns.
#pragma once

#include "ir/graph.h"

#include <set>
#include <string>
#include <utility>

namespace sconce {

// Distinguishes objects by class only: an attribute assigned in one object counts as assigned in every object of its class.
class AssignedAttributes {
 public:
  AssignedAttributes() = default;  // none
  explicit AssignedAttributes(const Graph& graph);

  void add(const c10::Type& object, const std::string& attribute) { assigned_.insert({object.annotation_str(), attribute}); }

  // Notes that a list of tensors changes, which may be an attribute.
  void add_changed_list() { changes_lists_ = true; }
  bool changes_lists() const { return changes_lists_; }

  // Returns whether a node of the graph assigns the attribute that `access`, a prim::GetAttr or prim::SetAttr, names. True
  // for every attribute if the graph runs unknown code.
  bool contains(const Node& access) const;
  // Returns whether a prim::SetAttr of the graph names the attribute.
  bool names(const Node& access) const;

 private:
  std::set<std::pair<std::string, std::string>> assigned_;  // class, attribute
  bool any_may_be_ = false;
  bool changes_lists_ = false;
};

}  // namespace sconce
