// CapturedRange: the captures of one captured node in a frame.
//
//   new ──► warm ──► captured ──► replayed again and again
//    └────────┴──────────┴──► refused, with the reason: the plan's steps run one by one
//
// Each form of operands (sizes, strides, dtypes, values of numbers) goes this way by itself. Numbers that kernels alone use
// are no part of it: the capture reads them in the device's memory. In its first run the steps run on a side stream, where
// libraries make their handles and workspaces, and once kernels are compiled the form is warm. The next run captures the
// steps, which computes nothing, and replays the capture for the result; later runs replay it. After the first form, only
// forms that come again go this way.
//
// Handles of cuBLAS and cuDNN belong to threads, and are not made during a capture. So a thread captures forms that it has
// warmed up itself. Where a capture fails, the form is warmed up again, a few times.
#pragma once

#include "base/patience.h"
#include "plan/captured/captured_numbers.h"
#include "plan/captured/captured_results.h"
#include "plan/captured/form_operands.h"
#include "plan/device/device.h"
#include "plan/plan.h"

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
class CaptureCounts {
 public:
  std::atomic<uint64_t> captures{0};  // that were made
  std::atomic<uint64_t> replays{0};   // the first one of each capture included
  std::atomic<uint64_t> alive{0};     // captures that frames have now

  // Counts a run without a capture.
  void add_uncaptured(const std::string& reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++uncaptured_[reason];
  }
  // Returns the numbers of runs without a capture, by reason.
  std::map<std::string, uint64_t> uncaptured() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return uncaptured_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> uncaptured_;
};

class FrameCaptures;

// The part that all frames share.
struct CapturedNode {
  std::unique_ptr<const Plan> operators;
  c10::Device device;
  std::vector<bool> may_be_written;    // by operand
  std::vector<bool> is_kernel_number;  // by operand: a number that only kernels read
  std::vector<bool> stays;             // by result: no run or caller holds it when the node runs again
  bool draws = false;                  // random numbers
  bool may_return_views = false;
  std::unique_ptr<CaptureCounts> counts = std::make_unique<CaptureCounts>();
};

class CapturedRange {
 public:
  explicit CapturedRange(const CapturedNode& node) : node_(node), always_copied_(node.may_be_written.size()) {}
  ~CapturedRange();

  // Replaces the operands on the stack by the results. No operand requires a gradient.
  void run(FrameCaptures& frame, torch::jit::Stack& stack);

 private:
  enum class Phase : uint8_t { kNew, kWarm, kCaptured, kRefused };
  // A form of operands, and its capture.
  struct Form {
    Phase phase = Phase::kNew;
    std::string why_refused;
    std::vector<uint64_t> warm_in;     // threads, by their numbers
    Patience patience{{.losses = 3}};  // with captures that fail
    uint64_t last_run = 0;
    FormOperands operands;
    CapturedNumbers numbers;
    CapturedResults results;
    std::unique_ptr<Capture> capture;
  };
  using Operands = FormOperands::Operands;

  Form* find_form(Operands operands);
  Form* add_form(FrameCaptures& frame, Operands operands, std::string& why_not);
  static bool is_warm(const Form& form);
  void warm_up(FrameCaptures& frame, Form& form, torch::jit::Stack& stack);
  FlatMap<Register, void*> place_numbers(Form& form) const;
  Expected<void> capture(FrameCaptures& frame, Form& form, Operands operands);
  void try_to_capture(FrameCaptures& frame, Form& form, Operands operands);
  void drop_capture(FrameCaptures& frame, Form& form);
  void forget_capture(Form& form);
  Expected<void> start_replay(FrameCaptures& frame, Form& form, Operands operands);
  void finish_replay(FrameCaptures& frame, Form& form, torch::jit::Stack& stack);
  void run_steps(torch::jit::Stack& stack, const std::string& why);

  const CapturedNode& node_;
  // Shared by the range's captures. Each range has its own pool, because its results are used while other ranges run.
  std::shared_ptr<CapturePool> pool_;
  std::vector<std::unique_ptr<Form>> forms_;
  std::vector<bool> always_copied_;  // by operand: its address has changed
  // Numbers that kernels alone use are no part of a form, as long as all these kernels run.
  bool has_numbers_in_memory_ = true;
  SecondSight seen_{8};  // operands that came once
  uint64_t runs_ = 0;
};

}  // namespace sconce
