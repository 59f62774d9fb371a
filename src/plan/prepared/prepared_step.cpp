#include "plan/prepared/prepared_step.h"

#include "plan/prepared/same_value.h"
#include "plan/prepared/step_state.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>

namespace sconce {
namespace {

// Returns whether a shell can stand for the tensor.
bool can_be_imported(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != c10::kStrided) {
    return false;
  }
  constexpr c10::DispatchKeySet kPlain({c10::DispatchKey::CPU, c10::DispatchKey::ADInplaceOrView,
                                        c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutocastCPU});
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return (impl.key_set().raw_repr() & ~kPlain.raw_repr()) == 0 && !impl.is_wrapped_number() &&
         !impl.has_symbolic_sizes_strides() && !impl.is_python_dispatch() && impl.has_storage();
}

}  // namespace

bool ImportedTensor::matches(const c10::IValue& box) const {
  if (!box.isTensor()) {
    return false;
  }
  const c10::TensorImpl& now = *box.unsafeToTensorImpl();
  const c10::TensorImpl& then = *shell.unsafeGetTensorImpl();
  return now.key_set() == keys && now.dtype() == then.dtype() && now.sizes() == then.sizes() &&
         now.strides() == then.strides() && !now.is_wrapped_number();
}

bool ImportedTensor::prepare(const c10::IValue& box) {
  if (!box.isTensor() || !can_be_imported(box.toTensor())) {
    return false;
  }
  const at::Tensor& tensor = box.toTensor();
  shell = make_shell(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  keys = tensor.key_set();
  return true;
}

// ---- StepResult -----------------------------------------------------------------------------------------------------

const at::Tensor& StepResult::place(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) {
  c10::DimVector contiguous;
  if (strides.empty() && !sizes.empty()) {
    contiguous = c10::contiguous_strides(sizes);
    strides = contiguous;
  }
  const bool fits = shell.defined() && shell.scalar_type() == dtype && shell.sizes() == sizes && shell.strides() == strides;
  if (!fits) {
    shell = make_shell(sizes, strides, dtype);
    changed = true;
  }
  bytes = shell.storage().nbytes();
  return shell;
}

// ---- PreparedStep ---------------------------------------------------------------------------------------------------

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
    state.kernel->run(state.arguments, state.result);
    hand_out(frame, state);
  }

  std::string describe() const override {
    std::string text = std::string("prepared ") + node_.kind().toQualString();
    for (const PreparedOperand& operand : parts_.operands) {
      text += (operand.source == PreparedOperand::Source::kSlot ? " $" : " %") + std::to_string(operand.index);
    }
    const PreparedResult& result = parts_.result;
    text += result.slot != PreparedResult::kNoSlot ? " -> $" + std::to_string(result.slot)
                                                   : " -> %" + std::to_string(result.box);
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
    }
    return *state;
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
      switch (operand.source) {
        case Source::kSlot: {
          const TensorSlot& slot = frame.slots[operand.index];
          if (slot.stamp != state.operands[i].stamp) {
            return false;
          }
          state.arguments.data_[tensor++] = slot.data;
          break;
        }
        case Source::kBox: {
          const c10::IValue& value = frame[operand.index];
          const ImportedTensor& imported = state.operands[i];
          if (!imported.matches(value)) {
            return false;
          }
          void* const data = const_cast<void*>(value.unsafeToTensorImpl()->data());  // operands are only read
          state.arguments.data_[tensor++] = data;
          if (state.reads_tensors) {
            point_storage_at(imported.shell, data);
          }
          break;
        }
        case Source::kValue:
          if (!is_same_value(frame[operand.index], value_of(state, operand))) {
            return false;
          }
          break;
        case Source::kRunTime:
          if (!frame[operand.index].isInt()) {
            return false;
          }
          value_of(state, operand) = frame[operand.index];
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
      state.is_refused = !state.kernel->prepare(arguments, state.result);
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
    if (!state.is_refused && parts_.result.slot != PreparedResult::kNoSlot) {
      TensorSlot& slot = frame.slots[parts_.result.slot];
      if (std::exchange(state.result.changed, false) || !slot.shell.is_same(state.result.shell)) {
        slot.shell = state.result.shell;
        slot.stamp = frame.next_stamp++;
        slot.bytes = parts_.result.is_view ? 0 : state.result.bytes;
        slot.data = nullptr;
        frame.place_in_arena(parts_.result.slot);
      }
    }
  }

  // Records an operand as what the kernel is prepared for. Returns false if no kernel can take such an operand.
  bool record_operand(Frame& frame, StepState& state, size_t i) const {
    const PreparedOperand& operand = parts_.operands[i];
    ImportedTensor& record = state.operands[i];
    KernelArguments& arguments = state.arguments;
    KernelArguments::Argument& argument = arguments.arguments_[operand.position];
    if (operand.source != Source::kSlot && operand.source != Source::kBox) {
      const c10::IValue& value = frame[operand.index];
      argument = {KernelArguments::Argument::Kind::kValue, static_cast<uint32_t>(arguments.values_.size())};
      arguments.values_.push_back(operand.source == Source::kValue ? snapshot_of(value) : value);
      return operand.source == Source::kConstant || (operand.source == Source::kRunTime && value.isInt()) ||
             is_same_value(value, arguments.values_.back());
    }
    const bool continues_list = operand.in_list && i > 0 && parts_.operands[i - 1].position == operand.position;
    if (continues_list) {
      ++argument.count;
    } else {
      argument = {operand.in_list ? KernelArguments::Argument::Kind::kTensorList : KernelArguments::Argument::Kind::kTensor,
                  static_cast<uint32_t>(arguments.tensors_.size())};
    }
    arguments.data_.push_back(nullptr);
    if (operand.source == Source::kSlot) {
      const TensorSlot& slot = frame.slots[operand.index];
      record.stamp = slot.stamp;
      arguments.tensors_.push_back(&slot.shell);
      return slot.stamp != 0;
    }
    const c10::IValue& box = frame[operand.index];
    const bool can = record.prepare(box);
    arguments.tensors_.push_back(&record.shell);
    if (can) {
      point_storage_at(record.shell, const_cast<void*>(box.unsafeToTensorImpl()->data()));
    }
    return can;
  }

  // Gives the result memory.
  void take_memory(Frame& frame, StepState& state) const {
    const PreparedResult& result = parts_.result;
    if (result.slot == PreparedResult::kNoSlot) {
      const at::Tensor& shell = state.result.shell;
      state.fresh = at::detail::empty_strided_cpu(shell.sizes(), shell.strides(), shell.scalar_type());
      state.result.data = state.fresh.mutable_data_ptr();
      point_storage_at(shell, state.result.data);
      return;
    }
    if (result.is_view) {
      return;
    }
    TensorSlot& slot = frame.slots[result.slot];
    if (!slot.in_arena) [[unlikely]] {
      frame.allocate(result.slot);
    }
    state.result.data = slot.data;
  }

  // Hands the result to its readers, and drops operands at their last use.
  void hand_out(Frame& frame, StepState& state) const {
    const PreparedResult& result = parts_.result;
    if (result.slot == PreparedResult::kNoSlot) {
      frame[result.box] = std::move(state.fresh);
    } else {
      TensorSlot& slot = frame.slots[result.slot];
      if (result.is_view) {
        slot.data = state.result.data;
        if (parts_.operands[0].source == Source::kBox) {
          frame.hold(result.slot, frame[parts_.operands[0].index]);
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

  // Runs the ordinary steps on operands in slots and boxes, and puts their result into the slot.
  void run_ordinary_and_adopt(Frame& frame, StepState& state) const {
    for (const PreparedOperand& operand : parts_.operands) {
      // An ordinary step that made the operand left it in the box, too.
      if (operand.source == Source::kSlot && !frame[operand.box].isTensor()) {
        frame[operand.box] = frame.slots[operand.index].shell;
      }
    }
    run_ordinary(frame);
    if (parts_.result.slot == PreparedResult::kNoSlot) {
      return;
    }
    TensorSlot& slot = frame.slots[parts_.result.slot];
    const c10::IValue& made = frame[parts_.result.box];
    ImportedTensor imported;
    if (!imported.prepare(made)) {
      slot.stamp = 0;  // a sparse tensor, for example: its readers find it in the box
      return;
    }
    if (!slot.shell.defined() || slot.bytes != 0 || slot.shell.scalar_type() != imported.shell.scalar_type() ||
        slot.shell.sizes() != imported.shell.sizes() || slot.shell.strides() != imported.shell.strides()) {
      slot.shell = std::move(imported.shell);
      slot.stamp = frame.next_stamp++;
      slot.bytes = 0;
      slot.in_arena = false;
    }
    slot.data = made.toTensor().mutable_data_ptr();
    point_storage_at(slot.shell, slot.data);
    frame.hold(parts_.result.slot, made);
    state.result.shell = at::Tensor();
  }

  const Node& node_;  // of the graph that the plan keeps alive
  PreparedStepParts parts_;
};

StepPtr make_prepared_step(const Node& node, PreparedStepParts parts) {
  return std::make_unique<PreparedStep>(node, std::move(parts));
}

namespace {

class ReleaseStep final : public Step {
 public:
  explicit ReleaseStep(std::vector<uint32_t> slots) : Step(true), slots_(std::move(slots)) {}

  void run(Frame& frame) const override {
    if (frame.has_blocks()) {
      for (const uint32_t slot : slots_) {
        frame.release(slot);
      }
    }
  }
  std::string describe() const override {
    std::string text = "release";
    for (const uint32_t slot : slots_) {
      text += " $" + std::to_string(slot);
    }
    return text;
  }

 private:
  std::vector<uint32_t> slots_;
};

}  // namespace

StepPtr make_release_step(std::vector<uint32_t> slots) { return std::make_unique<ReleaseStep>(std::move(slots)); }

}  // namespace sconce
