// KernelRunner: the operands of a run, and those that a kernel was prepared for.
#include "plan/prepared/form_hash.h"
#include "plan/prepared/kernel_runner.h"
#include "plan/prepared/same_value.h"

#include <algorithm>

namespace sconce {

using Source = PreparedOperand::Source;

namespace {

// Returns whether the value is a number that a kernel may read in each run.
bool is_number(const c10::IValue& value) { return value.isInt() || value.isDouble() || value.isBool(); }

}  // namespace

const c10::IValue& KernelRunner::boxed(Frame& frame, const PreparedOperand& operand) const {
  if (operand.attribute == PreparedOperand::kNone) {
    return frame[operand.box];
  }
  // Read in each run (rule R12): between two runs, the attribute may get another tensor.
  const AttributePath& path = parts_.attributes[operand.attribute];
  const c10::IValue* value = &frame[path.object];
  for (const uint32_t slot : path.slots) {
    value = &value->toObjectRef().slots()[slot];
  }
  return *value;
}

bool KernelRunner::asks_operators(Frame& frame) const {
  // A plan whose runs ask has no slots (Plan::checks_each_step). Observers are looked for again, as the run may have
  // switched a profiler or autocast on.
  const bool asks = operators_are_observed() || std::ranges::any_of(parts_.operands, [&](const PreparedOperand& operand) {
                      return operand.source == Source::kBox && may_be_recorded(boxed(frame, operand));
                    });
  if (asks) {
    frame.report_refusal_once(parts_.state, NotPrepared::kRequiresGrad);
  }
  return asks;
}

// Takes the operands of this run. Returns whether the kernel was prepared for such operands. If it was not, the form may
// have some addresses of this run. They are not used: a kernel runs only after a full match, which sets all addresses.
bool KernelRunner::match_operands(Frame& frame, PreparedForm& form) const {
  size_t tensor = 0;
  const c10::TensorImpl* first = nullptr;  // of a flat form
  for (size_t i = 0; i < parts_.operands.size(); ++i) {
    const PreparedOperand& operand = parts_.operands[i];
    const OperandGuard& known = form.operands[i];
    switch (operand.source) {
      case Source::kSlot: {
        const TensorSlot& slot = frame.slots[operand.slot];
        if (slot.stamp != known.stamp) {
          return false;
        }
        form.arguments.data_[tensor++] = slot.data;
        break;
      }
      case Source::kBox: {
        const c10::IValue& value = boxed(frame, operand);
        if (known.is_none) {
          if (!value.isNone()) {
            return false;
          }
          break;
        }
        if (!(form.is_flat ? known.matches_flat(value, first) : known.matches(value))) {
          return false;
        }
        first = first == nullptr ? value.unsafeToTensorImpl() : first;
        // A kernel that has a packed copy compares it with the weight of this run (rule R21).
        form.arguments.weights_[tensor] = {operand.is_weight ? value.unsafeToTensorImpl() : nullptr, operand.is_constant};
        void* const data = const_cast<void*>(value.unsafeToTensorImpl()->data());  // operands are only read
        form.arguments.data_[tensor++] = data;
        if (form.reads_tensors) {
          point_storage_at(known.shell, data);
        }
        break;
      }
      case Source::kValue:
        if (!is_same_value(boxed(frame, operand), form.arguments.value_of(operand.position))) {
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
      case Source::kRunTime: {
        const c10::IValue& now = boxed(frame, operand);
        c10::IValue& then = form.arguments.value_of(operand.position);
        // The kernel reads the value in each run. It is prepared for the type.
        if (!is_number(now) || now.isInt() != then.isInt() || now.isDouble() != then.isDouble()) {
          return false;
        }
        then = now;
        break;
      }
      case Source::kConstant: break;
    }
  }
  if (form.is_flat) {
    form.kernel->set_elements(first->numel());
  }
  return true;
}

// Returns a hash without values: equal hashes of different forms cost time only.
uint64_t KernelRunner::hash_of_operands(Frame& frame) const {
  FormHash hash;
  for (const PreparedOperand& operand : parts_.operands) {
    if (operand.source == Source::kSlot) {
      hash.add(frame.slots[operand.slot].shell);
    } else if (operand.source == Source::kBox && boxed(frame, operand).isTensor()) {
      hash.add(boxed(frame, operand).toTensor());
    } else if (operand.source == Source::kElement) {
      const c10::IValue& value = boxed(frame, operand);
      hash.add(value.isInt() ? static_cast<uint64_t>(value.toInt()) : 0);
    }
  }
  return hash.value();
}

// Records an operand as what the kernel is prepared for. Returns false if no kernel can take such an operand.
bool KernelRunner::record_operand(Frame& frame, StepState& state, size_t i) const {
  const PreparedOperand& operand = parts_.operands[i];
  OperandGuard& known = state.operands[i];
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
    // A copy, because the program may change a list in place before the next run compares it.
    arguments.values_.push_back(operand.source == Source::kValue ? snapshot_of(value) : value);
    // Later runs could not compare a value that does not equal its own copy.
    return operand.source == Source::kConstant || (operand.source == Source::kRunTime && is_number(value)) ||
           is_same_value(value, arguments.values_.back());
  }
  known.is_none = operand.source == Source::kBox && boxed(frame, operand).isNone();
  if (known.is_none) {
    argument = {KernelArguments::Argument::Kind::kValue, static_cast<uint32_t>(arguments.values_.size())};
    arguments.values_.emplace_back();
    return true;
  }
  if (continues_list) {
    ++argument.count;
  } else {
    argument = {operand.in_list ? KernelArguments::Argument::Kind::kTensorList : KernelArguments::Argument::Kind::kTensor,
                static_cast<uint32_t>(arguments.tensors_.size())};
  }
  arguments.data_.push_back(nullptr);
  arguments.weights_.emplace_back();
  if (operand.source == Source::kSlot) {
    const TensorSlot& slot = frame.slots[operand.slot];
    known.stamp = slot.stamp;
    arguments.tensors_.push_back(&slot.shell);
    // Stamp 0: an ordinary step has made a tensor that no shell can stand for.
    return slot.stamp != 0 && slot.shell.device() == parts_.device;
  }
  const c10::IValue& box = boxed(frame, operand);
  const bool can = known.prepare(box, parts_.device);
  // Also without a shell: `has_many_elements` looks at all tensors.
  arguments.tensors_.push_back(&known.shell);
  if (can) {
    arguments.weights_.back() = {operand.is_weight ? box.unsafeToTensorImpl() : nullptr, operand.is_constant};
    point_storage_at(known.shell, const_cast<void*>(box.unsafeToTensorImpl()->data()));
  }
  return can;
}

}  // namespace sconce
