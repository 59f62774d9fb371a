#include "fusion/program/operators.h"

#include "fusion/program/channels.h"
#include "fusion/program/reductions.h"
#include "fusion/program/rules/rule.h"
#include "load/compile_op_row.h"
#include "ops/in_place.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace sconce {
namespace {

using Arguments = std::span<const ElementArgument>;
using Kind = ElementArgument::Kind;

const RuleTable& rules() {
  static const RuleTable& table = []() -> const RuleTable& {
    RuleTable& rows = *new RuleTable;  // jobs may outlive static objects
    add_arithmetic_rules(rows);
    add_division_rules(rows);
    add_selection_rules(rows);
    add_function_rules(rows);
    add_activation_rules(rows);
    add_gradient_rules(rows);
    add_special_rules(rows);
    add_binary_rules(rows);
    add_rule(rows, "batch_norm", write_batch_norm);
    return rows;
  }();
  return table;
}

// ---- operators by their bodies --------------------------------------------------------------------------------------

// Returns the operator's body, compiled once.
const Graph& body_of(const Op& op) {
  static std::mutex mutex;
  static auto* const bodies = new std::unordered_map<const Op*, std::unique_ptr<Graph>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Graph>& body = (*bodies)[&op];
  if (body == nullptr) {
    body = compile_body(op);
  }
  return *body;
}

// Returns whether a body consists of operators that kernels compute.
bool is_of_elements(const Graph& body) {
  for (const Node* node : body.body().nodes()) {
    const bool is_known = node->opcode() == Opcode::kConstant || node->kind() == aten::type_as ||
                          (node->schema() != nullptr && node->outputs().size() == 1 && has_element_rule(node->op()));
    if (!is_known) {
      return false;
    }
  }
  return true;
}

// Rounds to bfloat16 or float16 once, at the end, as LibTorch's kernels do.
Result write_body(ProgramBuilder& builder, const Op& op, Arguments arguments) {
  const Graph& body = body_of(op);
  if (body.inputs().size() != arguments.size()) {
    return std::nullopt;
  }
  const bool took_default_dtype = std::exchange(builder.takes_default_dtype(), false);
  std::optional<c10::ScalarType> reduced;
  bool is_all_reduced = true;
  std::unordered_map<const Value*, ElementArgument> known;
  for (size_t i = 0; i < arguments.size(); ++i) {
    ElementArgument argument = arguments[i];
    if (argument.kind == Kind::kTensor) {
      if (c10::isReducedFloatingType(argument.value.type)) {
        reduced = reduced.value_or(argument.value.type);
      }
      is_all_reduced = is_all_reduced && argument.value.type == reduced;
      argument.value = builder.convert(argument.value, compute_type(argument.value.type));
    }
    known[body.inputs()[i]] = argument;
  }
  if (reduced && !is_all_reduced) {
    return std::nullopt;
  }
  for (const Node* node : body.body().nodes()) {
    if (node->kind() == prim::Constant) {
      known[node->output()] = {.constant = *node->output()->constant()};
      continue;
    }
    if (node->schema() == nullptr || node->outputs().size() != 1) {
      return std::nullopt;
    }
    std::vector<ElementArgument> operands;
    for (const Value* input : node->inputs()) {
      operands.push_back(known.at(input));
    }
    // `type_as` restores the dtype that a `where` with numbers may have widened; elements have it already.
    const bool is_type_as = node->kind() == aten::type_as;
    const Result result = is_type_as ? Result(builder.convert(operands[0].value, operands[1].value.type))
                                     : write_operator(builder, node->op(), operands);
    if (!result) {
      return std::nullopt;
    }
    const bool is_zero_dim = std::ranges::all_of(
        operands, [](const ElementArgument& operand) { return operand.kind != Kind::kTensor || operand.is_zero_dim; });
    known[node->output()] = {.kind = Kind::kTensor, .value = *result, .is_zero_dim = is_zero_dim};
  }
  // Bodies are for floating operands; LibTorch raises for others.
  if (std::exchange(builder.takes_default_dtype(), took_default_dtype)) {
    return std::nullopt;
  }
  const Element result = known.at(body.outputs()[0]).value;
  return reduced && result.type == at::kFloat ? builder.convert(result, *reduced) : result;
}

// Returns the element as a tensor of the target's dtype holds it; nothing where LibTorch does not convert it.
Result written_over(ProgramBuilder& builder, Element element, const ElementArgument& target) {
  return target.kind == Kind::kTensor && c10::canCast(element.type, target.value.type)
             ? Result(builder.convert(element, target.value.type))
             : std::nullopt;
}

}  // namespace

bool has_element_rule(const Op& op) {
  if (op.schema == nullptr || op.schema->is_mutable()) {
    return false;
  }
  if (rules().contains(op.schema->operator_name()) || may_reduce(op)) {
    return true;
  }
  return !op.body.empty() && is_of_elements(body_of(op));
}

const Op& op_of_elements(const Op& op) {
  if (op.schema == nullptr || !op.schema->is_mutable()) {
    return op;
  }
  static std::mutex mutex;
  static auto* const found = new std::unordered_map<const Op*, const Op*>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [known, is_new] = found->try_emplace(&op, &op);
  if (is_new) {
    const Op* const variant = rules().contains(op.schema->operator_name()) ? nullptr : find_out_of_place(op);
    known->second = variant != nullptr && has_element_rule(*variant) && !may_reduce(*variant) ? variant : &op;
  }
  return *known->second;
}

bool may_write_in_place(const Op& op) {
  // float_power_ asks for a tensor of the dtype that the result has, where others convert the result.
  return op.schema != nullptr && op.schema->is_mutable() && op.kind != aten::float_power_ &&
         (&op_of_elements(op) != &op || rules().contains(op.schema->operator_name()));
}

bool is_operand_of_iterator(const Op& op, size_t argument) {
  const c10::Argument& declared = op.schema->arguments()[argument];
  return declared.type()->kind() == c10::TypeKind::NumberType && (declared.name() == "self" || declared.name() == "other");
}

ResultForm result_form_of(const Op& op) {
  static const auto* const others = new std::unordered_map<c10::OperatorName, ResultForm>{
      {{"aten::to", "dtype"}, ResultForm::kSame},
      {{"aten::_to_copy", ""}, ResultForm::kSame},
      {{"aten::clone", ""}, ResultForm::kSame},
      {{"aten::rsub", "Tensor"}, ResultForm::kReversedOperands},
      {{"aten::rsub", "Scalar"}, ResultForm::kReversedOperands},
      {{"aten::leaky_relu_backward", ""}, ResultForm::kReversedOperands},
      {{"aten::threshold_backward", ""}, ResultForm::kReversedOperands},
      {{"aten::pow", "Scalar"}, ResultForm::kContiguous},
      {{"aten::log_sigmoid", ""}, ResultForm::kContiguous},
      {{"aten::masked_fill", "Scalar"}, ResultForm::kContiguous},
      {{"aten::masked_fill", "Tensor"}, ResultForm::kContiguous},
  };
  const auto found = others->find(op.schema->operator_name());
  return found == others->end() ? ResultForm::kOperands : found->second;
}

bool needs_equal_operands(const Op& op) {
  return op.kind == aten::to || op.kind == aten::_to_copy || op.kind == aten::clone || op.kind == aten::gelu_backward ||
         op.kind == aten::log_sigmoid_backward || op.kind == aten::ldexp || op.kind == aten::float_power;
}

bool casts_to_other_dtype(const Node& node) {
  if (node.kind() != aten::to) {
    return false;
  }
  const TensorFacts* facts = node.input(0)->facts();
  const auto* dtype = node.input(1)->constant();
  return facts != nullptr && facts->dtype && dtype != nullptr && dtype->isInt() &&
         static_cast<int64_t>(*facts->dtype) != dtype->toInt();
}

std::optional<Element> write_operator(ProgramBuilder& builder, const Op& op, Arguments arguments) {
  if (const Op& elements = op_of_elements(op); &elements != &op) {
    const auto result = write_operator(builder, elements, arguments);
    return result ? written_over(builder, *result, arguments[0]) : std::nullopt;
  }
  RuleArguments given(builder, arguments);
  if (!given.accepts_numbers()) {
    return std::nullopt;
  }
  const auto rule = rules().find(op.schema->operator_name());
  if (rule != rules().end()) {
    return rule->second(given);
  }
  if (may_reduce(op)) {
    return write_reduction(given, op);
  }
  return op.body.empty() ? std::nullopt : write_body(builder, op, arguments);
}

}  // namespace sconce
