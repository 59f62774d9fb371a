// Forward texts reject what their operators reject, with the operators' words: the texts themselves, and calls that record
// gradients, in the generic and in the specialized plan.
//
// SCONCE_TWINS_OF_ALL_ROWS=1 makes such calls of the operators without a forward text, too.
#include "tests/ops/eager_gradients.h"
#include "tests/ops/gradient_cases.h"
#include "tests/support/children.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/support/negative_arguments.h"

#include "ir/graph.h"
#include "load/compile_op_row.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

namespace sconce {
namespace {

using testing::GradientCase;
using testing::NegativeTwin;
using testing::ReportLine;
using testing::Tensors;
using testing::Values;

// What a call gives, and backward from the sum of its results.
struct TwinOutcome {
  std::string error;  // the first line
  Values results;
  std::string backward_error;
};

// Calls with tensors of their own, of which those at `leaves` require gradients.
template <typename Call>
TwinOutcome observe(const Values& values, const std::vector<size_t>& leaves, const Call& call) {
  TwinOutcome outcome;
  const Values arguments = testing::own_copies_of(values);
  Tensors wanted;
  for (const size_t position : leaves) {
    if (arguments[position].isTensor() && arguments[position].toTensor().is_floating_point()) {
      wanted.push_back(arguments[position].toTensor().requires_grad_(true));
    }
  }
  try {
    outcome.results = call(arguments);
  } catch (const std::exception& error) {
    outcome.error = one_line_message(error);
    return outcome;
  }
  at::Tensor sum;
  for (const c10::IValue& result : outcome.results) {
    if (result.isTensor() && result.toTensor().defined() && result.toTensor().requires_grad()) {
      const at::Tensor part = result.toTensor().to(at::kDouble).sum();
      sum = sum.defined() ? sum + part : part;
    }
  }
  if (sum.defined() && !wanted.empty()) {
    try {
      torch::autograd::grad({sum}, wanted, {}, std::nullopt, false, /*allow_unused=*/true);
    } catch (const std::exception& error) {
      outcome.backward_error = one_line_message(error);
    }
  }
  return outcome;
}

std::string in_quotes(const std::string& text) { return "\"" + text + "\""; }

// Returns what differs; nothing if both raise with the same first line, or give results that agree.
std::string difference(const TwinOutcome& ours, const TwinOutcome& theirs) {
  if (ours.error != theirs.error) {
    return in_quotes(ours.error) + " instead of " + in_quotes(theirs.error);
  }
  if (ours.backward_error != theirs.backward_error) {
    return "backward: " + in_quotes(ours.backward_error) + " instead of " + in_quotes(theirs.backward_error);
  }
  for (size_t i = 0; i < theirs.results.size(); ++i) {
    if (ours.results.size() <= i || !testing::agree(ours.results[i], theirs.results[i], 1e-2)) {
      return "result " + std::to_string(i) + " differs";
    }
  }
  return "";
}

// Returns whether LibTorch itself reads or writes beyond its memory for some twins: where the offsets of bags say, and where
// attention has not as many keys as values.
bool is_unsafe(const Op& op, const NegativeTwin& twin) {
  const std::string& argument = op.schema->arguments()[twin.position].name();
  return (op.name == "aten::embedding_bag" && argument != "weight") ||
         (op.name == "aten::scaled_dot_product_attention" && (argument == "key" || argument == "value"));
}

// Calls `check` with each case that has a forward text, or with all, and each of its twins, in children. `check` returns
// what differs.
template <typename Check>
void for_every_twin(bool of_all_rows, const Check& check) {
  std::vector<const GradientCase*> cases;
  for (const GradientCase& each : testing::gradient_cases()) {
    const OpGradient* gradient = testing::rule_of(*each.op, each.arguments(2));
    if (gradient != nullptr && (of_all_rows || gradient->forward != nullptr)) {
      cases.push_back(&each);
    }
  }
  const auto reports = testing::run_in_children(cases.size(), 120, [&](size_t i, size_t first, const ReportLine& report) {
    const GradientCase& each = *cases[i];
    const auto twins = testing::negative_twins(*each.op->schema, each.arguments(2));
    size_t rejected = 0;
    for (size_t k = first; k < twins.size(); ++k) {
      if (is_unsafe(*each.op, twins[k])) {
        continue;
      }
      check(each, twins[k], [&](const std::string& who) { report("@ " + std::to_string(k) + " " + who); }, report, rejected);
    }
    report("= " + std::to_string(rejected));
  });
  size_t rejected = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    for (const std::string& line : reports[i].lines) {
      if (line.front() == '=') {
        rejected += std::stoull(line.substr(2));
      } else {
        ADD_FAILURE() << cases[i]->text << ": " << line;
      }
    }
    for (const std::string& crash : reports[i].crashes) {
      EXPECT_EQ(crash, "LibTorch") << cases[i]->text << " crashes in sconce";
    }
  }
  EXPECT_GT(rejected, 500U);
}

TEST(RejectedArguments, OfForwardTextsAreTheOperators) {
  for_every_twin(false, [](const GradientCase& each, const NegativeTwin& twin, const auto& next, const ReportLine& report,
                           size_t& rejected) {
    next("LibTorch");
    if (!testing::unless_it_raises([&] { return testing::is_differentiated(each, twin.values); }).value_or(false)) {
      return;
    }
    // Texts are of real numbers, of which some require a gradient.
    if (testing::floating_positions(twin.values).empty()) {
      return;
    }
    const auto call = [&](const Values& v) { return testing::call_operator(*each.op, v); };
    const auto theirs = observe(twin.values, {}, call);
    if (!difference(observe(twin.values, {}, call), theirs).empty()) {
      return;  // LibTorch reads memory that is not the arguments'
    }
    next("sconce");
    const auto ours = observe(twin.values, {}, [&](const Values& v) { return testing::run_forward(*each.op, v).results; });
    rejected += theirs.error.empty() ? 0 : 1;
    if (const std::string text = difference(ours, theirs); !text.empty()) {
      report(twin.change + ": " + text);
    }
  });
}

// ---- calls that record gradients ------------------------------------------------------------------------------------

// Returns whether the value is a tensor, or a list of tensors or of optional tensors.
bool is_graph_input(const c10::IValue& value) {
  return value.isTensor() || (value.isList() && !value.isIntList() && !value.isBoolList() && !value.isDoubleList());
}

// One call of the operator. Its tensors are the graph's inputs, its other arguments are constants.
std::unique_ptr<Graph> graph_of_call(const Op& op, const Values& arguments) {
  auto graph = std::make_unique<Graph>();
  std::vector<Value*> operands;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = op.schema->arguments()[i];
    const c10::TypePtr type = argument.type();
    if (arguments[i].isTensor()) {
      operands.push_back(graph->add_input(argument.name(), c10::TensorType::get()));
    } else if (is_graph_input(arguments[i])) {
      operands.push_back(graph->add_input(argument.name(), type));
    } else {
      operands.push_back(graph->insert_constant(arguments[i], graph->body().return_node(),
                                                arguments[i].isNone() ? c10::NoneType::get() : type));
    }
  }
  Node* node = graph->create(op.kind, operands, op.schema->returns().size());
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    node->output(i)->set_type(op.schema->returns()[i].type());
    graph->add_output(node->output(i));
  }
  node->set_op(op);
  node->append_to(graph->body());
  return graph;
}

Values run_call(GraphExecutor& executor, const Values& values) {
  std::vector<c10::IValue> stack;
  std::copy_if(values.begin(), values.end(), std::back_inserter(stack), is_graph_input);
  at::manual_seed(testing::kOperatorSeed);
  executor.run(stack);
  return stack;
}

TEST(RejectedArguments, OfCallsThatRecordGradientsAreTheOperators) {
  const bool of_all_rows = testing::environment_number("SCONCE_TWINS_OF_ALL_ROWS", 0) != 0;
  for_every_twin(of_all_rows, [](const GradientCase& each, const NegativeTwin& twin, const auto& next,
                                 const ReportLine& report, size_t& rejected) {
    const Values valid = each.arguments(2);
    next("LibTorch");
    const std::vector<size_t> leaves = testing::differentiable_positions(each, valid);
    const auto theirs_with = [&](const Values& values) {
      return observe(values, leaves, [&](const Values& v) { return testing::call_operator(*each.op, v); });
    };
    const TwinOutcome theirs = theirs_with(twin.values);
    if (!difference(theirs_with(twin.values), theirs).empty()) {
      return;  // LibTorch reads memory that is not the arguments'
    }
    rejected += theirs.error.empty() ? 0 : 1;
    next("sconce");
    const bool shares_graph = is_graph_input(valid[twin.position]) && is_graph_input(twin.values[twin.position]);
    for (const CompileMode mode : {CompileMode::kNever, CompileMode::kBlocking}) {
      GraphExecutor executor(graph_of_call(*each.op, twin.values), "f", Options().compile(mode).min_differentiable_nodes(1));
      const auto check = [&](const Values& values, const TwinOutcome& expected, const std::string& what) {
        const auto ours = observe(values, leaves, [&](const Values& v) { return run_call(executor, v); });
        if (const std::string text = difference(ours, expected); !text.empty()) {
          report(twin.change + ", " + what + (mode == CompileMode::kNever ? ", generic plan: " : ", specialized plan: ") +
                 text);
        }
      };
      if (shares_graph) {
        const TwinOutcome expected = theirs_with(valid);
        check(valid, expected, "valid call 1");
        check(valid, expected, "valid call 2");
      }
      check(twin.values, theirs, "call 1");
      check(twin.values, theirs, "call 2");
    }
  });
}

}  // namespace
}  // namespace sconce
