#include "plan/shell_check.h"

#include "base/assert.h"
#include "base/environment.h"
#include "plan/plan.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <unordered_map>

namespace sconce {
namespace {

std::atomic<bool>& is_checking() {
#ifdef SCONCE_DEBUG
  static std::atomic<bool> on{true};
#else
  static std::atomic<bool> on{environment().check_shells};
#endif
  return on;
}

std::string place_of(const Node* node) {
  const std::string place = node != nullptr && node->location() ? node->location()->file_line_column() : std::string();
  return place.empty() ? "" : " (" + place + ")";
}

std::string describe_operator(const Node* node) {
  return node == nullptr ? "no operator" : node->kind().toQualString() + place_of(node);
}

}  // namespace

void check_shells(bool on) { is_checking().store(on, std::memory_order_relaxed); }
bool shells_are_checked() { return is_checking().load(std::memory_order_relaxed); }

ShellCheck::ShellCheck(const Plan& plan, const Frame& frame)
    : plan_(plan),
      frame_(frame),
      own_(counts()),
      noted_(holders_outside_registers()),
      holders_(own_.size(), plan.steps().size()) {}

ShellCheck::Count ShellCheck::count(size_t slot) const {
  const at::Tensor& shell = frame_.slots[slot].shell;
  return shell.defined() ? Count{shell.unsafeGetTensorImpl(), shell.storage().unsafeGetStorageImpl(), shell.use_count(),
                                 shell.storage().use_count()}
                         : Count();
}

std::vector<ShellCheck::Count> ShellCheck::counts() const {
  std::vector<Count> counts;
  counts.reserve(frame_.slots.size());
  for (size_t slot = 0; slot < frame_.slots.size(); ++slot) {
    counts.push_back(count(slot));
  }
  return counts;
}

void ShellCheck::after_change() {
  for (size_t slot = 0; slot < own_.size(); ++slot) {
    const Count& before = counts_before_[slot];
    const Count now = count(slot);
    Count& own = own_[slot];
    // No register holds a new shell yet. A change may drop what a step took before it, so that holders only count up.
    const auto more = [](size_t then, size_t since) { return since > then ? since - then : 0; };
    own.of_tensor = now.tensor == before.tensor ? own.of_tensor + more(before.of_tensor, now.of_tensor) : now.of_tensor;
    own.of_storage =
        now.storage == before.storage ? own.of_storage + more(before.of_storage, now.of_storage) : now.of_storage;
    own.tensor = now.tensor;
    own.storage = now.storage;
  }
  noted_ = holders_outside_registers();
}

std::vector<size_t> ShellCheck::holders_outside_registers() const {
  std::unordered_map<const void*, size_t> in_registers;  // of tensors and storages
  for (const c10::IValue& value : frame_.registers()) {
    if (value.isTensor() && value.toTensor().defined() && in_registers[value.unsafeToTensorImpl()]++ == 0 &&
        value.toTensor().has_storage()) {
      ++in_registers[value.toTensor().storage().unsafeGetStorageImpl()];
    }
  }
  std::vector<size_t> holders;
  for (const Count& each : counts()) {
    holders.push_back(each.of_tensor + each.of_storage);
    for (const void* held : {static_cast<const void*>(each.tensor), static_cast<const void*>(each.storage)}) {
      const auto found = in_registers.find(held);
      holders.back() -= found != in_registers.end() ? found->second : 0;
    }
  }
  return holders;
}

void ShellCheck::note_step(size_t position) {
  std::vector<size_t> now = holders_outside_registers();
  for (size_t slot = 0; slot < now.size(); ++slot) {
    holders_[slot] = now[slot] > noted_[slot] ? position : holders_[slot];
  }
  noted_ = std::move(now);
}

void ShellCheck::check(std::span<const uint32_t> slots) const {
  for (const uint32_t slot : slots) {
    const Count now = count(slot);
    const Count& own = own_[slot];
    // A view shares its storage with its base and other views of that, whose registers may still be read.
    const bool is_view = plan_.prepared().slots[slot].is_view;
    if (now.of_tensor <= own.of_tensor && (is_view || now.of_storage <= own.of_storage)) {
      continue;
    }
    // The step that ran last, or the one that runs: noted when it has ended.
    const size_t last = std::min(frame_.next_step, plan_.steps().size()) - 1;
    const size_t holder = holders_[slot] < plan_.steps().size() ? holders_[slot] : last;
    const Plan::PlannedStep& step = plan_.steps()[holder];
    internal_error("use counts of shells", __FILE__, __LINE__,
                   "rule R2: planned memory escapes. Slot $" + std::to_string(slot) + ", the result of " +
                       describe_operator(plan_.prepared().slots[slot].op) + ", is free after step " + std::to_string(last) +
                       ", and something outside the frame still holds its tensor. It does since step " +
                       std::to_string(holder) + ", " + describe_operator(step.node) + ": " + step.step->describe());
  }
}

void ShellCheck::check_all() const {
  std::vector<uint32_t> slots(own_.size());
  for (uint32_t slot = 0; slot < slots.size(); ++slot) {
    slots[slot] = slot;
  }
  check(slots);
}

}  // namespace sconce
