// RecordedRange: the recordings of one recorded node in a frame.
//
//   new ──► warm ──► recorded ──► replayed again and again
//    └────────┴──────────┴──► refused, with the reason: the plan's steps run one by one
//
// Each form of operands (sizes, strides, dtypes, values of numbers) goes this way by itself. Numbers that kernels alone use
// are no part of it: the recording reads them in the device's memory. In its first run the steps run on a side stream, where
// libraries make their handles and workspaces, and once kernels are compiled the form is warm. The next run records the
// steps, which computes nothing, and replays the recording for the result; later runs replay it. After the first form, only
// forms that come again go this way.
//
// Handles of cuBLAS and cuDNN belong to threads, and are not made during a recording. So a thread records forms that it has
// warmed up itself. Where a recording fails, the form is warmed up again, a few times.
#pragma once

#include "base/patience.h"
#include "plan/device/device.h"
#include "plan/plan.h"
#include "plan/recorded/form_operands.h"
#include "plan/recorded/recorded_numbers.h"
#include "plan/recorded/recorded_results.h"

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sconce {

// Shared by all frames of a plan.
class RecordingCounts {
 public:
  std::atomic<uint64_t> recordings{0};  // that were made
  std::atomic<uint64_t> replays{0};     // the first one of each recording included
  std::atomic<uint64_t> alive{0};       // recordings that frames have now

  // Counts a run without a recording.
  void add_unrecorded(const std::string& reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++unrecorded_[reason];
  }
  // Returns the numbers of runs without a recording, by reason.
  std::map<std::string, uint64_t> unrecorded() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return unrecorded_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> unrecorded_;
};

class FrameRecordings;

// The part that all frames share.
struct RecordedNode {
  std::unique_ptr<const Plan> operators;
  c10::Device device;
  std::vector<bool> may_be_written;    // by operand
  std::vector<bool> is_kernel_number;  // by operand: a number that only kernels read
  std::vector<bool> stays;             // by result: no run or caller holds it when the node runs again
  bool draws = false;                  // random numbers
  bool may_return_views = false;
  std::unique_ptr<RecordingCounts> counts = std::make_unique<RecordingCounts>();
};

class RecordedRange {
 public:
  explicit RecordedRange(const RecordedNode& node) : node_(node), always_copied_(node.may_be_written.size()) {}
  ~RecordedRange();

  // Replaces the operands on the stack by the results. No operand requires a gradient.
  void run(FrameRecordings& frame, torch::jit::Stack& stack);

 private:
  enum class Phase : uint8_t { kNew, kWarm, kRecorded, kRefused };
  // A form of operands, and its recording.
  struct Form {
    Phase phase = Phase::kNew;
    std::string why_refused;
    std::vector<uint64_t> warm_in;     // threads, by their numbers
    Patience patience{{.losses = 3}};  // with recordings that fail
    uint64_t last_run = 0;
    FormOperands operands;
    RecordedNumbers numbers;
    RecordedResults results;
    std::unique_ptr<Recording> recording;
  };
  using Operands = FormOperands::Operands;

  Form* find_form(Operands operands);
  Form* add_form(FrameRecordings& frame, Operands operands, std::string& why_not);
  static bool is_warm(const Form& form);
  void warm_up(FrameRecordings& frame, Form& form, torch::jit::Stack& stack);
  FlatMap<Register, void*> place_numbers(Form& form) const;
  Expected<void> record(FrameRecordings& frame, Form& form, Operands operands);
  void try_to_record(FrameRecordings& frame, Form& form, Operands operands);
  void drop_recording(FrameRecordings& frame, Form& form);
  void forget_recording(Form& form);
  Expected<void> start_replay(FrameRecordings& frame, Form& form, Operands operands);
  void finish_replay(FrameRecordings& frame, Form& form, torch::jit::Stack& stack);
  void run_steps(torch::jit::Stack& stack, const std::string& why);

  const RecordedNode& node_;
  // Of all its recordings. Another range has another pool: its results are used while this one runs.
  std::shared_ptr<RecordingPool> pool_;
  std::vector<std::unique_ptr<Form>> forms_;
  std::vector<bool> always_copied_;  // by operand: its address has changed
  // Numbers that kernels alone use are no part of a form, as long as all these kernels run.
  bool has_numbers_in_memory_ = true;
  SecondSight seen_{8};  // operands that came once
  uint64_t runs_ = 0;
};

}  // namespace sconce
