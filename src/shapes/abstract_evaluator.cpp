#include "shapes/abstract_evaluator.h"

#include "base/assert.h"
#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

constexpr int kMaxIterations = 8;      // limit of a fixpoint loop; beyond it, everything that the loop changes is unknown
constexpr int64_t kMaxSteps = 20'000;  // limit of an evaluation with concrete trips
constexpr int64_t kMaxTrips = 100;     // limit for evaluating iterations one by one in a fixpoint evaluation

}  // namespace

AbstractEvaluator::AbstractEvaluator(const Graph& graph, SizeArithmetic& arithmetic, Loops loops, Rules rules)
    : graph_(graph),
      arithmetic_(arithmetic),
      loops_(loops),
      rules_(std::move(rules)),
      assigned_(graph),
      values_(graph.id_bound()),
      steps_left_(kMaxSteps) {}

bool AbstractEvaluator::run(AbstractValues inputs) {
  SCONCE_ASSERT(inputs.size() == graph_.inputs().size());
  find_assigned_attributes();
  for (size_t i = 0; i < inputs.size(); ++i) {
    set(graph_.inputs()[i], std::move(inputs[i]));
  }
  return run_block(graph_.body()) && !gave_up_;
}

bool AbstractEvaluator::run_block(const Block& block) {
  for (const Node* node : block.nodes()) {
    gave_up_ = gave_up_ || (--steps_left_ < 0 && loops_ == Loops::kConcreteTrips);
    if (gave_up_ || !run_node(*node)) {
      return false;
    }
  }
  return true;
}

bool AbstractEvaluator::run_node(const Node& node) {
  switch (node.opcode()) {
    case Opcode::kIf: return run_branches(node);
    case Opcode::kLoop: return run_loop(node);
    case Opcode::kGradOf: run_gradient(node); return true;
    case Opcode::kRaise: return false;
    default: break;
  }
  if (!run_language_node(node)) {
    run_operator(node);
  }
  return true;
}

// ---- control flow -----------------------------------------------------------------------------------------------------

bool AbstractEvaluator::run_branches(const Node& node) {
  const auto condition = at(*node.input(0)).as_boolean();
  struct Outcome {
    bool completes = false;
    AbstractHeap::Changes changes;
    AbstractValues returns;
    SizeArithmetic::Replacements learnt;
  };
  std::array<Outcome, 2> outcomes;
  for (const size_t branch : {size_t{0}, size_t{1}}) {
    if (condition == (branch == 1)) {
      continue;  // never taken
    }
    heap_.begin_branch();
    const SizeArithmetic::Replacements constraints_before = path_constraints_;
    assume(*node.input(0), branch == 0);
    outcomes[branch].completes = run_block(*node.block(branch));
    outcomes[branch].returns = returns_of(*node.block(branch));
    outcomes[branch].changes = heap_.end_branch();
    outcomes[branch].learnt = std::exchange(path_constraints_, constraints_before);
  }
  auto& [first, second] = outcomes;
  if (!first.completes && !second.completes) {
    return false;
  }
  if (first.completes && second.completes) {
    heap_.apply_either(first.changes, second.changes);
  } else {
    heap_.apply(first.completes ? first.changes : second.changes);
    path_constraints_ = first.completes ? first.learnt : second.learnt;
  }
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (first.completes && second.completes && make_either_list(node, i, {&first.changes, &second.changes})) {
      continue;
    }
    if (!first.completes || !second.completes) {
      set(node.output(i), first.completes ? first.returns[i] : second.returns[i]);
    } else if (is_refinement_of(first.returns[i], second.returns[i], first.learnt)) {
      set(node.output(i), second.returns[i]);
    } else if (is_refinement_of(second.returns[i], first.returns[i], second.learnt)) {
      set(node.output(i), first.returns[i]);
    } else {
      set(node.output(i), join(*node.input(0), first.returns[i], second.returns[i]));
    }
  }
  return true;
}

// For two lists that do not escape and are made where the branches return them, makes one list that stands for
// either.
bool AbstractEvaluator::make_either_list(const Node& node, size_t output,
                                         const std::array<const AbstractHeap::Changes*, 2>& changes) {
  std::array<const AbstractList*, 2> lists = {nullptr, nullptr};
  for (const size_t branch : {size_t{0}, size_t{1}}) {
    const Value& value = *node.block(branch)->returns()[output];
    const auto made = made_here_.find(&value);
    const ListId* id = at(value).as_list();
    if (id == nullptr || made == made_here_.end() || !(made->second == *id) || value.uses().size() != 1 ||
        changes[branch]->count(id->number) == 0) {
      return false;
    }
    lists[branch] = &changes[branch]->at(id->number);
  }
  AbstractList joined = heap_.join(*lists[0], *lists[1]);
  if (joined.is_escaped) {
    return false;
  }
  make_list(*node.output(output), std::move(joined));
  return true;
}

bool AbstractEvaluator::run_loop(const Node& node) {
  if (const auto completes = run_loop_one_by_one(node)) {
    return *completes;
  }
  gave_up_ = gave_up_ || loops_ == Loops::kConcreteTrips;
  return !gave_up_ && run_loop_until_stable(node);
}

//   carried = initial values; repeat until stable: run the body; carried = join(carried, values that the body returns)
bool AbstractEvaluator::run_loop_until_stable(const Node& node) {
  const Block& body = *node.block(0);
  AbstractValues carried;
  for (const Value* input : node.inputs().slice(2)) {
    carried.push_back(at(*input));
  }
  const bool may_run = at(*node.input(0)).as_known_integer() != 0 && at(*node.input(1)).as_boolean() != false;
  AbstractHeap::Changes at_head;  // the lists that an earlier iteration may have changed, as they were before the loop
  bool completes = true;
  const bool reused_lists = std::exchange(reuses_lists_, true);
  ++loops_until_stable_;
  for (int round = 0; may_run; ++round) {
    set(body.params()[0], {});  // the number of the iteration
    for (size_t i = 0; i < carried.size(); ++i) {
      set(body.params()[i + 1], carried[i]);
    }
    heap_.begin_branch();
    heap_.apply(at_head);
    const SizeArithmetic::Replacements constraints_before = path_constraints_;
    completes = run_block(body);
    path_constraints_ = constraints_before;
    AbstractValues returned = returns_of(body);
    const AbstractHeap::Changes changes = heap_.end_branch();
    if (!completes) {
      break;  // no run returns from the first iteration
    }
    bool is_stable = true;
    for (size_t i = 0; i < carried.size(); ++i) {
      // The condition is the first value that the body returns.
      AbstractValue joined = heap_.join(carried[i], returned[i + 1]);
      is_stable = is_stable && joined == carried[i];
      carried[i] = round < kMaxIterations || joined == carried[i] ? joined : AbstractValue();
    }
    for (const auto& [number, list] : changes) {
      const auto known = at_head.find(number);
      const AbstractList& before = known != at_head.end() ? known->second : heap_.at(ListId{number});
      AbstractList joined = heap_.join(before, list);
      if (!(joined == before)) {
        is_stable = false;
        at_head[number] = round < kMaxIterations ? joined : kEscapedList;
      } else if (known == at_head.end() && !(list == before)) {
        at_head.emplace(number, joined);
      }
    }
    if (is_stable) {
      break;
    }
  }
  --loops_until_stable_;
  reuses_lists_ = reused_lists;
  heap_.apply(at_head);
  for (size_t i = 0; i < carried.size(); ++i) {
    set(node.output(i), carried[i]);
  }
  return true;
}

// Returns nothing, and undoes its changes, if the number of iterations is unknown or too large.
std::optional<bool> AbstractEvaluator::run_loop_one_by_one(const Node& node) {
  const Block& body = *node.block(0);
  const auto trips = at(*node.input(0)).as_known_integer();
  AbstractValue condition = at(*node.input(1));
  AbstractValues carried;
  for (const Value* input : node.inputs().slice(2)) {
    carried.push_back(at(*input));
  }
  const bool is_choice = loops_ == Loops::kFixpoint;
  const bool reused_lists = std::exchange(reuses_lists_, false);
  const bool collected = std::exchange(collects_, is_choice);
  bool is_known = trips.has_value();
  bool completes = true;
  heap_.begin_branch();
  const SizeArithmetic::Replacements constraints_before = path_constraints_;
  for (int64_t i = 0; is_known && completes && i < *trips && condition.as_boolean() != false; ++i) {
    is_known = condition.as_boolean() == true && (!is_choice || (i < kMaxTrips && steps_left_ >= 0));
    if (!is_known) {
      break;
    }
    set(body.params()[0], AbstractValue::integer(i));
    for (size_t c = 0; c < carried.size(); ++c) {
      set(body.params()[c + 1], carried[c]);
    }
    completes = run_block(body);
    AbstractValues returned = returns_of(body);
    condition = returned[0];
    carried.assign(returned.begin() + 1, returned.end());
  }
  path_constraints_ = constraints_before;
  collects_ = collected;
  reuses_lists_ = reused_lists;
  const AbstractHeap::Changes changes = heap_.end_branch();
  if (is_known) {
    heap_.apply(changes);
  }
  if (!collects_) {
    for (auto& [id, value] : collected_) {
      values_[id] = is_known ? std::move(value) : AbstractValue();
    }
    collected_.clear();
  }
  if (!is_known || !completes) {
    return is_known ? std::optional(false) : std::nullopt;
  }
  for (size_t i = 0; i < carried.size(); ++i) {
    set(node.output(i), carried[i]);
  }
  return true;
}

// Of a value that differs between iterations, collects the common facts if it is a tensor, else nothing.
void AbstractEvaluator::collect(const Value& value) {
  const AbstractValue& found = at(value);
  const auto [entry, is_first] = collected_.try_emplace(static_cast<uint32_t>(value.id()), found);
  if (!is_first && !(entry->second == found)) {
    const TensorFacts* before = entry->second.as_tensor();
    entry->second = before == nullptr || found.as_tensor() == nullptr
                        ? AbstractValue()
                        : AbstractValue::tensor(common_facts(*before, *found.as_tensor()));
  }
}

// ---- the language's own nodes -----------------------------------------------------------------------------------------

bool AbstractEvaluator::run_language_node(const Node& node) {
  switch (node.opcode()) {
    case Opcode::kConstant: {
      const auto* value = node.output()->constant();
      set(node.output(), value ? AbstractValue::constant(*value) : AbstractValue());
      return true;
    }
    case Opcode::kTupleConstruct: set(node.output(), AbstractValue::sequence(operands_of(node))); return true;
    case Opcode::kListConstruct: make_list(*node.output(), {.elements = operands_of(node)}); return true;
    case Opcode::kDictConstruct: make_dict(node); return true;
    case Opcode::kGetAttr: set(node.output(), attribute_read_by(node)); return true;
    case Opcode::kSetAttr: assign_attribute(node); return true;
    case Opcode::kTupleUnpack:
    case Opcode::kListUnpack: {
      const AbstractValue row = at(*node.input(0));
      const AbstractValues* elements = heap_.elements_of(row);
      const bool fits = elements != nullptr && elements->size() == node.outputs().size();
      for (size_t i = 0; i < node.outputs().size(); ++i) {
        set(node.output(i), fits                  ? (*elements)[i]
                            : elements == nullptr ? part_of_cut(*node.input(0)->node())
                                                  : AbstractValue());
      }
      return true;
    }
    case Opcode::kTupleIndex: {
      const AbstractValues* elements = at(*node.input(0)).as_sequence();
      const auto index = elements == nullptr ? std::nullopt : index_into(*elements, *node.input(1));
      set(node.output(), index ? (*elements)[*index] : AbstractValue());
      return true;
    }
    case Opcode::kUncheckedCast:
    case Opcode::kUnwrapOptional: set(node.output(), at(*node.input(0))); return true;
    default: break;
  }
  if (!node.op().is_language() && node.schema() != nullptr) {
    return false;
  }
  // Any other node may keep a list that it gets, and change it later.
  for (const Value* input : node.inputs()) {
    heap_.escape(at(*input));
  }
  set_unknown(node);
  return true;
}

// Returns what is known about each part of a tensor that the node cuts, where the number of parts is not known.
AbstractValue AbstractEvaluator::part_of_cut(const Node& node) const {
  const bool keeps_rank = node.op().cuts && node.opcode() != Opcode::kUnbind;
  const TensorFacts* whole = keeps_rank ? at(*node.input(0)).as_tensor() : nullptr;
  const Value* dim = keeps_rank ? node.named_input("dim") : nullptr;
  if (whole == nullptr || dim == nullptr) {
    return {};
  }
  TensorFacts part;
  part.dtype = whole->dtype;
  part.device = whole->device;
  part.layout = whole->layout;
  part.sizes = whole->sizes;
  part.requires_grad = whole->requires_grad == false ? whole->requires_grad : std::nullopt;
  if (part.sizes) {
    const auto rank = static_cast<int64_t>(part.sizes->size());
    const c10::IValue* number = dim->constant();
    for (int64_t i = 0; i < rank; ++i) {
      if (number == nullptr || i == (number->toInt() < 0 ? number->toInt() + rank : number->toInt())) {
        (*part.sizes)[static_cast<size_t>(i)] = Dim::unknown();
      }
    }
  }
  return AbstractValue::tensor(std::move(part));
}

void AbstractEvaluator::set_unknown(const Node& node) {
  for (const Value* output : node.outputs()) {
    set(output, {});
  }
}

// In a fixpoint loop every iteration makes another list. The number of an earlier one is free to reuse, because lists
// that are carried to the next iteration or stored in containers escape.
void AbstractEvaluator::make_list(const Value& output, AbstractList list) {
  for (const AbstractValue& element : list.elements.value_or(AbstractValues())) {
    put_into_container(element);
  }
  const auto made = made_here_.find(&output);
  if (made == made_here_.end() || !reuses_lists_) {
    const ListId id = heap_.make(std::move(list));
    made_here_.insert_or_assign(&output, id);
    set(&output, AbstractValue::list(id));
    return;
  }
  heap_.remake(made->second, std::move(list));
  set(&output, AbstractValue::list(made->second));
}

void AbstractEvaluator::put_into_container(const AbstractValue& value) {
  if (loops_until_stable_ > 0) {
    heap_.escape(value);
  }
}

AbstractValues AbstractEvaluator::operands_of(const Node& node) const {
  AbstractValues operands;
  for (const Value* input : node.inputs()) {
    operands.push_back(at(*input));
  }
  return operands;
}

AbstractValues AbstractEvaluator::returns_of(const Block& block) const {
  AbstractValues returns;
  for (const Value* value : block.returns()) {
    returns.push_back(at(*value));
  }
  return returns;
}

std::optional<size_t> AbstractEvaluator::index_into(const AbstractValues& elements, const Value& index) const {
  const auto number = at(index).as_known_integer();
  return number ? position_among(elements.size(), *number) : std::nullopt;
}

}  // namespace sconce
