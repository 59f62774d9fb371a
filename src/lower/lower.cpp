#include "lower/lower.h"

#include "analysis/effects.h"
#include "base/assert.h"
#include "ir/constant_operands.h"
#include "ir/kernel_node.h"
#include "lower/liveness.h"
#include "lower/make_step.h"
#include "lower/parts_builder.h"
#include "lower/register_allocator.h"
#include "lower/step_placement.h"
#include "plan/prepared/prepared_step.h"
#include "plan/steps/steps.h"

namespace sconce {
namespace {

// Constants come first, so that a frame keeps them; then inputs and values. A value has its register until its death.
class Lowering {
 public:
  Lowering(const Graph& graph, Callees* callees, Profile* profile, LoweringOptions options)
      : graph_(graph),
        callees_(callees),
        profile_(profile),
        liveness_(graph),
        sizes_may_change_(may_change_sizes(graph)),
        options_(options),
        checks_each_step_(introduces_grad(graph)),
        places_(options.is_prepared ? StepPlacement(graph, callees == nullptr ? nullptr : &callees->assigned(),
                                                    options.groups, options.fresh_outputs, checks_each_step_)
                                    : StepPlacement()) {}

  Expected<void> run() {
    const InternalErrorContext context("lowering to a plan");
    place_constants();
    for (const Value* input : graph_.inputs()) {
      inputs_.push_back(place(input));
    }
    if (profile_ != nullptr) {
      emit(make_profile_run_step(*profile_), nullptr);
      profile_values(graph_.inputs());
    }
    if (auto done = lower_block(graph_.body()); !done) {
      return done.refusal();
    }
    if (options_.has_symbolic_sizes) {
      emit(make_close_sizes_step(operands_of(*graph_.body().return_node(), 0)), nullptr);
    }
    emit(make_return_step(operands_of(*graph_.body().return_node(), 0)), nullptr);
    return {};
  }

  std::unique_ptr<Plan> finish(std::shared_ptr<const Graph> graph) {
    prepared_.lifetimes = places_.lifetimes();
    prepared_.slots = places_.slot_owners();
    auto plan = std::make_unique<Plan>(std::move(graph), std::move(steps_), std::move(constants_), std::move(inputs_),
                                       allocator_.count(), checks_each_step_, std::move(prepared_));
    plan->set_thread_limit(options_.thread_limit);
    return plan;
  }

 private:
  void place_constants() {
    zero_ = allocator_.take();
    constants_.emplace_back(0);
    for_each_node(graph_.body(), [&](Node* node) {
      if (node->opcode() == Opcode::kConstant) {
        place(node->output());
        constants_.push_back(*node->output()->constant());
      }
    });
  }

  Register place(const Value* value) {
    const Register index = allocator_.take();
    registers_[value] = index;
    return index;
  }

  Register register_of(const Value* value) const {
    const auto found = registers_.find(value);
    SCONCE_ASSERT(found != registers_.end(), "%", value->name().empty() ? std::to_string(value->id()) : value->name(),
                  " of ", value->node()->kind().toQualString(), " is used before it is made");
    return found->second;
  }

  // A loop's params keep their registers through its body: the next iteration and the loop's outputs use them.
  void release(const Value* value) {
    const Node* loop = value->node()->opcode() == Opcode::kParam ? value->node()->owning_block()->owner() : nullptr;
    const bool is_loop_param = loop != nullptr && loop->kind() == prim::Loop;
    if (!places_.is_kept(*value) && !is_loop_param) {
      allocator_.release(register_of(value));
    }
  }

  // Releases registers after the step that reads them. They are in use until the step has written its results.
  void release_last_uses(const Node& node) {
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (liveness_.is_last_use(node, i)) {
        release(node.input(i));
      }
    }
  }

  Operand operand_of(const Node& node, size_t input) const {
    const Value* value = node.input(input);
    return {register_of(value), !places_.is_kept(*value) && liveness_.is_last_use(node, input)};
  }

  Operands operands_of(const Node& node, size_t first) const {
    Operands operands;
    for (size_t i = first; i < node.inputs().size(); ++i) {
      operands.push_back(operand_of(node, i));
    }
    return operands;
  }

  template <typename AnyStep>
  AnyStep* emit(std::unique_ptr<AnyStep> step, const Node* node) {
    AnyStep* raw = step.get();
    steps_.push_back({std::move(step), node, loop_});
    return raw;
  }

  // Notes where the step at `position` leaves these values.
  template <typename Values>
  void note_results(const Values& values, size_t position) {
    for (const Value* value : values) {
      if (is_tensor(*value)) {
        steps_[position].results.emplace_back(value, register_of(value));
      }
    }
  }

  void profile_values(c10::ArrayRef<Value*> values) {
    if (profile_ == nullptr || values.empty()) {
      return;
    }
    std::vector<std::pair<const Value*, Register>> places;
    for (const Value* value : values) {
      places.emplace_back(value, register_of(value));
    }
    emit(make_profile_values_step(*profile_, std::move(places)), nullptr);
  }

  // Numbers need not be dropped: they hold no memory.
  void drop(const std::vector<const Value*>& values) {
    Registers registers;
    for (const Value* value : values) {
      const bool holds_something = holds_memory(value->type()) || value->type()->kind() == c10::TypeKind::StringType;
      if (holds_something && !places_.is_kept(*value)) {
        registers.push_back(register_of(value));
      }
      release(value);
    }
    if (!registers.empty()) {
      emit(make_drop_step(std::move(registers)), nullptr);
    }
  }

  Expected<void> lower_block(const Block& block) {
    drop(liveness_.dead_on_entry(block));
    for (const Node* node : block.nodes()) {
      const PreparedNodes* unit = places_.unit_of(*node);
      if (node->opcode() == Opcode::kConstant || (unit != nullptr && node != unit->nodes.back())) {
        continue;
      }
      auto done = node->opcode() == Opcode::kIf       ? lower_if(*node)
                  : node->opcode() == Opcode::kLoop   ? lower_loop(*node)
                  : node->opcode() == Opcode::kKernel ? lower_kernel(*node)
                  : unit != nullptr                   ? lower_unit(*unit)
                                                      : lower_node(*node);
      if (!done) {
        return done;
      }
      profile_values(node->outputs());
      drop(liveness_.dead_after(*node));
      if (const auto& released = places_.released_after(*node); !released.empty() && unit == nullptr) {
        emit(make_release_step(released), nullptr);
      }
      if (places_.group_of_kernel(*node) != nullptr) {
        end_group(*node);
      }
    }
    return {};
  }

  // Returns the index of the state of a step that computes the nodes.
  uint32_t add_state(std::vector<const Node*> nodes, bool is_group) {
    prepared_.kernels.push_back({std::move(nodes), is_group});
    return static_cast<uint32_t>(prepared_.kernels.size() - 1);
  }

  // Emits the step of the kernel, then those of its nodes, which run where there is none. Results take its registers.
  Expected<void> lower_kernel(const Node& node) {
    group_ = places_.group_of_kernel(node);
    if (group_ != nullptr) {
      group_position_ = steps_.size();
      group_step_ = emit(make_group_step(*group_, *options_.groups), group_->nodes.front());
      if (operator_step_.first != nullptr && operator_step_.first == places_.product_before(node)) {
        operator_step_.second->set_follower(*group_step_);
      }
      group_parts_ = {.arguments = group_->operands.size(),
                      .operators = group_->nodes.size(),
                      .device = options_.groups->device(),
                      .limits = options_.limits,
                      .state = add_state(group_->nodes, /*is_group=*/true)};
      for (size_t i = 0; i < group_->operands.size(); ++i) {
        parts_.add_operand(group_parts_, *group_->operands[i], i, /*is_run_time=*/true);
      }
    }
    if (auto done = lower_block(*node.block(0)); !done) {
      return done;
    }
    for (const Value* output : node.outputs()) {
      registers_[output] = register_of(&computed_value(*output));
    }
    return {};
  }

  // Completes the step of the kernel. It does what the steps of its nodes do to registers and slots.
  void end_group(const Node& kernel) {
    for (const Value* result : group_->results) {
      parts_.add_result(group_parts_, *result, group_->nodes);
    }
    for (const Node* each : group_->nodes) {
      parts_.add_dropped(group_parts_, *each);
    }
    group_parts_.released = places_.released_after(kernel);
    group_step_->set_parts(std::move(group_parts_));
    group_step_->set_target(steps_.size());
    note_results(group_->results, group_position_);
    group_ = nullptr;
  }

  Expected<StepPtr> make_step(const Node& node) {
    const Operands operands = operands_of(node, 0);
    Registers results;
    for (const Value* output : node.outputs()) {
      results.push_back(place(output));
    }
    prepared_.has_captures = prepared_.has_captures || node.opcode() == Opcode::kCaptured;
    return sconce::make_step(node, operands, results, callees_, sizes_may_change_, options_);
  }

  Expected<void> lower_node(const Node& node) {
    auto step = make_step(node);
    if (!step) {
      return step.refusal();
    }
    if (node.attribute(attr::kAutocast) != nullptr) {
      *step = make_autocast_step(std::move(*step));
    }
    emit(places_.is_read_in_place(node) ? make_unprepared_step(std::move(*step)) : std::move(*step), &node);
    note_results(node.outputs(), steps_.size() - 1);
    if (const auto reason = places_.why_not_prepared(node); reason && group_ == nullptr) {
      prepared_.ordinary.emplace_back(&node, *reason);
    }
    release_last_uses(node);
    return {};
  }

  Expected<void> lower_unit(const PreparedNodes& unit) {
    KernelStepParts parts{.released = places_.released_after(*unit.nodes.back()),
                          .arguments = unit.op->inputs().size(),
                          .is_view = unit.kernel->is_view,
                          .is_product = unit.kernel->has_rows,
                          .limits = options_.limits,
                          .state = add_state({unit.op}, /*is_group=*/false)};
    std::vector<StepPtr> ordinary;
    for (const Node* node : unit.nodes) {
      auto step = make_step(*node);
      if (!step) {
        return step.refusal();
      }
      ordinary.push_back(std::move(*step));
    }
    parts_.add_operands(parts, unit);
    for (const Value* result : unit.nodes.back()->outputs()) {
      parts_.add_result(parts, *result, {});
    }
    for (const Node* node : unit.nodes) {
      parts_.add_dropped(parts, *node);
      release_last_uses(*node);
    }
    operator_step_ = {unit.op,
                      emit(make_prepared_step(*unit.op, *unit.kernel, std::move(parts), std::move(ordinary)), unit.op)};
    note_results(unit.nodes.back()->outputs(), steps_.size() - 1);
    return {};
  }

  Expected<void> lower_if(const Node& node) {
    Registers results;
    for (const Value* output : node.outputs()) {
      results.push_back(place(output));
    }
    JumpingStep* to_else = emit(make_jump_unless_step({register_of(node.input(0)), false}), &node);
    release_last_uses(node);
    const RegisterAllocator::State before = allocator_.state();
    if (auto done = lower_branch(node, 0, results); !done) {
      return done.refusal();
    }
    JumpingStep* to_end = emit(make_jump_step(), nullptr);
    to_else->set_target(steps_.size());
    allocator_.restart_with(before);
    if (auto done = lower_branch(node, 1, results); !done) {
      return done.refusal();
    }
    to_end->set_target(steps_.size());
    return {};
  }

  Expected<void> lower_branch(const Node& node, size_t branch, const Registers& results) {
    const Block& block = *node.block(branch);
    if (profile_ != nullptr) {
      emit(make_profile_branch_step(*profile_, node, branch == 0), nullptr);
    }
    if (auto done = lower_block(block); !done) {
      return done.refusal();
    }
    if (!results.empty()) {
      emit(make_move_step(operands_of(*block.return_node(), 0), results), nullptr);
      release_last_uses(*block.return_node());
    }
    return {};
  }

  //   move 0, limit, condition, carried… -> counter, limit', condition', params…
  //   head: loop counter < limit' while condition' -> iteration, else end
  //     body
  //     move condition, carried… -> condition', params…
  //     jump head
  //   end: the params' registers are the outputs'
  Expected<void> lower_loop(const Node& node) {
    const Block& body = *node.block(0);
    const Register counter = allocator_.take();
    const Register limit = allocator_.take();
    const Register condition = allocator_.take();
    Operands initial = operands_of(node, 0);
    initial.insert(initial.begin(), {zero_, false});
    Registers targets = {counter, limit, condition};
    Registers carried = {condition};
    const Register iteration = place(body.params()[0]);
    for (size_t i = 1; i < body.params().size(); ++i) {
      const Register param = place(body.params()[i]);
      targets.push_back(param);
      carried.push_back(param);
      registers_[node.output(i - 1)] = param;
    }
    emit(make_move_step(std::move(initial), std::move(targets)), &node);
    release_last_uses(node);
    if (profile_ != nullptr) {
      emit(make_profile_loop_step(*profile_, node), nullptr);
    }
    const Node* const around = std::exchange(loop_, &node);
    const size_t head = steps_.size();
    JumpingStep* loop_head = emit(make_loop_head_step(counter, limit, condition, iteration), &node);
    if (profile_ != nullptr) {
      emit(make_profile_iteration_step(*profile_, node), nullptr);
      profile_values(body.params());
    }
    if (auto done = lower_block(body); !done) {
      return done.refusal();
    }
    emit(make_move_step(operands_of(*body.return_node(), 0), std::move(carried)), nullptr);
    release_last_uses(*body.return_node());
    emit(make_jump_step(), nullptr)->set_target(head);
    loop_head->set_target(steps_.size());
    loop_ = around;
    for (const Register index : {counter, limit, condition, iteration}) {
      allocator_.release(index);
    }
    return {};
  }

  const Graph& graph_;
  Callees* callees_;
  Profile* profile_;
  Liveness liveness_;
  const bool sizes_may_change_;
  const LoweringOptions options_;
  const bool checks_each_step_;
  const StepPlacement places_;
  Plan::Prepared prepared_{};
  const Node* loop_ = nullptr;        // the innermost loop around the node that is lowered
  const NodeGroup* group_ = nullptr;  // of the kernel node that is lowered
  GroupStep* group_step_ = nullptr;
  size_t group_position_ = 0;                            // of that step
  std::pair<const Node*, OperatorStep*> operator_step_;  // the last one
  KernelStepParts group_parts_;
  FlatMap<const Value*, Register> registers_;
  const PartsBuilder parts_{places_, liveness_, registers_, options_.first_bound_input};
  std::vector<Plan::PlannedStep> steps_;
  std::vector<c10::IValue> constants_;
  Registers inputs_;
  RegisterAllocator allocator_;
  Register zero_ = 0;  // holds 0, the initial value of loop counters
};

}  // namespace

Expected<std::unique_ptr<Plan>> lower(std::shared_ptr<const Graph> graph, Callees* callees, Profile* profile,
                                      LoweringOptions options) {
  Lowering lowering(*graph, callees, profile, options);
  auto done = lowering.run();
  return done ? Expected<std::unique_ptr<Plan>>(lowering.finish(std::move(graph))) : done.refusal();
}

}  // namespace sconce
