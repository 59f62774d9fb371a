// Gradients recorded from LibTorch's autograd, for the operators of its schema list.
#include "autodiff/rules/record_gradient.h"

#include "base/exception_message.h"
#include "tests/autodiff/rules/schema_calls.h"
#include "tests/support/graphs.h"
#include "tests/support/operator_cases.h"
#include "trace/tracer.h"

#include <sconce/compiled_backward.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

namespace sconce::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

std::string name_of(const Op& op) {
  const std::string& overload = op.schema->overload_name();
  return op.schema->name() + (overload.empty() ? "" : "." + overload);
}

const Op& op_named(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return op_of(torch::jit::findOperatorFor({name.substr(0, dot), overload})->schema());
}

// One call with computed arguments, its results and incoming gradients.
struct Call {
  Values arguments;
  Tensors leaves;
  std::vector<size_t> positions;
  Tensors results;
  Tensors incoming;
};

Call make_call(const CallPattern& pattern, const Values& examples) {
  Call call;
  for (size_t i = 0; i < examples.size(); ++i) {
    if (!pattern.arguments[i].requires_grad) {
      call.arguments.push_back(examples[i]);
      continue;
    }
    call.leaves.push_back((examples[i].toTensor() / 2).requires_grad_(true));
    call.positions.push_back(i);
    call.arguments.emplace_back(call.leaves.back() * 2);
  }
  torch::jit::Stack stack = call.arguments;
  pattern.op->registered->getOperation()(stack);
  for (const c10::IValue& result : stack) {
    call.results.push_back(result.toTensor());
    const bool is_floating = call.results.back().is_floating_point();
    call.incoming.push_back(is_floating ? at::rand_like(call.results.back().detach()) : call.results.back());
  }
  return call;
}

Tensors by_autograd(const Call& call) {
  Tensors outputs;
  Tensors incoming;
  for (size_t i = 0; i < call.results.size(); ++i) {
    if (call.results[i].requires_grad()) {
      outputs.push_back(call.results[i]);
      incoming.push_back(call.incoming[i]);
    }
  }
  Tensors arguments;
  for (const size_t position : call.positions) {
    arguments.push_back(call.arguments[position].toTensor());
  }
  return torch::autograd::grad(outputs, arguments, incoming, /*retain_graph=*/true, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

Values without_gradients(const Values& values) {
  Values detached = values;
  for (c10::IValue& each : detached) {
    each = each.isTensor() && each.toTensor().defined() ? c10::IValue(each.toTensor().detach()) : each;
  }
  return detached;
}

// Runs forward and backward of a rule. `sums`: to the sizes of the arguments, as differentiation does with texts.
Tensors by_rule(const OpGradient& gradient, const Call& call, bool sums) {
  const at::NoGradGuard no_grad;
  const Values arguments = without_gradients(call.arguments);
  Values inputs = arguments;
  if (gradient.forward != nullptr) {
    const Values forward = run(*gradient.forward, arguments).at(0).toTupleRef().elements().vec();
    inputs.insert(inputs.end(), forward.begin(), forward.end());
  } else {
    for (const at::Tensor& result : call.results) {
      inputs.emplace_back(result.detach());
    }
  }
  inputs.insert(inputs.end(), call.incoming.begin(), call.incoming.end());
  append_all_defined(inputs, call.incoming.size());
  c10::List<bool> needs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    needs.push_back(std::find(call.positions.begin(), call.positions.end(), i) != call.positions.end());
  }
  inputs.emplace_back(needs);
  inputs.emplace_back(false);
  const Values entries = run(*gradient.backward, inputs).at(0).toTupleRef().elements().vec();
  Tensors gradients;
  for (const size_t position : call.positions) {
    const bool is_given = position < entries.size() && entries[position].isTensor();
    gradients.push_back(is_given ? entries[position].toTensor() : at::Tensor());
    if (is_given && sums) {
      const at::Tensor& argument = arguments[position].toTensor();
      gradients.back() = at::sum_to(gradients.back(), argument.sizes()).to(argument.scalar_type());
    }
  }
  return gradients;
}

std::string difference(const Tensors& found, const Tensors& expected, double tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (found[i].defined() != expected[i].defined()) {
      return "gradient " + std::to_string(i) + " is defined in one of them";
    }
    if (found[i].defined() && (found[i].sizes() != expected[i].sizes() ||
                               !at::allclose(found[i], expected[i], tolerance, tolerance, /*equal_nan=*/true))) {
      return "gradient " + std::to_string(i) + " differs";
    }
  }
  return {};
}

// Compares the rule with autograd at two sizes, and with the text's gradient if the row has one.
std::string failure_of(const CallPattern& pattern, const OpGradient& recorded) {
  const auto examples = ExampleCalls::find(pattern);
  for (const size_t number : {0, 2}) {
    const Call call = make_call(pattern, examples->arguments(examples->sizes(number)));
    const Tensors found = by_rule(recorded, call, /*sums=*/false);
    if (std::string failure = difference(found, by_autograd(call), 1e-12); !failure.empty()) {
      return failure;
    }
    const OpGradient* text = gradient_of(*pattern.op);
    const bool holds = text != nullptr && text->backward != nullptr &&
                       (text->condition == nullptr || run(*text->condition, call.arguments).at(0).toBool());
    if (!holds) {
      continue;
    }
    Tensors expected = by_rule(*text, call, /*sums=*/true);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!expected[i].defined() && found[i].defined()) {
        expected[i] = found[i];  // the text leaves it to autograd
      }
    }
    if (std::string failure = difference(found, expected, 1e-9); !failure.empty()) {
      return "unlike the text: " + failure;
    }
  }
  return {};
}

// Operators that LibTorch calls itself do not check their operands, and crash. So do a few others.
bool is_internal(const std::string& name) {
  static const std::vector<std::string> parts = {"aten::_",
                                                 "_backward",
                                                 "mkldnn",
                                                 "cudnn",
                                                 "miopen",
                                                 "fbgemm",
                                                 "quantize",
                                                 "sparse",
                                                 "fused_",
                                                 "nested",
                                                 "xnnpack",
                                                 "hspmm",
                                                 "_copy",
                                                 "embedding_bag",
                                                 "q_per",
                                                 "q_scale",
                                                 "q_zero",
                                                 "coalesced",
                                                 "slow_conv_transpose3d"};
  return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return name.find(part) != std::string::npos; });
}

std::map<std::string, const Op*> operators() {
  std::map<std::string, const Op*> found;
  for (const auto& registered : torch::jit::getAllOperators()) {
    const Op& op = op_of(registered->schema());
    if (op.schema->name().rfind("aten::", 0) == 0 && op.dispatched && !op.schema->is_mutable() && !op.all_effects.any() &&
        !is_internal(name_of(op))) {
      found.emplace(name_of(op), &op);
    }
  }
  return found;
}

class Coverage {
 public:
  // Returns whether the operator has a rule for the pattern.
  bool add(const CallPattern& pattern) {
    const std::string name = name_of(*pattern.op);
    const at::Tensor random = at::globalContext().defaultGenerator(c10::kCPU).get_state();
    const RecordedGradient& recorded = record_gradient(pattern);
    EXPECT_TRUE(!pattern.op->recorded_gradient || at::globalContext().defaultGenerator(c10::kCPU).get_state().equal(random))
        << name << " draws random numbers";
    if (!recorded.refusal.empty()) {
      static const std::set<std::string> undifferentiable = {
          "no sizes were found that it takes", "its results require no gradient", "its results are not tensors"};
      if (!undifferentiable.contains(recorded.refusal) && !covered_.contains(name)) {
        refused_.emplace(name, recorded.refusal.substr(0, recorded.refusal.find('\n')));
      }
      return false;
    }
    std::string failure;
    try {
      failure = failure_of(pattern, recorded.gradient);
    } catch (const std::exception& error) {
      failure = sconce::message_of(error);
    }
    EXPECT_EQ(failure, "") << name;
    covered_.insert(name);
    patterns_.push_back(pattern);
    refused_.erase(name);
    return true;
  }

  // Calls with a rule, one of each operator.
  const std::vector<CallPattern>& patterns() const { return patterns_; }

  bool has(const Op& op) const { return covered_.contains(name_of(op)); }
  const std::set<std::string>& covered() const { return covered_; }
  const std::map<std::string, std::string>& refused() const { return refused_; }

 private:
  std::set<std::string> covered_;
  std::vector<CallPattern> patterns_;
  std::map<std::string, std::string> refused_;
};

const Coverage& coverage_of_libtorch() {
  static const Coverage coverage = [] {
    Coverage found;
    for (const OperatorCase& each : read_operator_cases(tests_dir() + "/ops/gradients")) {
      const Values arguments = each.arguments(5);
      std::vector<size_t> floating;
      for (size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i].isTensor() && arguments[i].toTensor().defined() && arguments[i].toTensor().is_floating_point()) {
          floating.push_back(i);
        }
      }
      found.add(pattern_of(*each.op, arguments, floating));
    }
    for (const auto& [name, op] : operators()) {
      if (found.has(*op)) {
        continue;
      }
      for (const CallPattern& call : suggested_calls(*op)) {
        if (found.add(call)) {
          break;
        }
      }
    }
    return found;
  }();
  return coverage;
}

TEST(RecordGradient, EqualsAutogradForTheOperatorsOfLibTorch) {
  const Coverage& coverage = coverage_of_libtorch();
  // The rows say which operators `differentiate` may record. Others have a reason in unmarked_operators.txt.
  std::string unmarked;
  for (const std::string& name : coverage.covered()) {
    const Op& op = op_named(name);
    if (gradient_of(op) == nullptr && !(op.canonical != nullptr ? *op.canonical : op).recorded_gradient) {
      unmarked += name + "\n";
    }
  }
  std::string with_reason;
  std::istringstream lines(read_text(tests_dir() + "/autodiff/rules/unmarked_operators.txt"));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_GT(line.size(), line.find(": ") + 2) << line << " has no reason";
    with_reason += line.substr(0, line.find(": ")) + "\n";
  }
  EXPECT_EQ(unmarked, with_reason);
  size_t marked = 0;
  for (const auto& registered : torch::jit::getAllOperators()) {
    const Op& op = op_of(registered->schema());
    if (op.recorded_gradient && op.dispatched && !op.schema->is_mutable()) {
      EXPECT_TRUE(coverage.has(op)) << name_of(op) << " is marked in its row, and has no recorded gradient";
      ++marked;
    }
  }
  EXPECT_GE(marked, 25U);
  size_t without_text = 0;
  for (const auto& [name, op] : operators()) {
    without_text += coverage.has(*op) && gradient_of(*op) == nullptr ? 1 : 0;
  }
  std::string found;
  for (const auto& [name, reason] : coverage.refused()) {
    found += name + ": " + reason + "\n";
  }
  const std::string file = tests_dir() + "/autodiff/rules/unrecorded_operators.txt";
  if (std::getenv("SCONCE_UPDATE_EXPECTATIONS") != nullptr) {
    std::ofstream(file) << found;
  }
  const std::string listed = read_text(file);
  for (const auto& [name, reason] : coverage.refused()) {
    EXPECT_NE(("\n" + listed).find("\n" + name + ": "), std::string::npos) << name << ": " << reason;
  }
  EXPECT_GE(coverage.covered().size(), 386U);
  EXPECT_GE(without_text, 143U);
  RecordProperty("covered", static_cast<int>(coverage.covered().size()));
  RecordProperty("without_text", static_cast<int>(without_text));
  std::cout << coverage.covered().size() << " operators, " << without_text << " of them without a text\n";
}

// What a backward gives: gradients, or an error.
struct Outcome {
  Tensors gradients;
  std::string error;
};

Outcome outcome_of(const Call& call) {
  try {
    return {by_autograd(call), {}};
  } catch (const c10::Error& error) {
    return {{}, error.what_without_backtrace()};
  }
}

std::string difference(const Outcome& found, const Outcome& expected) {
  if (found.error != expected.error) {
    return "raises '" + found.error + "', not '" + expected.error + "'";
  }
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    const at::Tensor& gradient = found.gradients[i];
    if (gradient.defined() && gradient.numel() > 0 && gradient.strides() != expected.gradients[i].strides()) {
      return "strides of gradient " + std::to_string(i) + " differ";
    }
  }
  return difference(found.gradients, expected.gradients, 1e-9);
}

// Runs backwards of the operator with several sizes, those of 0 and 1 last, in a scope. Returns what differs from the
// engine.
std::string failure_in_scope(const CallPattern& pattern, const BackwardCache& cache) {
  const auto examples = ExampleCalls::find(pattern);
  std::vector<ExampleCalls::Sizes> all;
  for (const size_t number : {0, 1, 2, 0, 1, 2}) {
    all.push_back(examples->sizes(number));
  }
  for (int round = 0; round < 3; ++round) {
    all.insert(all.end(), examples->edges().begin(), examples->edges().end());
  }
  for (const ExampleCalls::Sizes& sizes : all) {
    const Call call = make_call(pattern, examples->arguments(sizes));
    const Outcome found = [&] {
      const CompiledBackward scope(cache);
      return outcome_of(call);
    }();
    if (std::string failure = difference(found, outcome_of(call)); !failure.empty()) {
      return failure;
    }
  }
  return {};
}

// Returns whether all agree. Tells of those that do not.
bool all_serve_sizes_that_change() {
  size_t general = 0;
  bool agree = true;
  for (const CallPattern& pattern : coverage_of_libtorch().patterns()) {
    const std::string name = name_of(*pattern.op);
    const BackwardCache cache(Options().compile(CompileMode::kBlocking));
    std::string failure;
    try {
      failure = failure_in_scope(pattern, cache);
    } catch (const std::exception& error) {
      failure = sconce::message_of(error);
    }
    if (!failure.empty()) {
      std::cerr << name << ": " << failure << '\n';
      agree = false;
    }
    const BackwardExplanation explanation = cache.explain();
    general += explanation.why_sizes_are_fixed.empty() ? 1 : 0;
    for (const std::string& why : explanation.why_sizes_are_fixed) {
      std::cerr << name << ": " << why << '\n';
    }
  }
  std::cerr << general << " calls of operators need no more than two recordings\n";
  return agree && general >= 460;
}

// In a process of its own: from the first scope on, LibTorch may refuse backward on two threads, which other tests have.
TEST(CompiledBackwardOfOperators, ServesSizesThatChange) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(all_serve_sizes_that_change() ? 0 : 1), ::testing::ExitedWithCode(0),
              "no more than two recordings");
}

ArgumentPattern matrix() {
  ArgumentPattern argument;
  argument.dtype = c10::kDouble;
  argument.sizes.resize(2);
  argument.requires_grad = true;
  return argument;
}

ArgumentPattern constant(c10::IValue value) {
  ArgumentPattern argument;
  argument.constant = std::move(value);
  return argument;
}

TEST(RecordGradient, GivesAReasonForWhatItRefuses) {
  const auto reason = [](const char* name, std::vector<ArgumentPattern> arguments) {
    return record_gradient({&op_named(name), std::move(arguments)}).refusal;
  };
  ArgumentPattern complex = matrix();
  complex.dtype = c10::kComplexDouble;
  EXPECT_EQ(reason("aten::dropout", {matrix(), constant(0.5), constant(true)}), "it draws random numbers");
  EXPECT_EQ(reason("aten::relu_", {matrix()}), "it has effects");
  EXPECT_EQ(reason("aten::tanh", {complex}), "an operand is complex");
  EXPECT_EQ(reason("aten::det", {matrix()}),
            "aten::_local_scalar_dense: it reads a number from a tensor, on which what follows may depend");
  EXPECT_EQ(reason("aten::isnan", {matrix()}), "its results require no gradient");
  EXPECT_EQ(reason("aten::reshape", {matrix(), constant(std::vector<int64_t>{7, 11})}), "no sizes were found that it takes");
}

TEST(RecordGradient, TouchesNeitherThreadNorRandomNumbers) {
  at::manual_seed(3);
  const at::Tensor expected = at::rand({2});
  at::manual_seed(3);
  {
    const at::NoGradGuard no_grad;
    Tracer tracer;
    const TracingScope scope(tracer);
    EXPECT_EQ(record_gradient({&op_named("aten::special_i1"), {matrix()}}).refusal, "");
    EXPECT_FALSE(at::GradMode::is_enabled());
    EXPECT_EQ(tracer.graph().node_count(), 0U);
  }
  EXPECT_TRUE(at::rand({2}).equal(expected));
}

TEST(RecordGradient, IsRecordedOnceForAllThreads) {
  std::vector<const RecordedGradient*> found(8);
  std::vector<std::thread> threads;
  for (const RecordedGradient*& each : found) {
    threads.emplace_back([&each] { each = &record_gradient({&op_named("aten::special_i0e"), {matrix()}}); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(found[0]->refusal, "");
  EXPECT_EQ(std::set<const RecordedGradient*>(found.begin(), found.end()).size(), 1U);
}

}  // namespace
}  // namespace sconce::testing
