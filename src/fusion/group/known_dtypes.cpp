#include "fusion/group/known_dtypes.h"

#include "fusion/program/operators.h"
#include "fusion/program/reductions.h"

#include <algorithm>

namespace sconce {
namespace {

// Returns the argument as a rule sees it; nothing if its dtype is not known. A tensor of unknown rank has no dimensions if
// `unknown_is_zero_dim`.
std::optional<ElementArgument> known_argument(ProgramBuilder& builder, const Value& value, uint32_t position,
                                              bool unknown_is_zero_dim) {
  if (value.node()->opcode() == Opcode::kConstant && value.type()->kind() != c10::TypeKind::TensorType) {
    return ElementArgument{.constant = *value.constant()};
  }
  if (value.type()->kind() != c10::TypeKind::TensorType) {
    const auto type = value.type()->kind() == c10::TypeKind::FloatType ? at::kDouble : at::kLong;
    return ElementArgument{.kind = ElementArgument::Kind::kNumber, .value = builder.number(position, type)};
  }
  const TensorFacts* facts = value.facts();
  if (facts == nullptr || !facts->dtype) {
    return std::nullopt;
  }
  return ElementArgument{.kind = ElementArgument::Kind::kTensor,
                         .value = builder.load(position, *facts->dtype),
                         .is_zero_dim = facts->sizes ? facts->sizes->empty() : unknown_is_zero_dim,
                         .is_wrapped_number = facts->is_wrapped_number};
}

// Returns whether some operand is known to be on a device other than the CPU, whose kernels compute with float16.
bool is_on_device(const Node& node) {
  return std::any_of(node.inputs().begin(), node.inputs().end(), [](const Value* input) {
    const TensorFacts* facts = input->facts();
    return facts != nullptr && facts->device && !facts->device->is_cpu();
  });
}

bool is_written(ProgramBuilder& builder, const Node& node, const std::vector<ElementArgument>& arguments) {
  return write_operator(builder, node.op(), arguments) && (!builder.has_type(at::kHalf) || is_on_device(node));
}

bool is_refused(const Node& node, bool unknown_is_zero_dim) {
  ProgramBuilder builder;
  std::vector<ElementArgument> arguments;
  for (uint32_t i = 0; i < node.inputs().size(); ++i) {
    auto argument = known_argument(builder, *node.input(i), i, unknown_is_zero_dim);
    if (!argument) {
      return false;
    }
    if (argument->kind == ElementArgument::Kind::kTensor && !is_kernel_type(argument->value.type)) {
      return true;
    }
    arguments.push_back(std::move(*argument));
  }
  if (may_reduce(node.op())) {
    const TensorFacts* facts = node.input(0)->facts();
    if (facts != nullptr && facts->sizes) {
      const auto reduction = reduction_of(node, static_cast<int64_t>(facts->sizes->size()));
      return !reduction || reduction->dims.none() || !is_written(builder, node, arguments);
    }
  }
  return !is_written(builder, node, arguments);
}

}  // namespace

// The dtype to which operands are promoted depends on which of them have dimensions.
bool is_known_to_be_refused(const Node& node) { return is_refused(node, false) && is_refused(node, true); }

}  // namespace sconce
