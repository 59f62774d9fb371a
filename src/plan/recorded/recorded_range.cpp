#include "plan/recorded/recorded_range.h"

#include "base/exception_message.h"
#include "plan/prepared/same_value.h"
#include "plan/recorded/frame_recordings.h"
#include "plan/recorded/recorded_operands.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace sconce {
namespace {

constexpr size_t kMaxForms = 8;        // of a node in a frame
constexpr uint64_t kMaxRecordings = 32;  // of a node in all frames

// About the bytes that a GPU copies while the host launches one kernel.
constexpr size_t kCopiedBytesForALaunch = size_t(4) << 20;

void* address_of(const c10::IValue& tensor) { return const_cast<void*>(tensor.unsafeToTensorImpl()->data()); }

}  // namespace

RecordedRange::~RecordedRange() {
  for (const auto& form : forms_) {
    forget_recording(*form);
  }
}

void RecordedRange::drop_recording(FrameRecordings& frame, Form& form) {
  if (form.recording != nullptr) {
    frame.end_use();
  }
  forget_recording(form);
}

void RecordedRange::forget_recording(Form& form) {
  if (form.recording != nullptr) {
    form.recording.reset();
    --node_.counts->alive;
  }
  form.results = RecordedResults();
  form.numbers.reset();
  form.random.reset();
  for (Operand& operand : form.operands) {
    operand.recorded.reset();
  }
}

bool RecordedRange::matches(const Form& form, Operands operands) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& known = form.operands[i];
    const bool is_same = known.tensor.shell.defined() ? known.tensor.matches(operands[i])
                         : known.is_in_memory         ? fits_memory(operands[i])
                                                      : is_same_value(operands[i], known.value);
    if (!is_same) {
      return false;
    }
  }
  return true;
}

RecordedRange::Form* RecordedRange::find_form(Operands operands) {
  const auto found = std::find_if(forms_.begin(), forms_.end(), [&](const auto& form) { return matches(*form, operands); });
  return found == forms_.end() ? nullptr : found->get();
}

// Returns null, with the reason, if no recording can serve the operands.
RecordedRange::Form* RecordedRange::add_form(FrameRecordings& frame, Operands operands, std::string& why_not) {
  const uint64_t hash = hash_of(operands, has_numbers_in_memory_ ? node_.is_kernel_number : std::vector<bool>());
  if (!forms_.empty() && std::find(seen_.begin(), seen_.end(), hash) == seen_.end()) {
    seen_[next_seen_++ % seen_.size()] = hash;
    why_not = "first run of these sizes or numbers";
    return nullptr;
  }
  auto form = std::make_unique<Form>();
  form->operands.resize(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand& known = form->operands[i];
    known.value = operands[i].isTensor() ? c10::IValue() : snapshot_of(operands[i]);
    known.is_in_memory = has_numbers_in_memory_ && node_.is_kernel_number[i] && fits_memory(operands[i]);
    const bool is_known = operands[i].isTensor() ? known.tensor.prepare(operands[i], node_.device)
                                                 : is_same_value(operands[i], known.value);
    if (!is_known) {
      why_not = "operand " + std::to_string(i) + " is neither a dense tensor on " + node_.device.str() +
                " nor a number or a list of numbers";
      return nullptr;
    }
  }
  if (forms_.size() == kMaxForms) {
    const auto oldest = std::min_element(forms_.begin(), forms_.end(),
                                         [](const auto& a, const auto& b) { return a->last_run < b->last_run; });
    drop_recording(frame, **oldest);
    forms_.erase(oldest);
  }
  forms_.push_back(std::move(form));
  return forms_.back().get();
}

void RecordedRange::note_addresses(Form& form, Operands operands) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand& known = form.operands[i];
    known.address = known.tensor.shell.defined() ? address_of(operands[i]) : nullptr;
  }
}

// Returns whether an operand, which the recording reads at its own address, lies elsewhere now.
bool RecordedRange::has_moved(Form& form, Operands operands) {
  bool moved = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& known = form.operands[i];
    if (known.tensor.shell.defined() && !known.is_copied && address_of(operands[i]) != known.address) {
      always_copied_[i] = true;
      moved = true;
    }
  }
  return moved;
}

// Returns whether an operand shares memory with one that is written, and one of the two is copied: a replay would not see
// the writes, or lose them.
bool RecordedRange::share_written_memory(const Form& form, Operands operands) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!form.operands[i].is_written) {
      continue;
    }
    for (size_t k = 0; k < operands.size(); ++k) {
      const bool has_copy = form.operands[i].is_copied || form.operands[k].is_copied;
      if (k != i && has_copy && form.operands[k].tensor.shell.defined() &&
          operands[k].toTensor().is_alias_of(operands[i].toTensor())) {
        return true;
      }
    }
  }
  return false;
}

void RecordedRange::run_steps(torch::jit::Stack& stack, const std::string& why) {
  node_.counts->add_unrecorded(why);
  run_plan(*node_.operators, stack, AutogradUse::kNone);
}

void RecordedRange::warm_up(FrameRecordings& frame, Form& form, torch::jit::Stack& stack) {
  node_.counts->add_unrecorded("warm-up");
  const torch::jit::Stack operands = stack;
  note_addresses(form, operands);
  bool waits = false;
  {
    SideStreamScope side(frame);
    FrameLease lease(*node_.operators);
    run_plan(lease, stack, AutogradUse::kNone);
    waits = (*lease).waits_for_kernels;
    side.end();
  }
  // The allocator gives memory of the side stream to later work of that stream.
  std::vector<at::Tensor> from_outside = node_.operators->constant_tensors();
  for (const c10::IValue& operand : operands) {
    if (operand.isTensor() && operand.toTensor().defined()) {
      from_outside.push_back(operand.toTensor());
    }
  }
  const RecordedResults results(std::move(stack), {}, from_outside, {});
  stack = results.hand_out({}, frame.runtime());
  frame.order(frame.current_stream(), frame.side_stream());
  form.phase = waits ? Phase::kNew : Phase::kWarm;
}

// Makes memory for the numbers that kernels read there. Returns where each lies, by its register in the plan of the steps.
FlatMap<Register, void*> RecordedRange::place_numbers(Form& form) const {
  FlatMap<Register, void*> places;
  const auto count = std::count_if(form.operands.begin(), form.operands.end(), [](const auto& each) { return each.is_in_memory; });
  if (count == 0) {
    return places;
  }
  const c10::InferenceMode normal(false);
  form.numbers = at::empty({count}, at::TensorOptions(at::kLong).device(node_.device));
  int64_t* place = form.numbers.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < form.operands.size(); ++i) {
    if (form.operands[i].is_in_memory) {
      places[node_.operators->inputs()[i]] = place++;
    }
  }
  return places;
}

// Makes the numbers part of this form and of those to come.
void RecordedRange::keep_numbers(Form& form, Operands operands) {
  has_numbers_in_memory_ = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (std::exchange(form.operands[i].is_in_memory, false)) {
      form.operands[i].value = operands[i];
    }
  }
}

// Copies the numbers of this run to the memory where kernels read them.
void RecordedRange::copy_numbers(Form& form, Operands operands) const {
  std::vector<int64_t> bits;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (form.operands[i].is_in_memory) {
      bits.push_back(std::bit_cast<int64_t>(operands[i].toDouble()));
    }
  }
  if (!bits.empty()) {
    // The driver takes so few bytes before the call returns.
    form.numbers.copy_(at::from_blob(bits.data(), {static_cast<int64_t>(bits.size())}, at::kLong), /*non_blocking=*/true);
  }
}

// Returns the bytes that a replay copies.
size_t RecordedRange::copied_bytes(const Form& form) {
  size_t bytes = form.results.copied_bytes();
  for (const Operand& operand : form.operands) {
    if (operand.is_copied) {
      bytes += operand.recorded.nbytes() * (operand.is_written ? 2 : 1);
    }
  }
  return bytes;
}

Expected<void> RecordedRange::record(FrameRecordings& frame, Form& form, Operands operands) {
  if (node_.counts->alive.load() >= kMaxRecordings) {
    return Refusal::because("there are " + std::to_string(kMaxRecordings) + " recordings already");
  }
  const c10::InferenceMode normal(false);  // calls in either mode replay it
  const at::NoGradGuard no_grad;
  if (pool_ == nullptr) {
    pool_ = frame.runtime().make_recording_pool(node_.device.index());
  }
  torch::jit::Stack stack(operands.begin(), operands.end());
  std::vector<uint32_t> versions(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand& known = form.operands[i];
    if (!known.tensor.shell.defined()) {
      continue;
    }
    void* const address = address_of(operands[i]);
    known.is_copied = always_copied_[i] || address != known.address;
    known.address = address;
    known.recorded = tensor_to_record(known.tensor.shell, known.is_copied ? nullptr : address);
    stack[i] = known.recorded;
    versions[i] = known.recorded.unsafeGetTensorImpl()->version_counter().current_version();
  }
  const torch::jit::Stack recorded = stack;
  FrameLease lease(*node_.operators);
  const FlatMap<Register, void*> number_memory = place_numbers(form);
  RecordedDraws draws = node_.draws ? form.random.place(node_.device) : RecordedDraws();
  const auto leave_memory = c10::make_scope_exit([&] {
    (*lease).number_memory = nullptr;
    (*lease).draws = nullptr;
  });
  (*lease).number_memory = number_memory.empty() ? nullptr : &number_memory;
  (*lease).draws = node_.draws ? &draws : nullptr;
  frame.order(frame.current_stream(), frame.side_stream());
  auto recording = sconce::record(frame.runtime(), frame.side_stream(), pool_,
                                  [&] { run_plan(lease, stack, AutogradUse::kNone); });
  if (!recording) {
    return recording.refusal();
  }
  if ((*lease).waits_for_kernels) {
    return Refusal::because("a kernel was still being compiled");
  }
  if ((*lease).ran_nodes_of_group && !number_memory.empty()) {
    // An operator has read the number, so that it is part of the recording.
    keep_numbers(form, operands);
    return record(frame, form, operands);
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand& known = form.operands[i];
    known.is_written = known.recorded.defined() && node_.may_be_written[i] &&
                       known.recorded.unsafeGetTensorImpl()->version_counter().current_version() != versions[i];
  }
  form.results = RecordedResults(std::move(stack), recorded, node_.operators->constant_tensors(), node_.stays);
  const size_t copied = copied_bytes(form);
  const size_t launches = (*recording)->nodes();
  if (copied > launches * kCopiedBytesForALaunch) {
    return Refusal::because("each replay would copy " + std::to_string(copied >> 20) +
                            " MiB of operands and results, which takes longer than the launches that it saves: " +
                            std::to_string(launches));
  }
  form.random.keep(draws);
  form.recording = std::move(*recording);
  ++node_.counts->alive;
  ++node_.counts->recordings;
  return {};
}

void RecordedRange::try_to_record(FrameRecordings& frame, Form& form, Operands operands) {
  try {
    const Expected<void> recorded = record(frame, form, operands);
    form.why_refused = recorded ? std::string() : recorded.refusal().reason;
  } catch (const c10::Error& failure) {
    form.why_refused = message_of(failure);
  }
  form.phase = form.why_refused.empty() ? Phase::kRecorded : Phase::kRefused;
  if (form.phase == Phase::kRefused) {
    drop_recording(frame, form);
  }
}

// Refuses if the device has not got the work.
Expected<void> RecordedRange::start_replay(FrameRecordings& frame, Form& form, Operands operands) {
  if (share_written_memory(form, operands)) {
    return Refusal::because("an operand that is written shares memory with another one");
  }
  try {
    const at::NoGradGuard no_grad;
    frame.begin_use();
    for (size_t i = 0; i < operands.size(); ++i) {
      Operand& known = form.operands[i];
      if (known.is_copied) {
        copy_operand(operands[i].toTensor(), known.recorded, frame.runtime());
      }
    }
    copy_numbers(form, operands);
    form.random.replay(*form.recording, frame.runtime(), frame.current_stream());
  } catch (const c10::Error& failure) {
    drop_recording(frame, form);
    form.phase = Phase::kRefused;
    form.why_refused = message_of(failure);
    return Refusal::because(form.why_refused);
  }
  return {};
}

void RecordedRange::finish_replay(FrameRecordings& frame, Form& form, torch::jit::Stack& stack) {
  for (size_t i = 0; i < stack.size(); ++i) {
    const Operand& known = form.operands[i];
    if (known.is_written && known.is_copied) {
      const at::NoGradGuard no_grad;
      stack[i].toTensor().copy_(known.recorded);
    } else if (known.is_written && !stack[i].toTensor().is_inference()) {
      stack[i].unsafeToTensorImpl()->bump_version();
    }
  }
  stack = form.results.hand_out(stack, frame.runtime());
  node_.counts->replays.fetch_add(1, std::memory_order_relaxed);
}

void RecordedRange::run(FrameRecordings& frame, torch::jit::Stack& stack) {
  std::string why;
  if (frame.runtime().is_recording(frame.current_stream())) {
    run_steps(stack, "the current stream is being recorded by the caller");
    return;
  }
  if (node_.draws && !are_aligned(stack)) {
    run_steps(stack, "an operand is not aligned to 16 bytes, and random numbers depend on that");
    return;
  }
  Form* form = find_form(stack);
  if (form == nullptr) {
    form = add_form(frame, stack, why);
  }
  if (form == nullptr) {
    run_steps(stack, why);
    return;
  }
  form->last_run = ++runs_;
  if (form->phase == Phase::kRecorded && has_moved(*form, stack)) {
    drop_recording(frame, *form);
    form->phase = Phase::kWarm;
  }
  if (form->phase == Phase::kWarm) {
    try_to_record(frame, *form, stack);
  }
  if (form->phase == Phase::kNew) {
    warm_up(frame, *form, stack);
  } else if (form->phase == Phase::kRefused) {
    run_steps(stack, form->why_refused);
  } else if (const Expected<void> started = start_replay(frame, *form, stack); started) {
    finish_replay(frame, *form, stack);
  } else {
    run_steps(stack, started.refusal().reason);
  }
}

}  // namespace sconce
