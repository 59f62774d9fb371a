// What a rule reads is saved until backward, and must not be written in between. So a rule may read elements of those
// tensors alone that LibTorch's own formula saves: where a write in between raises in eager mode.
#include "tests/ops/gradient_cases.h"

#include "ir/graph.h"
#include "load/compile_op_row.h"
#include "ops/rows.h"
#include "passes/simplify/fold_constant_branches.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <set>
#include <unordered_set>

namespace sconce {
namespace {

using testing::GradientCase;
using testing::Values;

// Positions of a text's inputs: first the schema's arguments, then the results.
using Positions = std::set<size_t>;

bool holds_tensors(const c10::Type& type) { return type.annotation_str().find("Tensor") != std::string::npos; }

// Collects the inputs of a graph whose elements a value is computed from.
class ReadInputs {
 public:
  explicit ReadInputs(const Graph& graph) : graph_(graph) {}

  Positions of(const Value* value) {
    visit(value);
    return std::move(found_);
  }

 private:
  void visit(const Value* value) {
    if (!visited_.insert(value).second) {
      return;
    }
    const auto inputs = graph_.inputs();
    if (const auto at = std::find(inputs.begin(), inputs.end(), value); at != inputs.end()) {
      found_.insert(static_cast<size_t>(at - inputs.begin()));
      return;
    }
    visit_definition(*value);
    for (const sconce::Use& use : value->uses()) {  // what is put into a list, say
      if (use.user->schema() != nullptr && use.user->op().writes_argument(use.index)) {
        visit_node(*use.user);
      }
    }
  }

  void visit_definition(const Value& value) {
    const Node& node = *value.node();
    if (node.opcode() != Opcode::kIf) {
      visit_node(node.opcode() == Opcode::kParam ? *node.owning_block()->owner() : node);
      return;
    }
    visit(node.input(0));
    for (const Block* block : node.blocks()) {
      visit(block->returns()[value.offset()]);
    }
  }

  void visit_node(const Node& node) {
    const bool reads_no_elements =
        node.op().reads == Reads::kMetadata || node.opcode() == Opcode::kIs || node.opcode() == Opcode::kIsNot;
    for (const Value* input : node.inputs()) {
      if (!reads_no_elements || !holds_tensors(*input->type())) {
        visit(input);
      }
    }
    for (const Block* block : node.blocks()) {
      for (const Value* output : block->returns()) {
        visit(output);
      }
    }
  }

  const Graph& graph_;
  std::unordered_set<const Value*> visited_;
  Positions found_;
};

// Returns the backward of a rule for runs that autograd does not record.
std::unique_ptr<Graph> unrecorded_backward(const OpGradient& rule) {
  std::unique_ptr<Graph> backward = rule.backward->clone();
  if (Value* records = backward->inputs().back(); records->has_uses()) {
    records->replace_all_uses_with(backward->insert_constant(false, backward->body().first()));
  }
  fold_constant_branches(*backward);
  return backward;
}

// Returns the arguments and results whose elements the rule reads for the gradient of an argument.
Positions positions_that_rule_reads(const OpGradient& rule, const Op& op, size_t argument) {
  if (rule.backward == nullptr) {
    return {};  // it is composed of operators with texts
  }
  const std::unique_ptr<Graph> unrecorded = unrecorded_backward(rule);
  const Graph& backward = *unrecorded;
  const Node* tuple = backward.outputs()[0]->node();
  Positions read = argument < tuple->inputs().size() ? ReadInputs(backward).of(tuple->input(argument)) : Positions{};
  const size_t arguments = op.schema->arguments().size();
  std::erase_if(read, [&](size_t position) {
    return position >= arguments + op.schema->returns().size() ||
           (position < arguments && !holds_tensors(*op.schema->arguments()[position].type()));
  });
  return read;
}

void bump_versions(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    torch::autograd::impl::bump_version(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      bump_versions(element);
    }
  }
}

// How the elements of arguments lie in memory.
enum class Strides : uint8_t { kGiven, kFirstTwoExchanged, kLastOutermost };

// Returns a tensor of equal elements; itself if it has too few dimensions.
at::Tensor laid_out(const at::Tensor& tensor, Strides strides) {
  const int64_t rank = tensor.dim();
  if (strides == Strides::kGiven || rank < 2) {
    return tensor;
  }
  return strides == Strides::kFirstTwoExchanged ? tensor.transpose(0, 1).clone(at::MemoryFormat::Contiguous).transpose(0, 1)
                                                : tensor.movedim(-1, 0).clone(at::MemoryFormat::Contiguous).movedim(0, -1);
}

// Returns whether eager's backward raises when the argument or result at the position was written since forward. Only
// the argument `leaf` requires a gradient. Nothing where no result depends on it.
std::optional<bool> eager_saves(const GradientCase& each, size_t leaf, size_t position, Strides strides = Strides::kGiven) {
  Values all = each.arguments(2);
  for (c10::IValue& value : all) {
    if (value.isTensor() && value.toTensor().defined()) {
      value = laid_out(value.toTensor(), strides);
    }
  }
  all[leaf].toTensor().requires_grad_(true);
  const Values results = testing::call_operator(*each.op, all);
  all.insert(all.end(), results.begin(), results.end());
  std::vector<at::Tensor> outputs;
  for (const c10::IValue& result : results) {
    if (result.toTensor().requires_grad()) {
      outputs.push_back(result.toTensor());
    }
  }
  if (outputs.empty()) {
    return std::nullopt;
  }
  std::vector<at::Tensor> grads;
  std::ranges::transform(outputs, std::back_inserter(grads), [](const at::Tensor& output) { return at::ones_like(output); });
  bump_versions(all[position]);
  try {
    torch::autograd::grad(outputs, {all[leaf].toTensor()}, grads, std::nullopt, /*create_graph=*/false,
                          /*allow_unused=*/true);
    return false;
  } catch (const std::exception& error) {
    if (message_of(error).find("modified by an inplace operation") == std::string::npos) {
      throw;
    }
    return true;
  }
}

bool may_require_gradient(const GradientCase& each, size_t position) {
  Values all = each.arguments(2);
  all[position].toTensor().requires_grad_(true);
  try {
    testing::call_operator(*each.op, all);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

TEST(SavedValues, ARuleReadsNoTensorThatLibTorchsFormulaDoesNotRead) {
  struct Reads {
    Positions saved;  // by LibTorch
    std::set<const OpGradient*> rules;
  };
  std::map<std::pair<const Op*, size_t>, Reads> reads_of;  // by operator and argument, over all cases
  for (const GradientCase& each : testing::gradient_cases()) {
    const Values arguments = each.arguments(2);
    for (const size_t leaf : testing::floating_positions(arguments)) {
      if (!may_require_gradient(each, leaf)) {
        continue;
      }
      Reads& found = reads_of[{each.op, leaf}];
      if (const OpGradient* rule = testing::rule_of(*each.op, arguments)) {
        found.rules.insert(rule);
      }
      for (size_t position = 0; position < arguments.size() + each.op->schema->returns().size(); ++position) {
        if (eager_saves(each, leaf, position).value_or(false)) {
          found.saved.insert(position);
        }
      }
    }
  }
  size_t reads = 0;
  for (const auto& [key, found] : reads_of) {
    const auto& [op, argument] = key;
    for (const OpGradient* rule : found.rules) {
      for (const size_t position : positions_that_rule_reads(*rule, *op, argument)) {
        ++reads;
        EXPECT_TRUE(found.saved.contains(position))
            << op->name << "." << op->schema->overload_name() << ": the gradient of argument " << argument << " reads value "
            << position << " of the arguments and results";
      }
    }
  }
  EXPECT_GT(reads, 150U);
}

// A rule reads the operand itself where LibTorch may have saved a copy: differentiable subgraphs do not take these operators
// if the operand is written later (autodiff/select/operands_copied_by_autograd.h).
TEST(SavedValues, LibTorchCopiesOperandsOfFiveOperatorsAlone) {
  std::set<std::string> copying;
  for (const GradientCase& each : testing::gradient_cases()) {
    const Values arguments = each.arguments(2);
    const OpGradient* rule = testing::rule_of(*each.op, arguments);
    for (const size_t leaf : testing::floating_positions(arguments)) {
      if (rule == nullptr || !may_require_gradient(each, leaf)) {
        continue;
      }
      for (const size_t position : positions_that_rule_reads(*rule, *each.op, leaf)) {
        const bool is_saved = position < arguments.size() && eager_saves(each, leaf, position).value_or(false);
        for (const Strides strides : {Strides::kFirstTwoExchanged, Strides::kLastOutermost}) {
          if (is_saved && !eager_saves(each, leaf, position, strides).value_or(true)) {
            copying.insert(std::string(each.op->name));
          }
        }
      }
    }
  }
  EXPECT_EQ(copying, (std::set<std::string>{"aten::group_norm", "aten::instance_norm", "aten::linear", "aten::matmul",
                                            "aten::scaled_dot_product_attention"}));
}

// A saved value that shared memory with a result would change with it.
TEST(SavedValues, ForwardTextsSaveNoPartOfArgumentsAndResults) {
  size_t saved_tensors = 0;
  testing::for_every_case([&](const GradientCase& each, int64_t n) {
    Values all = each.arguments(n);
    const testing::ForwardPass pass = testing::run_forward(*each.op, all);
    all.insert(all.end(), pass.results.begin(), pass.results.end());
    for (const c10::IValue& saved : pass.saved) {
      saved_tensors += saved.isTensor() ? 1 : 0;
      for (const c10::IValue& other : all) {
        EXPECT_FALSE(saved.isTensor() && other.isTensor() && other.isAliasOf(saved)) << each.text;
      }
    }
  });
  EXPECT_GT(saved_tensors, 20U);
}

}  // namespace
}  // namespace sconce
