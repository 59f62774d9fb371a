// RewritePattern: replaces every occurrence of one small graph by another.
//
//   pattern                                         replacement
//   graph(%x : Tensor):                             graph(%x : Tensor):
//     %s : Tensor = aten::sigmoid(%x)                 %r : Tensor = aten::silu(%x)
//     %r : Tensor = aten::mul(%x, %s)                 return (%r)
//     return (%r)
//
// An input of the pattern matches any value of its type whose known facts include those that the input names, as in
// `%x : Float(*, *)`. A constant in the pattern matches constants of equal value. A name that occurs twice must match one
// value.
#pragma once

#include "ir/graph.h"

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sconce {

class AliasSets;
class MemoryWrites;

class RewritePattern {
 public:
  // Throws c10::Error if
  //   - a text is malformed, or has a node with effects or blocks;
  //   - a node of the pattern does not contribute to its last node;
  //   - the inputs or outputs of the two differ in number or type.
  RewritePattern(std::string_view pattern, std::string_view replacement);

  // Rewrites until nothing matches. Returns whether the graph changed. Throws c10::Error if replacements keep matching.
  //
  // A match is legal when
  //   - its nodes are in one block;
  //   - intermediate values have no users outside the match;
  //   - no node writes what the match reads before the last node of the match;
  //   - if the old or the new result shares memory with an operand, neither the operands nor the result are written, and the
  //     result does not escape.
  bool apply(Graph& graph) const;

 private:
  using Match = std::unordered_map<const Value*, Value*>;  // value of the pattern → value of the graph

  bool fits(const Value& wanted, Value& value, Match& match) const;
  bool may_replace(const Node& last, const Match& match, const AliasSets& aliases, const MemoryWrites& writes) const;
  void replace(Node& last, const Match& match) const;
  bool sweep(Graph& graph) const;

  std::unique_ptr<Graph> pattern_;
  std::unique_ptr<Graph> replacement_;
  const Node* last_;
  std::vector<bool> shares_alike_;  // for each output: new memory in both graphs
};

}  // namespace sconce
