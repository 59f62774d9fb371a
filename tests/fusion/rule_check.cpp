#include "tests/fusion/rule_check.h"
#include "tests/support/part.h"

#include "fusion/program/channels.h"
#include "fusion/program/kernel_width.h"
#include "fusion/program/operators.h"
#include "fusion/program/reductions.h"
#include "ops/op.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

namespace sconce::testing {
namespace {

// The values that arguments other than tensors take, by the argument's name.
std::vector<c10::IValue> choices_for(const c10::Argument& argument) {
  const double infinity = std::numeric_limits<double>::infinity();
  const c10::IValue none;
  static const std::map<std::string, std::vector<c10::IValue>> choices = {
      {"alpha", {1, 2, -1, 0.3}},
      {"approximate", {"none", "tanh"}},
      {"beta", {1, 2, 0.5}},
      {"end", {2}},
      {"eps", {none, 0.1, 0.0}},
      {"exponent", {2, 3, 0.5, -0.5, -1, -2, 0, 1, 2.5, -3, 4, 2.0}},
      {"input_scale", {1, 1.5}},
      {"is_result", {false, true}},
      {"lambd", {0.5, 1, 0, std::nan("")}},
      {"max", {none, 1, 2.5, 0, -2, std::nan(""), std::nan("")}},
      {"max_val", {1, 2.5, 6}},
      {"memory_format", {none, static_cast<int64_t>(c10::MemoryFormat::Preserve)}},
      {"min", {-1, none, 0.5, 0, 1, -infinity, std::nan(""), none, std::nan("")}},
      {"min_val", {-1, 0.5, 0}},
      {"nan", {none, 1.5}},
      {"neginf", {none, none, -2.5}},
      {"non_blocking", {false}},
      {"n", {2, 7}},
      {"negative_slope", {0.01, 0.5, -0.3}},
      {"other", {2, 2.5, -3, 0, 0.1, 16777217}},
      {"posinf", {none, 2.5, none}},
      {"rounding_mode", {none, "trunc", "floor"}},
      {"scale", {1, 1.5}},
      {"self", {2, 2.5, -1, 0, 1}},
      {"self_is_result", {false}},
      {"threshold", {0.5, 20, 0}},
      {"value", {1, 0.5, -2, 0, infinity}},
      {"weight", {0.3, 0.7, 0.5, 1}},
      {"x", {0.3, -1.5}},
  };
  const auto found = choices.find(argument.name());
  EXPECT_NE(found, choices.end()) << "no values for " << argument.name();
  std::vector<c10::IValue> allowed = found == choices.end() ? std::vector<c10::IValue>{none} : found->second;
  if (argument.type()->kind() != c10::TypeKind::OptionalType) {
    std::erase_if(allowed, [](const c10::IValue& value) { return value.isNone(); });
  }
  for (c10::IValue& value : allowed) {
    if (argument.type()->kind() == c10::TypeKind::FloatType && value.isInt()) {
      value = static_cast<double>(value.toInt());
    }
  }
  return allowed;
}

bool is_condition(const c10::Argument& argument) { return argument.name() == "condition" || argument.name() == "mask"; }

std::vector<c10::IValue> copies_of(const std::vector<c10::IValue>& given) {
  std::vector<c10::IValue> copies;
  for (const c10::IValue& value : given) {
    copies.push_back(value.isTensor() ? c10::IValue(value.toTensor().clone()) : value);
  }
  return copies;
}

void forget_results_of_nan(const std::vector<c10::IValue>& given, at::Tensor got, at::Tensor expected) {
  for (const c10::IValue& value : given) {
    if (value.isTensor() && value.toTensor().is_floating_point()) {
      const at::Tensor is_nan = value.toTensor().isnan();
      got.masked_fill_(is_nan, 0);
      expected.masked_fill_(is_nan, 0);
    }
  }
}

// Forgets where one result of finite operands is NaN.
void forget_overflow(const std::vector<c10::IValue>& given, at::Tensor got, at::Tensor expected) {
  at::Tensor overflows = expected.isnan() | got.isnan();
  for (const c10::IValue& value : given) {
    if (value.isTensor()) {
      overflows = overflows & value.toTensor().isfinite();
    }
  }
  got.masked_fill_(overflows, 0);
  expected.masked_fill_(overflows, 0);
}

at::Tensor first_tensor(const std::vector<c10::IValue>& given) {
  for (const c10::IValue& value : given) {
    if (value.isTensor()) {
      return value.toTensor();
    }
  }
  return at::Tensor();
}

std::string element_at(const std::vector<c10::IValue>& given, const at::Tensor& got, const at::Tensor& expected, int64_t i) {
  if (i < 0) {
    return "";
  }
  std::ostringstream text;
  text.precision(17);
  const auto element = [&](const at::Tensor& tensor) {
    return tensor.expand(expected.sizes()).reshape({-1})[i].to(at::kDouble).item<double>();
  };
  text << " at " << i << ": kernel " << element(got) << ", eager " << element(expected) << ", of";
  for (const c10::IValue& value : given) {
    if (value.isTensor()) {
      text << " " << element(value.toTensor());
    } else {
      text << " " << value;
    }
  }
  return text.str();
}

}  // namespace

std::vector<c10::OperatorHandle> operators_with_rules() {
  std::vector<c10::OperatorHandle> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    // Operators that reduce rows, those with weights of channels, and casts have tests of their own.
    if (handle && handle->schema().name() != "aten::to" && handle->schema().name() != "aten::_to_copy" &&
        has_element_rule(op_of(handle->schema())) && !may_reduce(op_of(handle->schema())) &&
        !is_of_channels(op_of(handle->schema()), 1)) {
      found.push_back(*handle);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return toString(a.operator_name()) < toString(b.operator_name()); });
  return found;
}

std::vector<c10::OperatorHandle> operators_in_part() {
  std::vector<c10::OperatorHandle> found = operators_with_rules();
  std::erase_if(found, [part = part_of_run()](const c10::OperatorHandle& op) {
    const RuleRow* const row = find_rule_row(op.operator_name());
    return row != nullptr && !part.has(static_cast<uint64_t>(row - rule_rows().data()));
  });
  return found;
}

std::vector<c10::OperatorHandle> operators_in_place() {
  std::vector<c10::OperatorHandle> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (handle && may_write_in_place(op_of(handle->schema()))) {
      found.push_back(*handle);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return toString(a.operator_name()) < toString(b.operator_name()); });
  return found;
}

bool is_tensor_argument(const c10::Argument& argument) {
  const std::string type = argument.type()->str();
  return type == "Tensor" || type == "Tensor?" || type == "Optional[Tensor]";
}

std::optional<OperatorCall> variant_of(const c10::OperatorHandle& op, size_t v, bool gives_numbers) {
  OperatorCall call{op, {}, {}};
  size_t variants = 1;
  bool has_number = false;
  for (const c10::Argument& argument : op.schema().arguments()) {
    call.constants.emplace_back();
    call.types.emplace_back("Tensor");
    if (is_tensor_argument(argument)) {
      continue;
    }
    const std::vector<c10::IValue> choices = choices_for(argument);
    variants = std::max(variants, choices.size());
    const c10::IValue choice = choices[v % choices.size()];
    if (gives_numbers && argument.type()->kind() == c10::TypeKind::NumberType && (choice.isInt() || choice.isDouble())) {
      call.types.back() = choice.isInt() ? "int" : "float";
      has_number = true;
    } else {
      call.constants.back() = choice;
    }
  }
  return v < variants && (!gives_numbers || has_number) ? std::optional(call) : std::nullopt;
}

std::vector<c10::IValue> arguments_for(const OperatorCall& call, const std::vector<at::ScalarType>& dtypes, size_t variant,
                                       const std::function<at::Tensor(at::Tensor, size_t)>& shaped, int64_t count) {
  std::vector<c10::IValue> given;
  size_t tensors = 0;
  for (size_t i = 0; i < call.constants.size(); ++i) {
    if (call.constants[i]) {
      continue;
    }
    const c10::Argument& argument = call.op.schema().arguments()[i];
    if (!is_tensor_argument(argument)) {
      given.push_back(choices_for(argument)[variant % choices_for(argument).size()]);
      continue;
    }
    const bool is_mask = is_condition(argument);
    const at::ScalarType dtype = is_mask ? at::kBool : dtypes[std::min(tensors, dtypes.size() - 1)];
    at::Tensor values = special_values(count, dtype, i, 7 + static_cast<uint64_t>(count));
    if (argument.name() == "n" && dtype != at::kBool) {
      values = values.clamp(dtype == at::kByte ? 0 : -2, 20);  // the degree of a polynomial: LibTorch counts up to it
    }
    if (call.op.schema().name() == "aten::lcm" && dtype != at::kBool) {
      values = values.clamp_min(dtype == at::kByte ? 0 : -1000);  // LibTorch's quotient of the smallest integer traps
    }
    // The value that fills must have no dimensions.
    const bool is_zero_dim = argument.name() == "value";
    given.emplace_back(is_zero_dim ? special_values(12, dtype, 0)[11] : shaped(values, i));
    tensors += is_mask ? 0 : 1;
  }
  return given;
}

at::Tensor as_it_is(at::Tensor values, size_t /*position*/) { return values; }

std::optional<bool> may_differ(const OperatorCall& call, const std::vector<c10::IValue>& given) {
  ProgramBuilder builder;
  std::vector<ElementArgument> arguments;
  uint32_t next = 0;
  for (const auto& constant : call.constants) {
    if (constant) {
      arguments.push_back({.constant = *constant});
    } else if (given.at(next).isTensor()) {
      const at::Tensor& tensor = given[next].toTensor();
      arguments.push_back({.kind = ElementArgument::Kind::kTensor,
                           .value = builder.load(next, tensor.scalar_type()),
                           .is_zero_dim = tensor.dim() == 0});
    } else {
      const at::ScalarType type = given[next].isInt() ? at::kLong : at::kDouble;
      arguments.push_back({.kind = ElementArgument::Kind::kNumber, .value = builder.number(next, type)});
    }
    next += constant ? 0 : 1;
  }
  const auto result = write_operator(builder, op_of(call.op.schema()), arguments);
  return result ? std::optional(builder.may_differ()) : std::nullopt;
}

RuleCheck::RuleCheck(const OperatorCall& call, size_t lanes)
    : call_(call),
      kernel_(call, lanes),
      row_(find_rule_row(op_of_elements(op_of(call.op.schema())).schema->operator_name())) {}

bool RuleCheck::compare(const std::vector<c10::IValue>& given) {
  const bool writes = call_.op.schema().is_mutable();
  const std::vector<c10::IValue> theirs = writes ? copies_of(given) : given;
  const std::vector<c10::IValue> own = writes ? copies_of(given) : given;
  const Outcome expected = run_eager(call_, theirs);
  static_cast<void>(kernel_.run(writes ? copies_of(given) : given));  // no group is prepared for long if each call is new
  const Outcome got = kernel_.run(own);
  const bool ran = kernel_.ran_kernel();
  if (!expected.result || !got.result) {
    EXPECT_EQ(expected.result.has_value(), got.result.has_value())
        << described(given) << "eager: " << expected.error << "\nkernel: " << got.error;
    return false;
  }
  if (!ran) {
    return false;
  }
  if (writes) {
    EXPECT_TRUE(got.result->is_same(own[0].toTensor())) << described(given);
    EXPECT_EQ(got.result->_version(), expected.result->_version()) << described(given);
  }
  EXPECT_EQ(got.result->scalar_type(), expected.result->scalar_type()) << described(given);
  EXPECT_EQ(got.result->sizes(), expected.result->sizes()) << described(given);
  EXPECT_EQ(got.result->strides(), expected.result->strides()) << described(given);
  const at::Tensor first = first_tensor(given);
  Distance allowed = row_ == nullptr ? Distance() : distance_for(*row_, expected.result->scalar_type());
  if (row_ != nullptr && row_->name == "igamma" && kernel_lanes() == kAvx2Lanes) {
    allowed.ulps *= 4;  // LibTorch's own results for AVX2 lie that far from those for AVX-512
  }
  if (!may_differ(call_, given).value_or(true)) {
    allowed.ulps = 0;  // LibTorch's own operations: `exact` keeps the program
  }
  if (allowed.any_of_nan) {
    forget_results_of_nan(given, *got.result, *expected.result);
  }
  if (allowed.any_overflow) {
    forget_overflow(given, *got.result, *expected.result);
  }
  int64_t where = -1;
  const double distance = distance_between(*got.result, *expected.result, first, allowed, &where);
  if (distance > allowed.ulps) {
    ADD_FAILURE() << described(given) << distance << " ulps, allowed " << allowed.ulps
                  << element_at(given, *got.result, *expected.result, where);
  }
  return true;
}

std::string RuleCheck::described(const std::vector<c10::IValue>& given) const {
  std::ostringstream text;
  text << toString(call_.op.operator_name());
  size_t next = 0;
  for (const auto& constant : call_.constants) {
    const c10::IValue& value = constant ? *constant : given[next++];
    if (value.isTensor()) {
      text << " " << value.toTensor().scalar_type() << value.toTensor().sizes() << "/" << value.toTensor().strides();
    } else {
      text << (constant ? " =" : " ") << value;
    }
  }
  return text.str() + ": ";
}

}  // namespace sconce::testing
