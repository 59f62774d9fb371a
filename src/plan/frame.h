// Frame: all state of one run of a plan.
#pragma once

#include "base/autocast.h"
#include "base/timed_choices.h"
#include "plan/shell_check.h"
#include "plan/tensor_slot.h"

#include <sconce/explanation.h>

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace sconce {

// Which steps of a run autograd may record.
enum class AutogradUse : uint8_t {
  kNone,     // none: nothing that the run reads requires a gradient, or grad mode is off
  kPerStep,  // those whose operands require a gradient when they run
  kAll,      // any, as far as the run knows
};

class AutogradSwitch;
class FrameCaptures;
class Plan;
struct ArenaLayout;
struct CaptureRun;
struct StepState;

// The index of a value in a frame.
using Register = uint32_t;

// Leaves a `with` block.
class ContextManager {
 public:
  virtual ~ContextManager() = default;
  // Calls `__exit__` and returns its result.
  virtual c10::IValue leave(c10::IValue object) const = 0;
};
struct EnteredContext {
  c10::IValue object;
  const ContextManager* manager;
};

// The memory of a frame's slots.
class FrameMemory {
 public:
  FrameMemory() = default;
  ~FrameMemory() { clear(); }
  FrameMemory(const FrameMemory&) = delete;
  FrameMemory& operator=(const FrameMemory&) = delete;
  // Frees what there is first.
  void allocate(size_t bytes);
  char* begin() const { return static_cast<char*>(memory_.get()); }

 private:
  void clear();
  c10::DataPtr memory_;
  size_t bytes_ = 0;
};
// Returns the bytes of all arenas.
size_t arena_bytes_in_use();

// A frame serves one run at a time, and many runs one after the other. Between runs it holds the plan's constants, small
// results (ReusedResults) and no argument.
class Frame {
 public:
  explicit Frame(const Plan& plan);
  ~Frame();

  // Keeps the plan alive during the run; null for a plan that its owner keeps.
  std::shared_ptr<const Plan> kept_plan;

  c10::IValue& operator[](Register index) { return registers_[index]; }
  std::span<const c10::IValue> registers() const { return registers_; }

  // Operands and results of the step that runs; empty between steps.
  torch::jit::Stack stack;
  // The next step; a step that jumps sets it.
  size_t next_step = 0;
  AutogradUse autograd_use = AutogradUse::kAll;

  // `with` blocks that were entered and not yet left, the innermost last.
  std::vector<EnteredContext> entered;
  std::vector<int64_t> warned;  // places that have warned in this run

  // ---- prepared steps (plan/prepared/)
  // Whether prepared steps use their kernels in this run, as far as their operands allow it. They do not if every step runs
  // with autograd, or if a profiler or autocast has to see single operators.
  bool runs_prepared = false;
  AutogradSwitch* autograd = nullptr;  // of the run
  std::vector<TensorSlot> slots;
  std::vector<std::shared_ptr<StepState>> states;  // null until the step first runs
  uint64_t next_stamp = 1;
  uint64_t run_number = 1;  // of this run; 0 stands for none
  // In this run, nodes of a group ran one by one; because their kernel is still being compiled.
  bool ran_nodes_of_group = false;
  bool waits_for_kernels = false;

  // ---- captures (plan/captured/)
  const CaptureRun* capture = nullptr;      // while the run is captured
  std::shared_ptr<FrameCaptures> captures;  // null until a captured node first runs

  // Takes the newest layout of the arena. Called between runs.
  void update_layout();
  // Puts the slot into the arena, if the layout has room for it.
  void place_in_arena(uint32_t slot);
  // Gives the slot a block of its own.
  void allocate(uint32_t slot);
  // Keeps what owns the slot's memory until the slot is released.
  void hold(uint32_t slot, c10::IValue owner);
  // Frees what the slots have outside the arena. Called if `has_blocks`.
  void release(std::span<const uint32_t> slots);
  bool has_blocks() const { return holds_something_; }
  // Watches the shells in this run, if they are checked.
  void begin_shell_check();
  ShellCheck* shell_check() const { return shell_check_.get(); }
  // Tells the plan which slots found no room in the arena.
  void report_overflow();
  // Tells the plan why a prepared step ran by its ordinary steps: `state` is the index of the step's state.
  void report_refusal(uint32_t state, NotPrepared reason);
  void report_refusal_once(uint32_t state, NotPrepared reason);
  // Tells the plan what the step's kernel and LibTorch's operator were timed at.
  void report_times(uint32_t state, const TimedChoices::Times& times);

  // Drops every value but the constants.
  void clear();
  // The run has handed out its results: checks all shells, if they are watched.
  void end_shell_check();

 private:
  void drop_values();
  const Plan& plan_;
  size_t constants_;
  std::vector<c10::IValue> registers_;
  const ArenaLayout* layout_ = nullptr;
  FrameMemory arena_;
  bool overflowed_ = false;  // the arena had no room for a slot in this run
  // A slot has, or had in this run, a block of its own, or holds something; or shells are watched.
  bool holds_something_ = false;
  std::unique_ptr<ShellCheck> shell_check_;  // of this run
};

// Switches the dispatcher's autograd layers off and on while a plan runs. The destructor restores the initial state. Changes
// only the autograd keys; changes of other keys by steps persist.
class AutogradSwitch {
 public:
  AutogradSwitch();
  ~AutogradSwitch() { skip(false); }
  AutogradSwitch(const AutogradSwitch&) = delete;
  AutogradSwitch& operator=(const AutogradSwitch&) = delete;

  void skip(bool on) {
    if (on != skipping_) {
      apply(on);
    }
  }

 private:
  void apply(bool on);
  c10::DispatchKeySet excluded_before_;
  bool skipping_ = false;
  // A cast of a parameter has no history then, and autocast would keep it for operators that need one.
  std::optional<AutocastWithoutCache> casts_;
};

}  // namespace sconce
