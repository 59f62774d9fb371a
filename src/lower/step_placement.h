// StepPlacement: which nodes of a graph are prepared, and which values have slots.
#pragma once

#include "analysis/memory/assigned_attributes.h"
#include "base/flat_map.h"
#include "ir/graph.h"
#include "lower/regions.h"
#include "plan/memory_plan.h"
#include "plan/prepared/group.h"
#include "plan/prepared/kernel.h"
#include "plan/tensor_slot.h"

#include <sconce/explanation.h>

#include <deque>
#include <optional>
#include <vector>

namespace sconce {

// The nodes that one prepared step runs.
struct PreparedNodes {
  const KernelRow* kernel;
  const Node* op;
  // The lists that the operator reads, the operator, and what unpacks the list that it returns. The step stands at the last
  // of them, whose outputs are its results.
  std::vector<const Node*> nodes;
};

// Returns whether the node is an operator that returns tensors.
bool returns_tensors(const Node& node);

// A node is prepared if its operator has a kernel. Its result has a slot unless it may be held after the run (rule R2), or
// may outlive the trip of the loop that computes it. Memory of a slot is in use while any alias of it may be.
class StepPlacement {
 public:
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  // Without places: every node runs by its ordinary step.
  StepPlacement() = default;
  // `assigned`: by other code of the program. `groups`: makes the kernels of kernel nodes; null: nothing does.
  // `fresh_outputs`: see LoweringOptions. `checks_each_step`: autograd may record any step and keep its operands, so that no
  // value has a slot, and no view is prepared.
  StepPlacement(const Graph& graph, const AssignedAttributes* assigned, const GroupCompiler* groups,
                std::optional<size_t> fresh_outputs, bool checks_each_step);

  // Returns the unit that the node belongs to; null if the node is not prepared.
  const PreparedNodes* unit_of(const Node& node) const;
  // Returns the group of a kernel node; null for other nodes. Its nodes are prepared one by one, too.
  const NodeGroup* group_of_kernel(const Node& node) const;
  // Returns the product right before the kernel node, whose result nothing but the group uses: they run together. Null if
  // there is none.
  const Node* product_before(const Node& kernel) const;
  uint32_t slot_of(const Value& value) const;
  // Returns the input of the graph in whose memory the value is computed, since all that happens to it is that it is copied
  // there (attr::kHome); null for other values.
  const Value* home_of(const Value& value) const;
  // Returns whether the value may be a tensor of a former run (ReusedResults): it may be held after the run or after the
  // trip of a loop. Others are freed after their last use.
  bool is_reused(const Value& value) const { return reused_.contains(&value); }
  // Returns the slots whose memory is used for the last time by the node, or by the blocks in it.
  const std::vector<uint32_t>& released_after(const Node& node) const;
  const std::vector<Lifetime>& lifetimes() const { return lifetimes_; }
  const std::vector<SlotOwner>& slot_owners() const { return slot_owners_; }
  // Returns why a node is not prepared. None for prepared nodes and for those that return no tensor.
  std::optional<NotPrepared> why_not_prepared(const Node& node) const;

  // ---- attributes that the run does not change
  // Returns the reads from an input of the graph to the value, the first one first; none for other values.
  std::vector<const Node*> attribute_reads(const Value& value) const;
  // Returns whether the value is a constant, or an attribute that no code of the program assigns, in each way to it: an
  // assigned one may be a tensor that the caller gave and writes through a pointer.
  bool is_weight(const Value& value) const;
  // Returns whether only prepared steps use what the node, a prim::GetAttr, reads.
  bool is_read_in_place(const Node& node) const { return read_in_place_.contains(&node); }
  // Returns whether the value keeps its register to the end of the run: a constant, or an object whose attributes prepared
  // steps read.
  bool is_kept(const Value& value) const { return value.node()->opcode() == Opcode::kConstant || objects_.contains(&value); }

 private:
  void choose_nodes(const Graph& graph);
  void leave_out_views(const Graph& graph, const Regions& regions, bool checks_each_step);
  FlatSet<const PreparedNodes*> views_beside_writes(const Graph& graph, const Regions& regions) const;
  void choose_attributes(const Graph& graph, const AssignedAttributes* assigned_elsewhere);
  void find_groups(const Graph& graph);
  void join_products(const GroupCompiler& groups);
  const Node* find_product_before(const Node& kernel) const;
  void choose_slots(const Regions& regions);
  void choose_reused(const Regions& regions, const Block& body, size_t fresh_outputs);
  void add_slot(const PreparedNodes& unit, const Value& value, uint32_t last);

  Positions positions_;
  std::deque<PreparedNodes> units_;
  FlatMap<const Node*, const PreparedNodes*> unit_of_;
  std::deque<NodeGroup> groups_;
  FlatMap<const Node*, const NodeGroup*> group_of_;
  FlatMap<const Node*, const Node*> products_;  // by the kernel node after them
  FlatMap<const Value*, uint32_t> slots_;
  FlatSet<const Value*> reused_;
  FlatMap<const Node*, std::vector<uint32_t>> released_;
  std::vector<Lifetime> lifetimes_;
  std::vector<SlotOwner> slot_owners_;
  FlatMap<const Node*, NotPrepared> not_prepared_;
  FlatSet<const Node*> fixed_reads_;     // of attributes that the run does not change
  FlatSet<const Node*> assigned_reads_;  // of attributes that other code assigns
  bool lists_stay_ = false;              // no code changes a list of tensors that may be an attribute
  FlatSet<const Node*> read_in_place_;
  FlatSet<const Value*> objects_;
};

}  // namespace sconce
