#include "fusion/kernel_program_writer.h"

#include "fusion/program/operators.h"

#include <algorithm>

namespace sconce {

c10::ScalarType type_of_number(const c10::IValue& number) {
  return number.isDouble() ? at::kDouble : number.isBool() ? at::kBool : at::kLong;
}

KernelProgramWriter::KernelProgramWriter(const NodeGroup& group, const KernelArguments& arguments, const GroupShapes& shapes)
    : group_(group), arguments_(arguments), shapes_(shapes) {
  for (size_t i = 0; i < group.operands.size(); ++i) {
    position_[group.operands[i]] = i;
  }
}

std::optional<Element> KernelProgramWriter::write(const Value& value) {
  const auto argument = argument_of(value, {});
  return argument ? std::optional(argument->value) : std::nullopt;
}

std::optional<ElementArgument> KernelProgramWriter::argument_of(const Value& value, const ViewChain& views) {
  if (const auto found = known_.find({&value, views}); found != known_.end()) {
    return found->second;
  }
  auto argument = write_argument(value, views);
  if (argument) {
    argument->is_zero_dim = argument->kind == ElementArgument::Kind::kTensor && shapes_.sizes_of(value).empty();
    known_[{&value, views}] = *argument;
  }
  return argument;
}

// An element of a view is an element of what it views. So the program has no views: its operands are read through them.
std::optional<ElementArgument> KernelProgramWriter::write_argument(const Value& value, const ViewChain& views) {
  if (const auto position = position_.find(&value); position != position_.end()) {
    return arguments_.is_tensor(position->second) || views.empty() ? operand(position->second, views)
                                                                   : argument_of(value, {});
  }
  if (value.node()->opcode() == Opcode::kConstant) {
    return ElementArgument{.constant = *value.constant()};
  }
  const Value* base = viewed_by(value);
  if (base == nullptr && may_copy(*value.node())) {
    return argument_of(*value.node()->input(0), views);
  }
  if (base == nullptr) {
    return computed(*value.node(), views);
  }
  ViewChain chain = {&value};
  chain.insert(chain.end(), views.begin(), views.end());
  return argument_of(*base, chain);
}

std::optional<ElementArgument> KernelProgramWriter::operand(size_t position, const ViewChain& views) {
  if (!arguments_.is_tensor(position)) {
    const c10::IValue& number = arguments_.value(position);
    const c10::ScalarType type = type_of_number(number);
    numbers_.push_back(position);
    return ElementArgument{ElementArgument::Kind::kNumber,
                           builder_.number(static_cast<uint32_t>(numbers_.size() - 1), type)};
  }
  const at::Tensor& tensor = arguments_.tensor(position);
  // When a view reads an element in the place of another, the kernel may have written it.
  const bool is_written = std::any_of(group_.writes.begin(), group_.writes.end(),
                                      [&](const NodeGroup::Write& write) { return write.operand == position; });
  if (!is_kernel_type(tensor.scalar_type()) || (is_written && !views.empty())) {
    return std::nullopt;
  }
  operands_.push_back({position, views});
  return ElementArgument{.kind = ElementArgument::Kind::kTensor,
                         .value = builder_.load(static_cast<uint32_t>(operands_.size() - 1), tensor.scalar_type()),
                         .is_wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number()};
}

// Returns whether LibTorch may convert an operand to the dtype of others before it looks at strides, and the copy has other
// strides.
bool KernelProgramWriter::may_be_converted(const Node& node, const std::vector<ElementArgument>& operands) const {
  const auto& declared = node.schema()->arguments();
  auto type = c10::ScalarType::Undefined;
  bool differs = false;
  bool are_dense = true;
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool is_condition = declared[i].name() == "condition" || declared[i].name() == "mask";
    if (operands[i].kind == ElementArgument::Kind::kTensor && !operands[i].is_zero_dim && !is_condition) {
      differs = differs || (type != c10::ScalarType::Undefined && type != operands[i].value.type);
      type = operands[i].value.type;
      are_dense = are_dense && is_dense({shapes_.sizes_of(*node.input(i)), shapes_.strides_of(*node.input(i))});
    }
  }
  return differs && !are_dense;
}

std::optional<ElementArgument> KernelProgramWriter::computed(const Node& node, const ViewChain& views) {
  std::vector<ElementArgument> operands;
  for (const Value* input : node.inputs()) {
    auto operand = argument_of(*input, views);
    if (!operand) {
      return std::nullopt;
    }
    operands.push_back(std::move(*operand));
  }
  if (!writes_in_place(node) && may_be_converted(node, operands)) {
    return std::nullopt;
  }
  const auto result = write_operator(builder_, node.op(), operands);
  return result ? std::optional(ElementArgument{.kind = ElementArgument::Kind::kTensor, .value = *result}) : std::nullopt;
}

}  // namespace sconce
