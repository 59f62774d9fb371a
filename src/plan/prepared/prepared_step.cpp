#include "plan/prepared/prepared_step.h"

#include "plan/prepared/same_value.h"
#include "plan/prepared/step_state.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>

namespace sconce {

class PreparedStep final : public Step {
 public:
  PreparedStep(const Node& node, PreparedStepParts parts) : Step(true), node_(node), parts_(std::move(parts)) {}

  void prepare(Frame& frame) const override {
    for (const StepPtr& step : parts_.ordinary) {
      step->prepare(frame);
    }
  }

  void run(Frame& frame) const override {
    if (!frame.runs_prepared) {
      run_ordinary(frame);
      return;
    }
    StepState& state = state_of(frame);
    const bool gives_up = state.misfits >= StepState::kMostMisfits;
    if (!gives_up && !(state.is_ready && take_operands(frame, state))) {
      prepare_kernel(frame, state);
    }
    if (gives_up || state.is_refused) {
      run_ordinary_and_adopt(frame, state);
      release_slots(frame);
      return;
    }
    take_memory(frame, state);
    state.kernel->run(state.arguments, state.results);
    hand_out(frame, state);
  }

  std::string describe() const override {
    std::string text = std::string("prepared ") + node_.kind().toQualString();
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
      separator = " ";
    }
    for (const uint32_t released : parts_.released) {
      text += " release $" + std::to_string(released);
    }
    return text;
  }

 private:
  using Source = PreparedOperand::Source;

  StepState& state_of(Frame& frame) const {
    std::unique_ptr<StepState>& state = frame.states[parts_.state];
    if (state == nullptr) {
      state = std::make_unique<StepState>();
      state->results.resize(parts_.results.size());
    }
    return *state;
  }

  // Returns an operand that is not in a slot.
  const c10::IValue& boxed(Frame& frame, const PreparedOperand& operand) const {
    if (operand.attribute == PreparedOperand::kNone) {
      return frame[operand.box];
    }
    const AttributePath& path = parts_.attributes[operand.attribute];
    const c10::IValue* value = &frame[path.object];
    for (const uint32_t slot : path.slots) {
      value = &value->toObjectRef().slots()[slot];
    }
    return *value;
  }

  // Returns the value of an argument that is not a tensor, as the kernel sees it.
  static c10::IValue& value_of(StepState& state, const PreparedOperand& operand) {
    return state.arguments.values_[state.arguments.arguments_[operand.position].first];
  }

  // Takes the operands of this run. Returns whether the kernel was prepared for such operands.
  bool take_operands(Frame& frame, StepState& state) const {
    size_t tensor = 0;
    for (size_t i = 0; i < parts_.operands.size(); ++i) {
      const PreparedOperand& operand = parts_.operands[i];
      const KnownOperand& known = state.operands[i];
      switch (operand.source) {
        case Source::kSlot: {
          const TensorSlot& slot = frame.slots[operand.slot];
          if (slot.stamp != known.stamp) {
            return false;
          }
          state.arguments.data_[tensor++] = slot.data;
          break;
        }
        case Source::kBox: {
          const c10::IValue& value = boxed(frame, operand);
          if (!known.matches(value)) {
            return false;
          }
          void* const data = const_cast<void*>(value.unsafeToTensorImpl()->data());  // operands are only read
          state.arguments.data_[tensor++] = data;
          if (state.reads_tensors) {
            point_storage_at(known.shell, data);
          }
          break;
        }
        case Source::kValue:
          if (!is_same_value(boxed(frame, operand), value_of(state, operand))) {
            return false;
          }
          break;
        case Source::kElement: {
          const c10::IValue& value = boxed(frame, operand);
          if (!value.isInt() || value.toInt() != known.number) {
            return false;
          }
          break;
        }
        case Source::kRunTime:
          if (!boxed(frame, operand).isInt()) {
            return false;
          }
          value_of(state, operand) = boxed(frame, operand);
          break;
        case Source::kConstant: break;
      }
    }
    return true;
  }

  void prepare_kernel(Frame& frame, StepState& state) const {
    state.is_ready = false;
    state.is_refused = false;
    state.kernel.reset();
    // A view of sizes that change in each run, or in each trip of a loop, is made faster by the operator itself.
    const bool prepares_again = parts_.kernel->is_view && frame.run_number - state.last_prepared <= 1;
    state.misfits += prepares_again ? 1 : 0;
    state.last_prepared = frame.run_number;
    state.operands.resize(parts_.operands.size());
    KernelArguments& arguments = state.arguments;
    arguments = KernelArguments();
    arguments.op_ = &node_.op();
    arguments.is_exact_ = parts_.is_exact;
    arguments.arguments_.resize(parts_.arguments);
    bool fits = true;
    for (size_t i = 0; i < parts_.operands.size(); ++i) {
      fits &= record_operand(frame, state, i);
    }
    state.is_refused = true;  // also after an exception
    if (fits) {
      state.kernel = parts_.kernel->make();
      state.is_refused = !state.kernel->prepare(arguments, state.results);
    }
    if (state.is_refused) {
      state.kernel.reset();
    }
    state.reads_tensors = !state.is_refused && state.kernel->reads_tensors();
    state.misfits += fits ? 0 : 1;
    state.is_ready = fits;
    if (fits) {
      const bool is_taken = take_operands(frame, state);
      TORCH_INTERNAL_ASSERT(is_taken, node_.kind().toQualString(), " was prepared for other operands");
    }
    for (size_t i = 0; i < parts_.results.size() && !state.is_refused; ++i) {
      give_to_slot(frame, state.results[i], parts_.results[i].slot);
    }
  }

  // Gives the form of a result to its slot.
  void give_to_slot(Frame& frame, KernelResult& result, uint32_t index) const {
    if (index == PreparedResult::kNoSlot) {
      return;
    }
    TensorSlot& slot = frame.slots[index];
    if (std::exchange(result.changed_, false) || !slot.shell.is_same(result.shell_)) {
      slot.shell = result.shell_;
      slot.stamp = frame.next_stamp++;
      slot.bytes = parts_.kernel->is_view ? 0 : result.bytes_;
      slot.data = nullptr;
      frame.place_in_arena(index);
    }
  }

  // Records an operand as what the kernel is prepared for. Returns false if no kernel can take such an operand.
  bool record_operand(Frame& frame, StepState& state, size_t i) const {
    const PreparedOperand& operand = parts_.operands[i];
    KnownOperand& known = state.operands[i];
    KernelArguments& arguments = state.arguments;
    KernelArguments::Argument& argument = arguments.arguments_[operand.position];
    const bool continues_list = operand.in_list && i > 0 && parts_.operands[i - 1].position == operand.position;
    if (operand.source == Source::kElement) {
      const c10::IValue& value = boxed(frame, operand);
      if (!continues_list) {
        argument = {KernelArguments::Argument::Kind::kValue, static_cast<uint32_t>(arguments.values_.size())};
        arguments.values_.emplace_back(c10::List<int64_t>());
      }
      known.number = value.isInt() ? value.toInt() : 0;
      arguments.values_.back().toIntList().push_back(known.number);
      return value.isInt();
    }
    if (operand.source != Source::kSlot && operand.source != Source::kBox) {
      const c10::IValue& value = boxed(frame, operand);
      argument = {KernelArguments::Argument::Kind::kValue, static_cast<uint32_t>(arguments.values_.size())};
      arguments.values_.push_back(operand.source == Source::kValue ? snapshot_of(value) : value);
      return operand.source == Source::kConstant || (operand.source == Source::kRunTime && value.isInt()) ||
             is_same_value(value, arguments.values_.back());
    }
    if (continues_list) {
      ++argument.count;
    } else {
      argument = {operand.in_list ? KernelArguments::Argument::Kind::kTensorList : KernelArguments::Argument::Kind::kTensor,
                  static_cast<uint32_t>(arguments.tensors_.size())};
    }
    arguments.data_.push_back(nullptr);
    if (operand.source == Source::kSlot) {
      const TensorSlot& slot = frame.slots[operand.slot];
      known.stamp = slot.stamp;
      arguments.tensors_.push_back(&slot.shell);
      return slot.stamp != 0;
    }
    const c10::IValue& box = boxed(frame, operand);
    const bool can = known.prepare(box);
    arguments.tensors_.push_back(&known.shell);
    if (can) {
      point_storage_at(known.shell, const_cast<void*>(box.unsafeToTensorImpl()->data()));
    }
    return can;
  }

  // Gives the results memory.
  void take_memory(Frame& frame, StepState& state) const {
    for (size_t i = 0; i < parts_.results.size(); ++i) {
      KernelResult& result = state.results[i];
      const uint32_t index = parts_.results[i].slot;
      if (index == PreparedResult::kNoSlot) {
        const at::Tensor& shell = result.shell_;
        result.fresh_ = at::detail::empty_strided_cpu(shell.sizes(), shell.strides(), shell.scalar_type());
        result.data = result.fresh_.mutable_data_ptr();
        point_storage_at(shell, result.data);
      } else if (!parts_.kernel->is_view) {
        TensorSlot& slot = frame.slots[index];
        if (!slot.in_arena) [[unlikely]] {
          frame.allocate(index);
        }
        result.data = slot.data;
      }
    }
  }

  // Hands the results to their readers, and drops operands at their last use.
  void hand_out(Frame& frame, StepState& state) const {
    for (size_t i = 0; i < parts_.results.size(); ++i) {
      const PreparedResult& result = parts_.results[i];
      if (result.slot == PreparedResult::kNoSlot) {
        frame[result.box] = std::move(state.results[i].fresh_);
        continue;
      }
      TensorSlot& slot = frame.slots[result.slot];
      if (parts_.kernel->is_view) {
        slot.data = state.results[i].data;
        if (parts_.operands[0].source == Source::kBox && parts_.operands[0].attribute == PreparedOperand::kNone) {
          frame.hold(result.slot, frame[parts_.operands[0].box]);
        }
      }
      if (result.is_boxed) {
        frame[result.box] = slot.shell;
      }
    }
    for (const Register dropped : parts_.dropped) {
      frame[dropped] = c10::IValue();
    }
    release_slots(frame);
  }

  void release_slots(Frame& frame) const {
    if (frame.has_blocks()) [[unlikely]] {
      for (const uint32_t slot : parts_.released) {
        frame.release(slot);
      }
    }
  }

  void run_ordinary(Frame& frame) const {
    for (const StepPtr& step : parts_.ordinary) {
      frame.autograd->skip(frame.may_skip_autograd && step->may_skip_autograd());
      step->run(frame);
    }
  }

  // Runs the ordinary steps on operands in slots and boxes, and puts their results into the slots.
  void run_ordinary_and_adopt(Frame& frame, StepState& state) const {
    for (const PreparedOperand& operand : parts_.operands) {
      // An ordinary step that made the operand left it in the box, too.
      if (operand.source == Source::kSlot && !frame[operand.box].isTensor()) {
        frame[operand.box] = frame.slots[operand.slot].shell;
      } else if (operand.attribute != PreparedOperand::kNone) {
        frame[operand.box] = boxed(frame, operand);
      }
    }
    run_ordinary(frame);
    for (size_t i = 0; i < parts_.results.size(); ++i) {
      if (parts_.results[i].slot != PreparedResult::kNoSlot) {
        adopt(frame, state.results[i], parts_.results[i]);
      }
    }
  }

  // Puts a result of the ordinary steps into its slot.
  void adopt(Frame& frame, KernelResult& result, const PreparedResult& place) const {
    TensorSlot& slot = frame.slots[place.slot];
    const c10::IValue& made = frame[place.box];
    KnownOperand made_as;
    if (!made_as.prepare(made)) {
      slot.stamp = 0;  // a sparse tensor, for example: its readers find it in the box
      return;
    }
    if (!slot.shell.defined() || slot.bytes != 0 || slot.shell.scalar_type() != made_as.shell.scalar_type() ||
        slot.shell.sizes() != made_as.shell.sizes() || slot.shell.strides() != made_as.shell.strides()) {
      slot.shell = std::move(made_as.shell);
      slot.stamp = frame.next_stamp++;
      slot.bytes = 0;
      slot.in_arena = false;
    }
    slot.data = made.toTensor().mutable_data_ptr();
    point_storage_at(slot.shell, slot.data);
    frame.hold(place.slot, made);
    result.shell_ = at::Tensor();
  }

  const Node& node_;  // of the graph that the plan keeps alive
  PreparedStepParts parts_;
};

StepPtr make_prepared_step(const Node& node, PreparedStepParts parts) {
  return std::make_unique<PreparedStep>(node, std::move(parts));
}

}  // namespace sconce
