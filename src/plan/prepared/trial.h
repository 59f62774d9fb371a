// Trial: the runs of a step that time its kernel and LibTorch's operator.
#pragma once

#include "base/timed_choices.h"
#include "plan/prepared/kernel.h"

#include <cstdint>
#include <optional>
#include <string>

namespace sconce {

// The operator serves the first runs, which it does in any case until weights are packed. Then the kernel runs, each time
// without the group that it could run with. If it seems slower, both run again.
class Trial {
 public:
  enum class Way { kKernel, kOperator };

  // `arguments`: those that the kernel is prepared for.
  explicit Trial(const KernelArguments& arguments);
  // Returns the times, if the choice between both has been made for such arguments.
  static std::optional<TimedChoices::Times> times_of(const KernelArguments& arguments);
  // Returns whether LibTorch's operator is to serve.
  static bool is_slower(const TimedChoices::Times& times);

  // Returns which one to run. Where the kernel cannot, the operator may run instead.
  Way next() const;
  void note(Way way, double seconds);
  bool is_over() const { return is_over_; }
  // Returns the times of a trial that is over. Returns nothing if the number of threads has changed too often: no choice is
  // made then, and the kernel serves.
  std::optional<TimedChoices::Times> result() const { return result_; }

 private:
  // The first run of each is not counted: it makes what later runs use. Weights are packed in the third run at the earliest.
  static constexpr int kRunsOfOperator = 2;
  static constexpr int kRunsOfKernel = 4;
  static constexpr int kRunsInDoubt = 10;
  static constexpr int kMaxRestarts = 8;

  void restart(int threads);

  const std::string key_;
  int threads_;
  int restarts_ = 0;
  TimedChoices::Times least_;
  std::optional<TimedChoices::Times> result_;
  int kernel_runs_ = 0;
  int op_runs_ = 0;
  bool is_in_doubt_ = false;
  bool is_over_ = false;
};

}  // namespace sconce
