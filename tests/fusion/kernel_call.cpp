#include "tests/fusion/kernel_call.h"

#include "tests/support/graphs.h"

#include "fusion/group/form_groups.h"
#include "fusion/program/kernel_width.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <cmath>

namespace sconce::testing {
namespace {

class CountedKernel final : public PreparedKernel {
 public:
  CountedKernel(KernelPtr inner, CountedKernels::Counts& counts) : inner_(std::move(inner)), counts_(counts) {}
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const bool is_prepared = inner_->prepare(arguments, results);
    ++(is_prepared ? counts_.prepared : counts_.refused);
    return is_prepared;
  }
  bool prepare_again(const KernelArguments& arguments, KernelResults results) override {
    const bool is_prepared = inner_->prepare_again(arguments, results);
    counts_.prepared_again += is_prepared ? 1 : 0;
    return is_prepared;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    ++counts_.runs;
    inner_->run(arguments, results);
  }
  bool can_run(const KernelArguments& arguments) const override { return inner_->can_run(arguments); }
  bool reads_tensors() const override { return inner_->reads_tensors(); }
  bool is_flat() const override { return inner_->is_flat(); }
  void set_elements(int64_t elements) override { inner_->set_elements(elements); }

 private:
  const KernelPtr inner_;
  CountedKernels::Counts& counts_;
};

std::string constant_text(const c10::IValue& value, const std::string& name) {
  char number[64];
  if (value.isDouble()) {
    std::snprintf(number, sizeof number, "%.17g", value.toDouble());
    const std::string digits = number;
    const bool looks_whole = digits.find_first_of(".ein") == std::string::npos;
    return name + " : float = prim::Constant[value=" + digits + (looks_whole ? "." : "") + "]()";
  }
  return value.isInt()      ? name + " : int = prim::Constant[value=" + std::to_string(value.toInt()) + "]()"
         : value.isBool()   ? name + " : bool = prim::Constant[value=" + (value.toBool() ? "1" : "0") + "]()"
         : value.isString() ? name + " : str = prim::Constant[value=\"" + value.toStringRef() + "\"]()"
                            : name + " : NoneType = prim::Constant()";
}

Outcome outcome_of(const std::function<at::Tensor()>& action) {
  try {
    return {action(), ""};
  } catch (const std::exception& error) {
    return {std::nullopt, error.what()};
  }
}

}  // namespace

KernelPtr CountedKernels::make_kernel(const NodeGroup& group) const {
  return std::make_unique<CountedKernel>(inner_->make_kernel(group), counts_);
}

std::unique_ptr<Plan> plan_with_kernels(const std::string& text, const GroupCompiler& kernels) {
  const std::shared_ptr<Graph> graph = graph_of(text);
  form_groups(*graph);
  auto plan = lower(graph, nullptr, nullptr, LoweringOptions{.is_prepared = true, .groups = &kernels});
  EXPECT_TRUE(plan) << text;
  return std::move(*plan);
}

std::vector<size_t> kernel_widths() {
  return kernel_lanes() == kAvx512Lanes ? std::vector<size_t>{kAvx512Lanes, kAvx2Lanes}
         : kernel_lanes() != 0          ? std::vector<size_t>{kernel_lanes()}
                                        : std::vector<size_t>{};
}

std::string OperatorCall::text() const {
  std::string inputs;
  std::string body;
  std::string passed;
  for (size_t i = 0; i < constants.size(); ++i) {
    const std::string name = "%a" + std::to_string(i);
    passed += (passed.empty() ? "" : ", ") + name;
    if (constants[i]) {
      body += "  " + constant_text(*constants[i], name) + "\n";
    } else {
      inputs += (inputs.empty() ? "" : ", ") + name + " : " + types[i];
    }
  }
  return "graph(" + inputs + "):\n" + body + "  %r : Tensor = " + op.schema().name() + "(" + passed + ")\n  return (%r)\n";
}

KernelCall::KernelCall(const OperatorCall& call, size_t lanes) : kernels_(lanes) {
  plan_ = plan_with_kernels(call.text(), kernels_);
}

Outcome KernelCall::run(const std::vector<c10::IValue>& given) {
  const size_t runs = kernels_.counts().runs;
  const Outcome outcome = outcome_of([&] {
    torch::jit::Stack stack(given.begin(), given.end());
    run_plan(*plan_, stack, AutogradUse::kNone);
    return stack.at(0).toTensor();
  });
  ran_kernel_ = kernels_.counts().runs != runs;
  return outcome;
}

std::pair<std::vector<at::Tensor>, std::string> results_of(const Plan& plan, const std::vector<c10::IValue>& operands) {
  try {
    torch::jit::Stack stack(operands.begin(), operands.end());
    run_plan(plan, stack, AutogradUse::kNone);
    std::vector<at::Tensor> results;
    for (const c10::IValue& value : stack) {
      results.push_back(value.toTensor());
    }
    return {results, ""};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

Outcome run_eager(const OperatorCall& call, const std::vector<c10::IValue>& given) {
  return outcome_of([&] {
    torch::jit::Stack stack;
    size_t next = 0;
    for (const auto& constant : call.constants) {
      stack.push_back(constant ? *constant : given.at(next++));
    }
    call.op.callBoxed(stack);
    return stack.at(0).toTensor();
  });
}

}  // namespace sconce::testing
