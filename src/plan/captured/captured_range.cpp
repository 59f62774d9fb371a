#include "plan/captured/captured_range.h"

#include "base/exception_message.h"
#include "plan/captured/captured_operands.h"
#include "plan/captured/frame_captures.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace sconce {
namespace {

constexpr size_t kMaxFormsOfFrame = 8;  // of a node in a frame
constexpr uint64_t kMaxCaptures = 32;   // of a node in all frames
// Where each call comes in a new thread, that one uses the handles that others have left.
constexpr size_t kMaxWarmUps = 4;

// About the bytes that a GPU copies while the host launches one kernel.
constexpr size_t kCopiedBytesForALaunch = size_t(4) << 20;

// Unlike ids, numbers of ended threads are not used again.
uint64_t thread_number() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t number = ++last;
  return number;
}

}  // namespace

CapturedRange::~CapturedRange() {
  for (const auto& form : forms_) {
    forget_capture(*form);
  }
}

void CapturedRange::drop_capture(FrameCaptures& frame, Form& form) {
  if (form.capture != nullptr) {
    frame.end_use();
  }
  forget_capture(form);
}

void CapturedRange::forget_capture(Form& form) {
  if (form.capture != nullptr) {
    form.capture.reset();
    --node_.counts->alive;
  }
  form.results = CapturedResults();
  form.numbers.reset();
  form.operands.forget_capture();
}

CapturedRange::Form* CapturedRange::find_form(Operands operands) {
  const auto found = std::ranges::find_if(forms_, [&](const auto& form) { return form->operands.matches(operands); });
  return found == forms_.end() ? nullptr : found->get();
}

// Returns null, with the reason, if no capture can serve the operands.
CapturedRange::Form* CapturedRange::add_form(FrameCaptures& frame, Operands operands, std::string& why_not) {
  const std::vector<bool> is_in_memory =
      has_numbers_in_memory_ ? node_.is_kernel_number : std::vector<bool>(operands.size(), false);
  const uint64_t hash = hash_of(operands, is_in_memory);
  if (!forms_.empty() && !seen_.sees_again(hash)) {
    why_not = "first run of these sizes or numbers";
    return nullptr;
  }
  auto form = std::make_unique<Form>();
  why_not = form->operands.take(operands, node_.device, is_in_memory);
  if (!why_not.empty()) {
    return nullptr;
  }
  if (forms_.size() == kMaxFormsOfFrame) {
    const auto oldest =
        std::ranges::min_element(forms_, [](const auto& a, const auto& b) { return a->last_run < b->last_run; });
    drop_capture(frame, **oldest);
    forms_.erase(oldest);
  }
  forms_.push_back(std::move(form));
  return forms_.back().get();
}

void CapturedRange::run_steps(torch::jit::Stack& stack, const std::string& why) {
  node_.counts->add_uncaptured(why);
  run_plan(*node_.operators, stack, AutogradUse::kNone);
}

// Returns whether the thread may capture the form.
bool CapturedRange::is_warm(const Form& form) {
  return form.phase == Phase::kWarm &&
         (form.warm_in.size() >= kMaxWarmUps || std::ranges::find(form.warm_in, thread_number()) != form.warm_in.end());
}

void CapturedRange::warm_up(FrameCaptures& frame, Form& form, torch::jit::Stack& stack) {
  node_.counts->add_uncaptured("warm-up");
  // The steps may use workspaces that a capture has, too.
  frame.begin_use();
  const torch::jit::Stack operands = stack;
  form.operands.note_addresses(operands);
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
  const CapturedResults results(std::move(stack), {}, from_outside, {});
  stack = results.hand_out({}, frame.runtime());
  frame.order(frame.current_stream(), frame.side_stream());
  form.phase = waits ? Phase::kNew : Phase::kWarm;
  if (!waits) {
    form.warm_in.push_back(thread_number());
  }
}

// Makes memory for the numbers that kernels read there. Returns where each lies, by its register in the plan of the steps.
FlatMap<Register, void*> CapturedRange::place_numbers(Form& form) const {
  FlatMap<Register, void*> places;
  const std::vector<size_t>& numbers = form.operands.numbers();
  form.numbers.place(node_.device, numbers.size(), node_.draws);
  for (size_t i = 0; i < numbers.size(); ++i) {
    places[node_.operators->inputs()[numbers[i]]] = form.numbers.operand(i);
  }
  return places;
}

Expected<void> CapturedRange::capture(FrameCaptures& frame, Form& form, Operands operands) {
  const c10::InferenceMode normal(false);  // calls in either mode replay it
  const at::NoGradGuard no_grad;
  if (pool_ == nullptr) {
    pool_ = frame.runtime().make_capture_pool(node_.device.index());
  }
  torch::jit::Stack stack = form.operands.to_capture(operands, always_copied_);
  const torch::jit::Stack captured = stack;
  FrameLease lease(*node_.operators);
  CaptureRun run{.number_memory = place_numbers(form)};
  CapturedDraws draws = node_.draws ? form.numbers.draws() : CapturedDraws();
  run.draws = node_.draws ? &draws : nullptr;
  const auto forget_run = c10::make_scope_exit([&] { (*lease).capture = nullptr; });
  (*lease).capture = &run;
  frame.order(frame.current_stream(), frame.side_stream());
  auto made = capture_work(frame.runtime(), frame.side_stream(), pool_, [&] { run_plan(lease, stack, AutogradUse::kNone); });
  if (!made) {
    return made.refusal();
  }
  if ((*lease).waits_for_kernels) {
    return Refusal::because("a kernel was still being compiled");
  }
  if ((*lease).ran_nodes_of_group && !run.number_memory.empty()) {
    // An operator has read the number, so that it is part of the capture.
    has_numbers_in_memory_ = false;
    form.operands.keep_numbers(operands);
    return capture(frame, form, operands);
  }
  form.operands.note_writes(node_.may_be_written);
  form.results = CapturedResults(std::move(stack), captured, node_.operators->constant_tensors(), node_.stays);
  const size_t copied = form.results.copied_bytes() + form.operands.copied_bytes();
  const size_t launches = (*made)->nodes();
  if (copied > launches * kCopiedBytesForALaunch) {
    return Refusal::because(
        "each replay would copy " + std::to_string(copied >> 20) +
        " MiB of operands and results, which takes longer than the launches that it saves: " + std::to_string(launches));
  }
  form.numbers.keep(draws);
  form.capture = std::move(*made);
  ++node_.counts->alive;
  ++node_.counts->captures;
  return {};
}

void CapturedRange::try_to_capture(FrameCaptures& frame, Form& form, Operands operands) {
  try {
    const Expected<void> captured = capture(frame, form, operands);
    form.why_refused = captured ? std::string() : captured.refusal().reason;
  } catch (const c10::Error& failure) {
    form.why_refused = message_of(failure);
  }
  if (form.why_refused.empty()) {
    form.phase = Phase::kCaptured;
    form.patience.win_all();
    return;
  }
  // Another thread's work may have spoiled the capture.
  form.patience.lose();
  form.phase = form.patience.is_exhausted() ? Phase::kRefused : Phase::kNew;
  form.warm_in.clear();
  drop_capture(frame, form);
}

// Refuses if the device has not got the work.
Expected<void> CapturedRange::start_replay(FrameCaptures& frame, Form& form, Operands operands) {
  if (form.operands.share_written_memory(operands)) {
    return Refusal::because("an operand that is written shares memory with another one");
  }
  try {
    const at::NoGradGuard no_grad;
    frame.begin_use();
    form.operands.copy(operands, frame.runtime());
    form.numbers.replay(*form.capture, frame.runtime(), frame.current_stream(), form.operands.bits_of_numbers(operands));
  } catch (const c10::Error& failure) {
    drop_capture(frame, form);
    form.phase = Phase::kRefused;
    form.why_refused = message_of(failure);
    return Refusal::because(form.why_refused);
  }
  return {};
}

void CapturedRange::finish_replay(FrameCaptures& frame, Form& form, torch::jit::Stack& stack) {
  {
    const at::NoGradGuard no_grad;
    form.operands.copy_back(stack);
  }
  stack = form.results.hand_out(stack, frame.runtime());
  node_.counts->replays.fetch_add(1, std::memory_order_relaxed);
}

void CapturedRange::run(FrameCaptures& frame, torch::jit::Stack& stack) {
  std::string why;
  if (frame.runtime().is_capturing(frame.current_stream())) {
    run_steps(stack, "the current stream is being captured by the caller");
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
  if (form->phase == Phase::kCaptured && form->operands.have_moved(stack, always_copied_)) {
    drop_capture(frame, *form);
    form->phase = Phase::kWarm;
  }
  if (is_warm(*form)) {
    if (node_.counts->alive.load() >= kMaxCaptures) {
      run_steps(stack, "there are " + std::to_string(kMaxCaptures) + " captures already");
      return;
    }
    try_to_capture(frame, *form, stack);
  }
  if (form->phase == Phase::kNew || form->phase == Phase::kWarm) {
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
