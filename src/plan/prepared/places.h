// Places: which nodes of a graph are prepared, and which values have slots.
#pragma once

#include "base/flat_map.h"
#include "ir/graph.h"
#include "plan/memory_plan.h"
#include "plan/prepared/kernel.h"

#include <vector>

namespace sconce {

// A node is prepared if its operator has a kernel. Its result has a slot unless it may be held after the run (rule R2), or
// may outlive the trip of the loop that computes it. Memory of a slot is in use while any alias of it may be.
class Places {
 public:
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  // Without places: every node runs by its ordinary step.
  Places() = default;
  explicit Places(const Graph& graph);

  // Returns null if the node is not prepared.
  const KernelRow* kernel_of(const Node& node) const;
  uint32_t slot_of(const Value& value) const;
  // Returns whether the value is a list that exists only for the prepared node after it.
  bool is_operand_list(const Value& value) const { return operand_lists_.contains(&value); }
  // Returns the slots whose memory is used for the last time by the node, or by the blocks in it.
  const std::vector<uint32_t>& released_after(const Node& node) const;
  const std::vector<Lifetime>& lifetimes() const { return lifetimes_; }

 private:
  struct Extent {
    uint32_t begin;
    uint32_t end;
  };
  void number(const Block& block);
  void choose_nodes(const Graph& graph);
  void choose_slots(const Graph& graph);
  void add_slot(const Value& value, uint32_t last);

  FlatMap<const Node*, Extent> extents_;
  std::vector<const Node*> node_at_;  // by position; the end of a node with blocks is a position, too
  FlatMap<const Node*, const KernelRow*> kernels_;
  FlatSet<const Value*> operand_lists_;
  FlatMap<const Value*, uint32_t> slots_;
  FlatMap<const Node*, std::vector<uint32_t>> released_;
  std::vector<Lifetime> lifetimes_;
};

}  // namespace sconce
