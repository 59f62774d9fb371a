#include "plan/frame.h"

#include "plan/large_blocks.h"
#include "plan/plan.h"

#include <atomic>
#include <utility>

namespace sconce {
namespace {

std::atomic<size_t> arena_bytes{0};

}  // namespace

Frame::Frame(const Plan& plan)
    : slots(plan.memory().slot_count()),
      states(plan.state_count()),
      plan_(plan),
      constants_(plan.constants().size()),
      registers_(plan.register_count()) {
  std::copy(plan.constants().begin(), plan.constants().end(), registers_.begin());
}

Frame::~Frame() = default;

void FrameMemory::allocate(size_t bytes) {
  clear();
  memory_ = allocate_on(c10::kCPU, bytes);
  bytes_ = bytes;
  arena_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void FrameMemory::clear() {
  memory_.clear();
  arena_bytes.fetch_sub(std::exchange(bytes_, 0), std::memory_order_relaxed);
}

size_t arena_bytes_in_use() { return arena_bytes.load(std::memory_order_relaxed); }

void Frame::update_layout() {
  const ArenaLayout* newest = plan_.memory().layout();
  if (newest == layout_) [[likely]] {
    return;
  }
  // If there is no memory for the arena, this run fails, and the next one begins here again.
  layout_ = nullptr;
  for (TensorSlot& slot : slots) {
    slot.in_arena = false;
  }
  arena_.allocate(newest->bytes);
  layout_ = newest;
  for (uint32_t slot = 0; slot < slots.size(); ++slot) {
    place_in_arena(slot);
  }
}

void Frame::place_in_arena(uint32_t index) {
  TensorSlot& slot = slots[index];
  slot.in_arena = layout_ != nullptr && slot.bytes != 0 && slot.bytes <= layout_->capacities[index] && slot.shell.is_cpu();
  if (slot.in_arena) {
    slot.data = arena_.begin() + layout_->offsets[index];
    point_storage_at(slot.shell, slot.data);
  }
}

void Frame::allocate(uint32_t index) {
  TensorSlot& slot = slots[index];
  slot.block.clear();
  const bool is_large = slot.bytes > kMaxInArena && slot.shell.is_cpu();
  if (is_large) {
    plan_.memory().note_large_block();
    slot.block = allocate_large(slot.bytes);
  } else {
    slot.block = allocate_on(slot.shell.device(), slot.bytes);
  }
  slot.data = slot.block.get();
  point_storage_at(slot.shell, slot.data);
  holds_something_ = true;
  overflowed_ = overflowed_ || (slot.bytes <= kMaxInArena && slot.shell.is_cpu());
}

void Frame::hold(uint32_t slot, c10::IValue owner) {
  slots[slot].held = std::move(owner);
  holds_something_ = true;
}

void Frame::release(std::span<const uint32_t> released) {
  for (const uint32_t slot : released) {
    slots[slot].block.clear();
    slots[slot].held = c10::IValue();
  }
  if (shell_check_ != nullptr) [[unlikely]] {
    shell_check_->check(released);
  }
}

void Frame::begin_shell_check() {
  shell_check_ = std::make_unique<ShellCheck>(plan_, *this);
  holds_something_ = true;
}

void Frame::end_shell_check() {
  drop_values();
  shell_check_->check_all();
}

void Frame::report_overflow() {
  if (!overflowed_) [[likely]] {
    return;
  }
  try {
    std::vector<size_t> bytes;
    for (const TensorSlot& slot : slots) {
      bytes.push_back(slot.bytes != 0 && slot.shell.is_cpu() ? slot.bytes : 0);
    }
    plan_.memory().learn(bytes);
  } catch (const std::bad_alloc&) {
    // The run has its results. The next one has blocks again, and reports again.
  }
}

void Frame::report_refusal(uint32_t state, NotPrepared reason) { plan_.refusals().add(state, reason); }

void Frame::report_refusal_once(uint32_t state, NotPrepared reason) {
  if (plan_.refusals().count(state, reason) == 0) {
    plan_.refusals().add(state, reason);
  }
}

void Frame::report_times(uint32_t state, const TimedChoices::Times& times) { plan_.timed().note(state, times); }

void Frame::drop_values() {
  stack.clear();
  for (size_t i = constants_; i < registers_.size(); ++i) {
    registers_[i] = c10::IValue();
  }
  for (size_t slot = 0; slot < slots.size() && has_blocks(); ++slot) {
    slots[slot].block.clear();
    slots[slot].held = c10::IValue();
  }
}

void Frame::clear() {
  drop_values();
  warned.clear();
  shell_check_.reset();
  overflowed_ = false;
  holds_something_ = false;
}

}  // namespace sconce
