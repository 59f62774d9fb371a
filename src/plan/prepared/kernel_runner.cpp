// KernelRunner: how a kernel is prepared, and how it runs. A step works like a polymorphic inline cache: it keeps kernels
// for a few forms of operands (StepState), and stops preparing where that is no use.
#include "plan/prepared/kernel_runner.h"

#include "base/assert.h"

#include <algorithm>
#include <utility>

namespace sconce {

using Source = PreparedOperand::Source;

namespace {

// Returns whether computing with the operands takes longer than to prepare a kernel for them, up to 20 us.
bool has_many_elements(const KernelArguments& arguments) {
  constexpr int64_t kMany = 16 * 1024;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments.is_tensor(i) && arguments.tensor(i).defined() && arguments.tensor(i).numel() >= kMany) {
      return true;
    }
  }
  return false;
}

}  // namespace

StepState& KernelRunner::state_of(Frame& frame) const {
  std::shared_ptr<StepState>& state = frame.states[parts_.state];
  if (state == nullptr) {
    // The frame gets a whole state, or none: if there is no memory for the results, the next run makes it again.
    auto made = std::make_shared<StepState>();
    made->results.resize(parts_.results.size());
    state = std::move(made);
  }
  return *state;
}

// Returns whether no kernel is prepared for the operands of this run, because that was no use before. Some later run tries
// again.
bool KernelRunner::has_given_up(StepState& state) {
  if (!state.patience.is_exhausted()) {
    return false;
  }
  state.is_ready = false;
  state.is_refused = true;
  return !state.patience.allows();
}

// Makes another form the current one, if the operands of this run have it.
bool KernelRunner::choose_other_form(Frame& frame, StepState& state) const {
  for (auto other = state.others.rbegin(); other != state.others.rend(); ++other) {
    if (match_operands(frame, **other)) {
      std::swap(state.current(), **other);
      return true;
    }
  }
  return false;
}

// Records the operands of this run. Returns whether a kernel can take them.
bool KernelRunner::begin_to_prepare(Frame& frame, StepState& state, const Op* op, bool comes_back) const {
  const uint64_t runs = frame.run_number - std::exchange(state.last_prepared, frame.run_number);
  // Operands may settle: each run between this preparation and the last takes back one loss.
  state.patience.win(std::max<uint64_t>(runs, 1) - 1);
  state.is_ready = false;
  state.is_refused = true;  // also after an exception
  state.is_flat = false;
  state.operands.resize(parts_.operands.size());
  KernelArguments& arguments = state.arguments;
  arguments = KernelArguments();
  arguments.op_ = op;
  arguments.limits_ = parts_.limits;
  arguments.arguments_.resize(parts_.arguments);
  bool fits = true;
  for (size_t i = 0; i < parts_.operands.size(); ++i) {
    fits &= record_operand(frame, state, i);
  }
  // Where sizes change in each run, or in each trip of a loop, an operator makes a view and computes few elements faster
  // than a kernel is prepared. Products keep their packed weights.
  const bool is_fast = !parts_.is_product && parts_.operators == 1 && !has_many_elements(arguments);
  const bool gains_nothing = runs <= 1 && !comes_back && (parts_.is_view || is_fast);
  if (!fits || gains_nothing) {
    state.patience.lose();
  }
  return fits;
}

// Returns whether the kernel of other operands serves these.
bool KernelRunner::prepare_again(StepState& state) const {
  state.is_refused = state.kernel == nullptr || !state.kernel->prepare_again(state.arguments, state.results);
  return !state.is_refused;
}

void KernelRunner::prepare(StepState& state, KernelPtr kernel) const {
  state.kernel.reset();
  state.is_refused = !kernel->prepare(state.arguments, state.results);
  if (state.is_refused) {
    state.why_not = kernel->why_not();
  } else {
    state.kernel = std::move(kernel);
  }
}

// Lets the operator serve operands of this form if it was faster. If nobody has timed them, the next runs do. Not so where
// the kernel has served operands of other sizes: if these change in each run, LibTorch would compute them all.
void KernelRunner::choose_way(Frame& frame, StepState& state, bool is_new) const {
  state.trial.reset();
  const bool may_keep_weights = parts_.device.is_cpu() && parts_.is_product && parts_.limits.packs_weights &&
                                parts_.limits.times_choices &&
                                std::ranges::any_of(parts_.operands, &PreparedOperand::is_weight);
  if (state.is_refused || !may_keep_weights || !is_new || !has_many_elements(state.arguments)) {
    return;
  }
  if (const auto times = Trial::times_of(state.arguments)) {
    take_result(frame, state, *times);
  } else {
    state.trial = std::make_unique<Trial>(state.arguments);
  }
}

// Returns whether the operator is to serve this form.
bool KernelRunner::take_result(Frame& frame, StepState& state, const TimedChoices::Times& times) const {
  frame.report_times(parts_.state, times);
  if (!Trial::is_slower(times)) {
    return false;
  }
  state.kernel.reset();  // and with it the weights that it keeps
  state.is_refused = true;
  state.why_not = NotPrepared::kSlower;
  return true;
}

void KernelRunner::end_trial(Frame& frame, StepState& state) const {
  if (!state.trial->is_over()) {
    return;
  }
  const auto times = state.trial->result();
  state.trial.reset();
  if (times && take_result(frame, state, *times)) {
    frame.report_refusal(parts_.state, state.why_not);
  }
}

void KernelRunner::finish_preparing(Frame& frame, StepState& state) const {
  // First what `match_operands` reads. It gives the arguments their addresses, which `record_operand` has left null.
  state.reads_tensors = !state.is_refused && state.kernel->reads_tensors();
  state.may_wait = !state.is_refused && state.kernel->may_have_to_wait();
  state.is_ready = true;
  // A slot's stamp stands for one size, so that a form with a slot serves no other.
  state.is_flat = !state.is_refused && state.kernel->is_flat() &&
                  std::none_of(parts_.operands.begin(), parts_.operands.end(),
                               [](const PreparedOperand& operand) { return operand.source == Source::kSlot; });
  const bool is_taken = match_operands(frame, state);
  SCONCE_ASSERT(is_taken, "a kernel was prepared for other operands");
  for (size_t i = 0; i < parts_.results.size() && !state.is_refused; ++i) {
    give_to_slot(frame, state.results[i], parts_.results[i].slot);
  }
}

// Counts why the ordinary steps serve the operands that were recorded last.
void KernelRunner::report_refusals(Frame& frame, const StepState& state) const {
  if (state.is_refused) {
    frame.report_refusal(parts_.state, state.is_ready ? state.why_not : NotPrepared::kOperandKind);
  }
  if (state.patience.is_exhausted()) {
    frame.report_refusal(parts_.state, NotPrepared::kGaveUp);
  }
}

// Gives the form of a result to its slot.
void KernelRunner::give_to_slot(Frame& frame, KernelResult& result, uint32_t index) const {
  if (index == PreparedResult::kNoSlot) {
    return;
  }
  TensorSlot& slot = frame.slots[index];
  const bool changed = std::exchange(result.changed_, false);
  if (!changed && slot.shell.is_same(result.shell_)) {
    return;
  }
  // Any shell of the same form serves, and readers keep the kernels that they prepared for the slot's. Not so for views: the
  // shell of one may have the storage of its base's shell.
  if (!parts_.is_view && slot.stamp != 0 && slot.bytes == result.bytes_ && have_same_form(slot.shell, result.shell_)) {
    result.shell_ = slot.shell;  // of another step that computes the same value, or of another form of this one
    result.stamp_ = slot.stamp;
    slot.is_of_kernel = true;
    return;
  }
  // A shell keeps its stamp, so that readers find the kernels that they prepared for it.
  if (changed || result.stamp_ == 0) {
    result.stamp_ = frame.next_stamp++;
  }
  slot.shell = result.shell_;
  slot.is_of_kernel = true;
  slot.stamp = result.stamp_;
  slot.bytes = parts_.is_view ? 0 : result.bytes_;
  slot.data = nullptr;
  frame.place_in_arena(index);
}

// Returns a tensor for a result without a slot.
at::Tensor KernelRunner::new_result(Frame& frame, KernelResult& result, const PreparedResult& place) {
  if (place.home != PreparedResult::kNoHome) {
    const at::Tensor& home = frame[place.home].toTensor();
    if (have_same_form(home, result.shell_)) {
      return home;
    }
  }
  return place.is_reused ? result.reused_.take(result.shell_) : empty_like_shell(result.shell_);
}

// Gives the results memory.
void KernelRunner::take_memory(Frame& frame, StepState& state) const {
  for (size_t i = 0; i < parts_.results.size(); ++i) {
    KernelResult& result = state.results[i];
    const uint32_t index = parts_.results[i].slot;
    if (!result.shell_.defined()) {
      continue;  // nothing uses the result, and the kernel has not placed it
    }
    if (index == PreparedResult::kNoSlot) {
      const at::Tensor& shell = result.shell_;
      result.fresh_ = new_result(frame, result, parts_.results[i]);
      result.data = result.fresh_.mutable_data_ptr();
      // For kernels that write through the shell (PreparedKernel::reads_tensors).
      point_storage_at(shell, result.data);
      continue;
    }
    TensorSlot& slot = frame.slots[index];
    if (!slot.shell.is_same(result.shell_)) [[unlikely]] {
      // Another step, or another form of this one, computed the value in the meantime.
      change_shells(frame, [&] { give_to_slot(frame, result, index); });
    }
    if (!parts_.is_view) {
      if (!slot.in_arena) [[unlikely]] {
        frame.allocate(index);
      }
      result.data = slot.data;
    }
  }
}

void KernelRunner::run(Frame& frame, StepState& state) const {
  take_memory(frame, state);
  // Such memory is the capture's, and these arguments serve later runs, also after a run that raised.
  state.arguments.number_memory_.clear();
  if (reads_numbers_in_memory(frame)) [[unlikely]] {
    find_number_memory(frame, state.arguments);
  }
  state.kernel->run(state.arguments, state.results);
  hand_out(frame, state);
}

void KernelRunner::find_number_memory(Frame& frame, KernelArguments& arguments) const {
  arguments.number_memory_.assign(parts_.arguments, nullptr);
  for (const PreparedOperand& operand : parts_.operands) {
    const auto found = frame.capture->number_memory.find(operand.box);
    if (operand.source == Source::kRunTime && operand.attribute == PreparedOperand::kNone &&
        found != frame.capture->number_memory.end()) {
      arguments.number_memory_[operand.position] = found->second;
    }
  }
}

void KernelRunner::hand_out(Frame& frame, StepState& state) const {
  if (parts_.is_view) {
    for (size_t i = 0; i < parts_.results.size(); ++i) {
      const uint32_t index = parts_.results[i].slot;
      frame.slots[index].data = state.results[i].data;
      // Before operands are dropped: the base's register may be the last to hold memory that readers of the view need.
      if (parts_.operands[0].source == Source::kBox && parts_.operands[0].attribute == PreparedOperand::kNone) {
        frame.hold(index, frame[parts_.operands[0].box]);
      }
    }
  }
  for (const Register dropped : parts_.dropped) {
    frame[dropped] = c10::IValue();
  }
  // After the operands: a result of a group may have the register of one.
  for (size_t i = 0; i < parts_.results.size(); ++i) {
    const PreparedResult& result = parts_.results[i];
    if (result.slot == PreparedResult::kNoSlot) {
      frame[result.box] = std::move(state.results[i].fresh_);
    } else if (result.is_boxed) {
      frame[result.box] = frame.slots[result.slot].shell;
    }
  }
  release_slots(frame);
}

void KernelRunner::release_slots(Frame& frame) const {
  if (frame.has_blocks()) [[unlikely]] {
    frame.release(parts_.released);
  }
}

std::string KernelRunner::describe() const {
  std::string text;
  for (const PreparedOperand& operand : parts_.operands) {
    if (operand.source == Source::kSlot) {
      text += " $" + std::to_string(operand.slot);
    } else if (operand.attribute == PreparedOperand::kNone) {
      text += " %" + std::to_string(operand.box);
    } else {
      const AttributePath& path = parts_.attributes[operand.attribute];
      text += " %" + std::to_string(path.object);
      for (const uint32_t slot : path.slots) {
        text += "." + std::to_string(slot);
      }
    }
  }
  const char* separator = " -> ";
  for (const PreparedResult& result : parts_.results) {
    const bool has_slot = result.slot != PreparedResult::kNoSlot;
    text += separator + std::string(has_slot ? "$" : "%") + std::to_string(has_slot ? result.slot : result.box);
    text += result.home != PreparedResult::kNoHome ? " in %" + std::to_string(result.home) : "";
    separator = " ";
  }
  for (const uint32_t released : parts_.released) {
    text += " release $" + std::to_string(released);
  }
  return text;
}

}  // namespace sconce
