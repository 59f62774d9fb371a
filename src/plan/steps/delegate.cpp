#include "ir/delegate.h"
#include "base/autocast.h"
#include "base/exception_message.h"
#include "base/log.h"
#include "plan/run_plan.h"
#include "plan/steps/call_step.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <optional>
#include <string>
#include <variant>

namespace sconce {
namespace {

class DelegateStep final : public CallStep {
 public:
  DelegateStep(const Node& node, Operands operands, Registers results, std::unique_ptr<const Plan> operators)
      : CallStep(node, std::move(operands), std::move(results), /*may_skip_autograd=*/true),
        backend_(node.attribute_as<std::string>(attr::kBackend)),
        kernel_(kernel_of(node)),
        operators_(std::move(operators)) {}

  std::string describe() const override {
    const char* state = kernel_ == nullptr ? ", whose kernel is not here: its operators run]"
                        : is_dropped()     ? ", which has failed: its operators run]"
                                           : "]";
    return CallStep::describe() + " [" + backend_ + state;
  }

  void run(Frame& frame) const override {
    push_operands(frame);
    std::optional<std::string> failure;
    if (kernel_ == nullptr || is_dropped() || needs_operators(frame.stack) || !run_kernel(frame.stack, failure)) {
      frame.autograd->skip(false);
      run_plan(*operators_, frame.stack, AutogradUse::kAll);
    }
    if (failure) {
      drop(*failure);  // the operands were valid, because the operators accepted them
    }
    pop_results(frame);
  }

 private:
  bool is_dropped() const { return dropped_.load(std::memory_order_relaxed); }

  // Null in a parsed graph.
  static c10::intrusive_ptr<KernelHolder> kernel_of(const Node& node) {
    const AttributeValue* kernel = node.attribute(attr::kKernel);
    return kernel == nullptr ? nullptr
                             : c10::static_intrusive_pointer_cast<KernelHolder>(std::get<c10::IValue>(*kernel).toCapsule());
  }

  // Returns whether the operators must run: an operand needs a gradient (in either mode), or the caller's autocast is on.
  static bool needs_operators(const torch::jit::Stack& operands) {
    bool needed = autocast_is_on();
    for (const c10::IValue& operand : operands) {
      if (needed) {
        break;
      }
      operand.visit([&](const c10::IValue& each) {
        needed = needed || (each.isTensor() && may_be_recorded(each));
        return needed;
      });
    }
    return needed;
  }

  // Replaces the operands by the results, or leaves them.
  bool run_kernel(torch::jit::Stack& stack, std::optional<std::string>& failure) const {
    try {
      std::vector<c10::IValue> results = kernel_->kernel(stack);
      const bool declined = results.empty();
      if (!declined && results.size() != result_count()) {
        failure = "it gives " + std::to_string(results.size()) + " results instead of " + std::to_string(result_count());
      }
      for (const c10::IValue& result : results) {
        if (!result.isTensor() || !result.toTensor().defined()) {
          failure =
              "it gives " + (result.isTensor() ? "an undefined tensor" : "a " + result.tagKind()) + " where a tensor is due";
        }
      }
      if (!declined && !failure) {
        stack = std::move(results);
        return true;
      }
    } catch (...) {
      failure = message_of(std::current_exception());
    }
    return false;
  }

  void drop(const std::string& why) const {
    if (!dropped_.exchange(true, std::memory_order_relaxed)) {
      log(LogLevel::kWarning,
          "the kernel of " + backend_ + " failed (" + why + "); from now on its operators run themselves");
    }
  }

  std::string backend_;
  c10::intrusive_ptr<KernelHolder> kernel_;
  const std::unique_ptr<const Plan> operators_;
  mutable std::atomic<bool> dropped_{false};
};

}  // namespace

StepPtr make_delegate_step(const Node& node, Operands operands, Registers results, std::unique_ptr<const Plan> operators) {
  return std::make_unique<DelegateStep>(node, std::move(operands), std::move(results), std::move(operators));
}

}  // namespace sconce
