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

Trial::Way Trial::next() const {
  if (is_in_doubt_) {
    return op_runs_ < kernel_runs_ ? Way::kOperator : Way::kKernel;
  }
  return op_runs_ < kRunsOfOperator ? Way::kOperator : Way::kKernel;
}

void Trial::restart(int threads) {
  threads_ = threads;
  kernel_runs_ = 0;
  op_runs_ = 0;
  is_in_doubt_ = false;
  result_ = TimedChoices::of_process().find(with_threads(key_, threads));
  is_over_ = result_.has_value() || ++restarts_ > kMaxRestarts;
}

void Trial::note(Way way, double seconds) {
  // Calls get fewer threads while plans compile and while others call.
  if (const int threads = at::get_num_threads(); threads != threads_) {
    restart(threads);
    return;
  }
  int& runs = way == Way::kKernel ? kernel_runs_ : op_runs_;
  double& least = way == Way::kKernel ? least_.kernel : least_.op;
  least = runs <= 1 ? seconds : std::min(least, seconds);
  ++runs;
  if (op_runs_ < kRunsOfOperator || kernel_runs_ < kRunsOfKernel) {
    return;
  }
  is_over_ = !is_slower(least_) || (op_runs_ >= kRunsInDoubt && kernel_runs_ >= kRunsInDoubt);
  is_in_doubt_ = !is_over_;
  if (is_over_) {
    result_ = least_;
    TimedChoices::of_process().note(with_threads(key_, threads_), least_);
  }
}

}  // namespace sconce
