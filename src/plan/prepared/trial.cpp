#include "plan/prepared/trial.h"

#include "ops/op.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <sstream>

namespace sconce {
namespace {

// Returns what decides the times on a processor beside the threads: the operator, and its operands but for their elements.
std::string key_of(const KernelArguments& arguments) {
  std::ostringstream key;
  key << arguments.op().kind.toQualString();
  for (size_t i = 0; i < arguments.size(); ++i) {
    key << "\n";
    if (arguments.is_tensor(i)) {
      const at::Tensor& tensor = arguments.tensor(i);
      key << tensor.scalar_type() << " " << tensor.sizes() << " " << tensor.strides();
    } else {
      key << arguments.value(i);
    }
  }
  return key.str();
}

std::string with_threads(const std::string& key, int threads) { return key + "\n" + std::to_string(threads) + " threads\n"; }

// Operators of less time are not worth a choice, and are timed badly.
constexpr double kLeastSeconds = 20e-6;

}  // namespace

Trial::Trial(const KernelArguments& arguments) : key_(key_of(arguments)), threads_(at::get_num_threads()) {}

std::optional<TimedChoices::Times> Trial::times_of(const KernelArguments& arguments) {
  return TimedChoices::of_process().find(with_threads(key_of(arguments), at::get_num_threads()));
}

bool Trial::is_slower(const TimedChoices::Times& times) { return times.op >= kLeastSeconds && times.is_kernel_slower(); }

Trial::Way Trial::next() const { return kBlocks[block_].way; }

void Trial::restart(int threads) {
  threads_ = threads;
  block_ = 0;
  seconds_.clear();
  result_ = TimedChoices::of_process().find(with_threads(key_, threads));
  is_over_ = result_.has_value() || ++restarts_ > kMaxRestarts;
}

void Trial::note(Way way, double seconds) {
  // Calls get fewer threads while plans compile and while others call.
  if (const int threads = at::get_num_threads(); threads != threads_) {
    restart(threads);
    return;
  }
  if (way == next()) {  // else weights are not packed yet
    seconds_.push_back(seconds);
    if (seconds_.size() == kBlocks[block_].runs) {
      end_block();
    }
  }
}

void Trial::end_block() {
  const auto middle = seconds_.begin() + static_cast<std::ptrdiff_t>(1 + (seconds_.size() - 2) / 2);
  std::nth_element(seconds_.begin() + 1, middle, seconds_.end());
  (next() == Way::kKernel ? times_.kernel : times_.op) = *middle;
  seconds_.clear();
  ++block_;
  is_over_ = block_ == kBlocks.size() || (block_ == 2 && !is_slower(times_));
  if (is_over_) {
    result_ = times_;
    TimedChoices::of_process().note(with_threads(key_, threads_), times_);
  }
}

}  // namespace sconce
