// Operands that LibTorch's autograd keeps as copies.
#pragma once

#include "analysis/memory/alias_sets.h"
#include "analysis/memory/memory_writes.h"
#include "ir/graph.h"

#include <optional>
#include <unordered_set>

namespace sconce {

// Autograd keeps a copy of an operand where LibTorch's operator reshapes or scales it for the operators that it is made of:
// matrix products of batches, attention, norms. The operand may be written until backward then. The rules of these operators
// keep the operand itself, and backward would raise.
//
// Describes the graph as it is when the first question is asked.
class OperandsCopiedByAutograd {
 public:
  explicit OperandsCopiedByAutograd(const Graph& graph) : graph_(graph) {}

  // Returns whether autograd may keep a copy of an operand of the node that the graph may write after it ran the node.
  bool any_is_written_later(const Node& node);

 private:
  struct Writes {
    explicit Writes(const Graph& graph);

    AliasSets aliases;
    MemoryWrites memory;
    std::unordered_set<const Value*> written;  // what nodes write, and all that it comes from
  };

  bool may_be_written_after(const Value& value, const Node& node);

  const Graph& graph_;
  std::optional<Writes> writes_;  // made when first needed
};

}  // namespace sconce
