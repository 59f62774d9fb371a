// Rewriting by example: a graph to look for, and what to put in its place.
//
//   pattern                                         replacement
//   graph(%x : Tensor):                             graph(%x : Tensor):
//     %s : Tensor = aten::sigmoid(%x)                 %r : Tensor = aten::silu(%x)
//     %r : Tensor = aten::mul(%x, %s)                 return (%r)
//     return (%r)
//
// The inputs are holes: a value fits if its type does and it is known to have the facts that the hole names, as in
// `%x : Float(*, *)`. Constants in the pattern fit constants of their value. The same value fits where the same is written.
#pragma once

#include "ir/graph.h"

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sconce {

class AliasSets;
class MemoryWrites;

class RewritePattern {
 public:
  // Throws c10::Error when the texts are malformed, have nodes with effects or blocks, when a node of the pattern does not
  // lead to its last one, or when inputs and outputs do not agree in number and type.
  RewritePattern(std::string_view pattern, std::string_view replacement);

  // Rewrites everywhere, until nothing matches; returns whether anything did. A match counts only if its nodes stand in one
  // block, nobody outside uses what lies between, nothing writes what they read until the last of them, and nobody can tell
  // the new result from the old: where one of the two shares memory with an operand, neither operands nor result may be
  // written, and the result does not leave the graph. Throws c10::Error for a replacement that goes on matching for ever.
  bool apply(Graph& graph) const;

 private:
  using Match = std::unordered_map<const Value*, Value*>;  // of the pattern → of the graph

  bool fits(const Value& wanted, Value& value, Match& match) const;
  bool may_replace(const Node& last, const Match& match, const AliasSets& aliases, const MemoryWrites& writes) const;
  void replace(Node& last, const Match& match) const;
  bool sweep(Graph& graph) const;

  std::unique_ptr<Graph> pattern_;
  std::unique_ptr<Graph> replacement_;
  const Node* last_;
  std::vector<bool> shares_alike_;  // by output: fresh in both
};

}  // namespace sconce
