// Trial: the runs of a step that time its kernel and LibTorch's operator.
#pragma once

#include "base/timed_choices.h"
#include "plan/prepared/kernel.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// The operator serves the first runs, which it does in any case until weights are packed. Then the kernel runs, each time
// without the group that it could run with. If it seems slower, both run again, one after the other: an operator that runs
// in turns with the kernel may find memory that it does not find once it runs alone.
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
  // A way runs some times in a row. The first of them is not counted: it makes what later runs use.
  struct Block {
    Way way;
    size_t runs;
  };
  // Weights are packed in the third run at the earliest. The last two blocks are for doubts.
  static constexpr std::array<Block, 4> kBlocks = {
      {{Way::kOperator, 2}, {Way::kKernel, 4}, {Way::kOperator, 6}, {Way::kKernel, 6}}};
  static constexpr size_t kMaxRestarts = 8;

  void restart(int threads);
  void end_block();

  const std::string key_;
  int threads_;
  size_t restarts_ = 0;
  size_t block_ = 0;
  std::vector<double> seconds_;  // of the runs of the block
  TimedChoices::Times times_;
  std::optional<TimedChoices::Times> result_;
  bool is_over_ = false;
};

}  // namespace sconce
