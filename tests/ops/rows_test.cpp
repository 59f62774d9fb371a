// Walks the rows: each is true of this LibTorch.
#include "ops/rows.h"

#include "tests/support/graphs.h"

#include "ir/schema_match.h"
#include "load/compile_op_row.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace sconce {
namespace {

// The block of primitives in opcode.h.
constexpr bool is_primitive(Opcode opcode) { return opcode >= Opcode::kAdd && opcode <= Opcode::kCast; }

using Values = std::vector<c10::IValue>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<const Op*> overloads_of(const OpRow& row) {
  std::vector<const Op*> ops;
  for (const auto& registered : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(std::string(row.name)))) {
    if (find_op_row(row.name, registered->schema().overload_name()) == &row) {
      ops.push_back(&op_of(registered->schema()));
    }
  }
  return ops;
}

// ---- every row ------------------------------------------------------------------------------------------------------

// Operators of libraries that this build of LibTorch comes without, or that only a library of the user's registers.
bool may_be_missing(std::string_view name) { return name.starts_with("torchvision::"); }

TEST(OpRows, NameOperatorsAndArgumentsThatExist) {
  size_t rows = 0;
  for_each_row([&](const OpRow& row) {
    ++rows;
    if (may_be_missing(row.name) || language_op(c10::Symbol::fromQualString(std::string(row.name))) != nullptr) {
      return;
    }
    const auto ops = overloads_of(row);
    EXPECT_FALSE(ops.empty()) << row.name << " has no overload that the row is for";
    std::set<std::string_view> seen;
    for (const Op* op : ops) {
      for (const c10::Argument& argument : op->schema->arguments()) {
        seen.insert(argument.name());
      }
    }
    for (const std::string_view argument : row.written) {
      EXPECT_TRUE(seen.contains(argument)) << row.name << " has no argument " << argument;
    }
    EXPECT_TRUE(row.written_if.empty() || seen.contains(row.written_if)) << row.name;
    EXPECT_TRUE(!row.affine || (seen.contains("weight") && seen.contains("bias"))) << row.name;
  });
  EXPECT_GT(rows, 400U);
}

TEST(OpRows, NameEachOverloadOnceAndNoOtherThatExist) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for_each_row([&](const OpRow& row) {
    if (row.overloads.empty()) {
      EXPECT_TRUE(seen.insert({row.name, "(all others)"}).second) << row.name << " has two rows for the same overloads";
    }
    for (const std::string_view overload : row.overloads) {
      EXPECT_TRUE(seen.insert({row.name, overload}).second) << row.name << "." << overload << " stands twice";
      EXPECT_EQ(find_op_row(row.name, overload), &row);
      const bool exists = torch::jit::findOperatorFor({std::string(row.name), std::string(overload)}) != nullptr;
      EXPECT_TRUE(exists || may_be_missing(row.name)) << row.name << "." << overload << " does not exist";
    }
  });
}

TEST(OpRows, SaySomething) {
  const OpRow nothing;
  for_each_row([&](const OpRow& row) {
    OpRow unnamed = row;
    const bool is_rule = !row.result.dtypes.empty() || row.result.keeps_sizes || !row.result.sizes.empty() ||
                         row.result.differs_on_meta || row.result.accepts_sparse || row.result.sizes_by_structure ||
                         row.result.rank_depends_on_sizes || row.result.runs_on_empty;
    EXPECT_TRUE(!row.synonym_of.empty() || row.opcode != Opcode::kOpaque || row.effects.any() || row.reads_state ||
                row.differentiates || row.raises != nothing.raises || !row.written.empty() ||
                row.results != nothing.results || row.may_overlap || row.makes_no_contents || row.overwrites ||
                row.resizes || row.new_view || row.reads_identity || row.reads != nothing.reads ||
                row.layout != nothing.layout || row.cuts || row.keeps_stride_order || row.in_place != nothing.in_place ||
                row.backward_ignores_result || row.autocast != nothing.autocast || is_rule || row.leaves_device ||
                row.reads_beyond_form || row.grows_by_number || row.affine || row.product || row.division ||
                row.reads_missing_dtype || !row.body.empty() || !row.backward.empty() || row.recorded_gradient)
        << row.name;
  });
}

TEST(OpRows, HaveATextOrARecordedGradient) {
  for_each_row([](const OpRow& row) {
    EXPECT_FALSE(row.recorded_gradient && !(row.backward.empty() && row.forward.empty() && row.synonym_of.empty()))
        << row.name;
  });
}

// What a reader looks for is in one place.
TEST(OpRows, AreOnePerOperatorForTheCommonOnes) {
  std::map<std::string_view, size_t> rows;
  for_each_row([&](const OpRow& row) { ++rows[row.name]; });
  for (const char* name : {"aten::batch_norm", "aten::linear", "aten::add", "aten::cat", "aten::size", "aten::mm"}) {
    EXPECT_EQ(rows[name], 1U) << name;
  }
}

TEST(OpRows, SynonymsLeadToOperatorsThatAreNone) {
  for_each_row([&](const OpRow& row) {
    if (row.synonym_of.empty()) {
      return;
    }
    const auto& candidates = torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(std::string(row.synonym_of)));
    EXPECT_FALSE(candidates.empty()) << row.synonym_of;
    for (const auto& candidate : candidates) {
      EXPECT_TRUE(op_of(candidate->schema()).synonym_of.empty()) << row.name << " leads to another synonym";
    }
  });
}

TEST(OpRows, APrimitiveHasNoBody) {
  for_each_row([](const OpRow& row) { EXPECT_FALSE(is_primitive(row.opcode) && !row.body.empty()) << row.name; });
}

// ---- bodies ---------------------------------------------------------------------------------------------------------

// The overload that a row's texts are tried on: the first whose arguments `arguments_for` can make.
const Op* op_with_tensors(const OpRow& row) {
  for (const Op* op : overloads_of(row)) {
    const auto& arguments = op->schema->arguments();
    if (!op->schema->is_mutable() && op->schema->returns().size() == 1 && !arguments.empty() &&
        op->schema->returns()[0].type()->kind() == c10::TypeKind::TensorType &&
        std::count_if(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
          return argument.type()->kind() == c10::TypeKind::TensorType ||
                 argument.type()->kind() == c10::TypeKind::NumberType;
        }) == static_cast<std::ptrdiff_t>(arguments.size())) {
      return op;
    }
  }
  return nullptr;
}

// Random arguments of doubles where every row is smooth: positive, away from kinks, no two equal.
Values arguments_for(const c10::FunctionSchema& schema, double low, double high) {
  Values arguments;
  for (const c10::Argument& argument : schema.arguments()) {
    const bool is_mask = argument.name() == "condition" || argument.name() == "mask";
    if (is_mask) {
      arguments.emplace_back(at::rand({3, 3}, at::kDouble) > 0.5);
    } else if (argument.type()->kind() == c10::TypeKind::TensorType) {
      arguments.emplace_back(at::rand({3, 3}, at::kDouble) * (high - low) + low);
    } else if (argument.default_value()) {
      arguments.push_back(argument.name() == "alpha" || argument.name() == "value" ? c10::IValue(1.75)
                                                                                   : *argument.default_value());
    } else {
      arguments.emplace_back(0.625);
    }
  }
  return arguments;
}

at::Tensor call(const Op& op, Values arguments) {
  op.dispatched->callBoxed(arguments);
  return arguments.at(0).toTensor();
}

// Ranges in which a row is defined: log, sqrt and the like need positive arguments, the others also get negative ones.
std::vector<std::pair<double, double>> ranges_of(const OpRow& row) {
  static const std::set<std::string_view> positive = {"aten::log", "aten::sqrt", "aten::rsqrt"};
  if (positive.contains(row.name)) {
    return {{0.1, 4}};
  }
  return {{0.1, 4}, {-4, -0.1}, {-4, 4}};
}

TEST(OpRows, EveryBodyAgreesWithTheOperator) {
  at::manual_seed(1);
  size_t bodies = 0;
  for_each_row([&](const OpRow& row) {
    if (row.body.empty()) {
      return;
    }
    ++bodies;
    const Op* op = op_with_tensors(row);
    ASSERT_NE(op, nullptr) << row.name;
    const auto graph = compile_body(*op);
    for (const auto& [low, high] : ranges_of(row)) {
      const Values arguments = arguments_for(*op->schema, low, high);
      EXPECT_TRUE(testing::agree(testing::run(*graph, arguments).at(0), call(*op, arguments), 1e-12)) << row.name;
    }
  });
  EXPECT_GT(bodies, 8U);
}

// Every combination of special values as the operator's arguments: each element of a tensor is one combination of tensors,
// and each element of the list one combination of numbers. Pairs of equal values are ties.
std::vector<Values> special_arguments_for(const c10::FunctionSchema& schema) {
  const std::vector<double> specials = {-kInfinity, kInfinity, kNan, -0.0, 0, 1, -3, 3, 800};
  const at::Tensor each = at::tensor(specials, at::kDouble);
  const auto& arguments = schema.arguments();
  const auto is_tensor = [](const c10::Argument& argument) { return argument.type()->kind() == c10::TypeKind::TensorType; };
  const std::vector<at::Tensor> grid =
      at::meshgrid(std::vector<at::Tensor>(std::ranges::count_if(arguments, is_tensor), each), "ij");
  std::vector<Values> all = {{}};
  size_t tensors = 0;
  for (const c10::Argument& argument : arguments) {
    std::vector<c10::IValue> choices(specials.begin(), specials.end());
    if (is_tensor(argument)) {
      const at::Tensor tensor = grid[tensors++].contiguous();
      const bool is_mask = argument.name() == "condition" || argument.name() == "mask";
      choices = {is_mask ? tensor > 0 : tensor};
    }
    std::vector<Values> longer;
    for (const Values& values : all) {
      for (const c10::IValue& choice : choices) {
        longer.push_back(values);
        longer.back().push_back(choice);
      }
    }
    all = std::move(longer);
  }
  return all;
}

TEST(OpRows, EveryBodyAgreesWithTheOperatorAtSpecialValues) {
  for_each_row([](const OpRow& row) {
    if (row.body.empty()) {
      return;
    }
    const Op* op = op_with_tensors(row);
    ASSERT_NE(op, nullptr) << row.name;
    const auto graph = compile_body(*op);
    for (const Values& arguments : special_arguments_for(*op->schema)) {
      const at::Tensor ours = testing::run(*graph, arguments).at(0).toTensor();
      const at::Tensor theirs = call(*op, arguments);
      EXPECT_TRUE(testing::agree(ours, theirs, 1e-12)) << row.name << " of " << arguments;
      const at::Tensor zeros = ours == 0;
      EXPECT_TRUE(at::equal(at::signbit(ours).logical_and(zeros), at::signbit(theirs).logical_and(zeros)))
          << row.name << ": the signs of zeros, of " << arguments;
    }
  });
}

// Puts bodies in the place of operators until none is left that has one.
void expand_bodies(Graph& graph) {
  for (bool changed = true; changed;) {
    changed = false;
    for_each_node(graph.body(), [&](Node* node) {
      if (node->op().body.empty()) {
        return;
      }
      const auto body = compile_body(node->op());
      ValueMap values;
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        values[body->inputs()[i]] = node->input(i);
      }
      node->output()->replace_all_uses_with(graph.copy_nodes(body->body(), node, values).at(0));
      node->erase();
      changed = true;
    });
  }
}

// Whether a kernel needs no instruction for the node: it is a number that the body names.
bool is_number_or_constant(const Node& node) {
  return node.op().is_language() || node.output()->type()->kind() != c10::TypeKind::TensorType;
}

TEST(OpRows, EveryBodyEndsInPrimitives) {
  for_each_row([&](const OpRow& row) {
    if (row.body.empty()) {
      return;
    }
    for (const Op* op : overloads_of(row)) {
      if (op->schema->is_mutable()) {
        continue;
      }
      const auto graph = compile_body(*op);
      expand_bodies(*graph);
      for_each_node(graph->body(), [&](Node* node) {
        EXPECT_TRUE(is_primitive(node->opcode()) || is_number_or_constant(*node))
            << row.name << " needs " << node->kind().toQualString();
      });
    }
  });
}

// ---- gradients ------------------------------------------------------------------------------------------------------

TEST(OpRows, ComparisonsHaveNoGradient) {
  size_t comparisons = 0;
  for_each_row([&](const OpRow& row) {
    if (is_comparison(row.opcode)) {
      ++comparisons;
      EXPECT_TRUE(row.backward.empty()) << row.name;
    }
  });
  EXPECT_EQ(comparisons, 6U);
}

}  // namespace
}  // namespace sconce
