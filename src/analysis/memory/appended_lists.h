// Lists of tensors that a branch or a loop fills:
//
//   %list : Tensor[] = prim::ListConstruct()
//   … = prim::Loop(…)
//     block0(…): … aten::append(%list, %element) …
//   %joined : Tensor = aten::stack(%list, %dim)
#pragma once

#include "ir/graph.h"

#include <optional>
#include <vector>

namespace sconce {

struct AppendedList {
  Node* filled_by;             // in the list's block
  std::vector<Node*> appends;  // nested in it
  std::vector<Use> reads;      // the other uses, all after it; they may write, too
};

// Returns how the list is filled. Returns nullopt unless prim::ListConstruct makes it empty, and the first node of its block
// that uses it has blocks in which nodes append to it, and do nothing else with it.
std::optional<AppendedList> appended_list(const Value& list);

// Returns the cat or stack that alone reads an appended list, in the list's block; null if there is none.
Node* joining_node(const AppendedList& list);

// Returns whether the node is such a cat or stack.
bool joins_appended_list(const Node& node);

}  // namespace sconce
