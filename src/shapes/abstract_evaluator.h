// Abstract interpretation: evaluates a graph on abstract values of its inputs.
//
//   prim::If     if the condition is unknown, evaluates both branches and joins the results. A branch that raises is
//                left out, because no run returns from it
//   prim::Loop   runs as many iterations as a run would, if that number is known; else iterates to a fixpoint
//   lists, dicts follows in-place changes until the list or dict escapes
#pragma once

#include "analysis/memory/assigned_attributes.h"
#include "ir/graph.h"
#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

#include <array>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace sconce {

class AbstractEvaluator {
 public:
  enum class Loops {
    kFixpoint,      // values hold for every iteration; a few iterations of known number are evaluated one by one
    kConcreteTrips  // every iteration has values of its own; a loop of unknown length ends the evaluation
  };
  // Rules of the caller for values that are not numbers or lists.
  struct Rules {
    // Returns an operator's results, one per output. Operands that are lists are given as their elements.
    std::function<AbstractValues(const Node& node, const AbstractValues& operands)> results;
    // Refines the abstract value that was derived for a value.
    std::function<AbstractValue(const Value& value, AbstractValue found)> refined;
    // Returns the value at the start of a run of the attribute that a `prim::GetAttr` reads, for attributes that the graph
    // assigns.
    std::function<AbstractValue(const Node& get)> initial_attribute_values;
  };

  AbstractEvaluator(const Graph& graph, SizeArithmetic& arithmetic, Loops loops, Rules rules = {});

  // Evaluates the graph. Returns whether a run may reach its end. Also false if kConcreteTrips gave up.
  bool run(AbstractValues inputs);

  // After `run`: the abstract value that covers every time the value is computed. Unknown if no run computes it.
  const AbstractValue& at(const Value& value) const { return values_[value.id()]; }
  AbstractValue snapshot(const Value& value) const { return heap_.snapshot(at(value)); }

 private:
  // Returns whether a run may reach the end of the block.
  bool run_block(const Block& block);
  bool run_node(const Node& node);
  bool run_branches(const Node& node);
  AbstractValue join(const Value& condition, const AbstractValue& if_true, const AbstractValue& if_false);
  void assume(const Value& condition, bool holds);
  void assume_equal(const AbstractValue& one, const AbstractValue& other);
  // Returns whether `special`, derived under the assumptions `learnt`, equals `general` under these assumptions, without
  // losing knowledge.
  bool is_refinement_of(const AbstractValue& special, const AbstractValue& general,
                        const SizeArithmetic::Replacements& learnt) const;
  AbstractValue with(const SizeArithmetic::Replacements& learnt, const AbstractValue& value) const;
  AbstractValue now(const Value& value) const { return with(path_constraints_, at(value)); }
  bool make_either_list(const Node& node, size_t output, const std::array<const AbstractHeap::Changes*, 2>& changes);
  bool run_loop(const Node& node);
  void run_gradient(const Node& node);
  bool run_loop_until_stable(const Node& node);
  std::optional<bool> run_loop_one_by_one(const Node& node);
  void collect(const Value& value);
  void run_operator(const Node& node);
  bool run_language_node(const Node& node);
  bool run_list_operator(const Node& node);
  bool run_dict_operator(const Node& node);
  bool run_unbind(const Node& node);
  AbstractValue integer_result(const Node& node) const;
  std::optional<AbstractValues> constant_results(const Node& node) const;

  void set(const Value* value, AbstractValue found) {
    found = with(path_constraints_, found);
    values_[value->id()] = rules_.refined ? rules_.refined(*value, std::move(found)) : std::move(found);
    if (collects_) {
      collect(*value);
    }
  }
  void set_unknown(const Node& node);
  AbstractValue part_of_cut(const Node& node) const;
  void make_list(const Value& output, AbstractList list);
  void make_dict(const Node& node);
  void find_assigned_attributes();
  AbstractValue attribute_read_by(const Node& get) const;
  void assign_attribute(const Node& set);
  AbstractValue held_in(ListId attribute) const;
  void put_into_container(const AbstractValue& value);
  AbstractValues operands_of(const Node& node) const;
  AbstractValues returns_of(const Block& block) const;
  std::optional<size_t> index_into(const AbstractValues& elements, const Value& index) const;

  const Graph& graph_;
  SizeArithmetic& arithmetic_;
  const Loops loops_;
  const Rules rules_;
  AbstractHeap heap_;
  std::unordered_map<const Node*, std::pair<AbstractValue, AbstractValue>>
      compared_;                                   // by comparison: the lists at that time
  SizeArithmetic::Replacements path_constraints_;  // given symbols whose value the path to the current node implies
  const AssignedAttributes assigned_;
  std::map<std::pair<std::string, std::string>, ListId> attributes_;  // assigned ones, by path of the object and name
  AbstractValues values_;                                             // by id
  std::unordered_map<const Value*, ListId> made_here_;  // lists made in a fixpoint loop, by the value that is the list
  bool reuses_lists_ = false;                           // the innermost loop iterates to a fixpoint
  int loops_until_stable_ = 0;                          // number of fixpoint loops around the current node
  bool collects_ = false;                               // iterations run one by one: collect what holds in all of them
  std::unordered_map<uint32_t, AbstractValue> collected_;
  int64_t steps_left_;
  bool gave_up_ = false;
};

}  // namespace sconce
