// Runs a graph on what is known about its inputs: abstract interpretation.
//
// Branches whose condition is not known are run both, and what holds after either is kept; a branch that raises is left out,
// for no run comes back from it. Loops are run as often as they would be where that is known; else until what is known at
// their head holds for every iteration. In-place changes of lists and dicts are followed, as long as nobody else holds them.
#pragma once

#include "analysis/assigned_attributes.h"
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
    kFixpoint,      // what is known holds for every iteration; few ones, of known number, are run one by one
    kConcreteTrips  // each with its own values; one of unknown length ends the evaluation
  };
  // What is known beyond numbers and lists.
  struct Rules {
    // The results of an operator, one per output, from its operands with elements in the place of lists.
    std::function<AbstractValues(const Node& node, const AbstractValues& operands)> results;
    // What holds for a value, from what was found out about it.
    std::function<AbstractValue(const Value& value, AbstractValue found)> refined;
    // What the attribute that the `prim::GetAttr` reads holds when the run begins, though the graph assigns it later.
    std::function<AbstractValue(const Node& get)> initial_attribute_values;
  };

  AbstractEvaluator(const Graph& graph, SizeArithmetic& arithmetic, Loops loops, Rules rules = {});

  // Whether the end is reached in some run. False as well where kConcreteTrips has given up: then `gave_up`.
  bool run(AbstractValues inputs);
  bool gave_up() const { return gave_up_; }

  // After the run: what held whenever the value was computed. Unknown for values that no run gets to.
  const AbstractValue& at(const Value& value) const { return values_[value.id()]; }
  AbstractValue snapshot(const Value& value) const { return heap_.snapshot(at(value)); }

 private:
  // Whether the end of the block is reached.
  bool run_block(const Block& block);
  bool run_node(const Node& node);
  bool run_branches(const Node& node);
  AbstractValue join(const Value& condition, const AbstractValue& if_true, const AbstractValue& if_false);
  void assume(const Value& condition, bool holds);
  void assume_equal(const AbstractValue& one, const AbstractValue& other);
  // Whether `special`, found where that is learnt, is what `general` says there, and no less is known of it.
  bool is_refinement_of(const AbstractValue& special, const AbstractValue& general,
                        const SizeArithmetic::Replacements& learnt) const;
  AbstractValue with(const SizeArithmetic::Replacements& learnt, const AbstractValue& value) const;
  AbstractValue now(const Value& value) const { return with(path_constraints_, at(value)); }
  bool make_either_list(const Node& node, size_t output, const std::array<const AbstractHeap::Changes*, 2>& changes);
  bool run_loop(const Node& node);
  bool run_loop_until_stable(const Node& node);
  std::optional<bool> run_loop_one_by_one(const Node& node);
  void collect(const Value& value);
  void run_operator(const Node& node);
  bool run_language_node(const Node& node);
  bool run_list_operator(const Node& node);
  bool run_dict_operator(const Node& node);
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
  std::unordered_map<const Node*, std::pair<AbstractValue, AbstractValue>> compared_;  // lists as they were, by comparison
  SizeArithmetic::Replacements
      path_constraints_;  // of given symbols: what they are wherever the run comes to what is run now
  const AssignedAttributes assigned_;
  std::map<std::pair<std::string, std::string>, ListId> attributes_;  // that are assigned, by path of the object and name
  AbstractValues values_;                                             // by id
  std::unordered_map<const Value*, ListId> made_here_;  // the list of each value of a new one, in a loop until stable
  bool reuses_lists_ = false;                           // the innermost loop is run until stable
  int loops_until_stable_ = 0;                          // around what is run now
  bool collects_ = false;                               // in iterations one by one: what holds in all of them
  std::unordered_map<uint32_t, AbstractValue> collected_;
  int64_t steps_left_;
  bool gave_up_ = false;
};

}  // namespace sconce
