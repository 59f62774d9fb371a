#include "lower/parts_builder.h"

#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

bool may_be_tensor(const Value& value) {
  return value.type()->kind() == c10::TypeKind::TensorType ||
         (value.type()->kind() == c10::TypeKind::OptionalType && value.node()->opcode() != Opcode::kConstant &&
          value.type()->isSubtypeOf(*c10::OptionalType::ofTensor()));
}

}  // namespace

void PartsBuilder::add_operand(KernelStepParts& parts, const Value& value, size_t position, bool is_run_time,
                               bool in_list) const {
  using OperandSource = PreparedOperand::Source;
  // A group reads an attribute in place before the attribute has a register.
  const Register box = registers_.contains(&value) ? registers_.at(&value) : 0;
  PreparedOperand operand{OperandSource::kBox, box, static_cast<uint32_t>(position), in_list};
  operand.slot = places_.slot_of(value);
  if (operand.slot != StepPlacement::kNoSlot) {
    operand.source = OperandSource::kSlot;
  } else if (!may_be_tensor(value)) {
    operand.source = is_run_time                                   ? OperandSource::kRunTime
                     : in_list                                     ? OperandSource::kElement
                     : value.node()->opcode() == Opcode::kConstant ? OperandSource::kConstant
                                                                   : OperandSource::kValue;
  }
  if (places_.is_read_in_place(*value.node())) {
    operand.attribute = static_cast<uint32_t>(parts.attributes.size());
    parts.attributes.push_back(path_of(value));
  }
  operand.is_weight = operand.source == OperandSource::kBox && is_weight(value);
  operand.is_constant = value.node()->opcode() == Opcode::kConstant;
  parts.operands.push_back(operand);
}

void PartsBuilder::add_operands(KernelStepParts& parts, const PreparedNodes& unit) const {
  for (size_t i = 0; i < unit.op->inputs().size(); ++i) {
    const Value& input = *unit.op->input(i);
    if (places_.unit_of(*input.node()) == &unit) {
      for (const Value* element : input.node()->inputs()) {
        add_operand(parts, *element, i, /*is_run_time=*/false, /*in_list=*/true);
      }
    } else {
      add_operand(parts, input, i, i == unit.kernel->run_time_argument);
    }
  }
}

void PartsBuilder::add_result(KernelStepParts& parts, const Value& value, const std::vector<const Node*>& inside) const {
  bool is_boxed = false;
  for_each_user(value, [&](const Node& user) {
    is_boxed = is_boxed || (places_.unit_of(user) == nullptr && std::ranges::find(inside, &user) == inside.end());
  });
  PreparedResult result{registers_.at(&value), places_.slot_of(value), is_boxed, places_.is_reused(value)};
  const Value* const home = places_.home_of(value);
  if (home != nullptr && result.slot == PreparedResult::kNoSlot) {
    result.home = registers_.at(home);
  }
  parts.results.push_back(result);
}

void PartsBuilder::add_dropped(KernelStepParts& parts, const Node& node) const {
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const Value* input = node.input(i);
    const PreparedNodes* unit = places_.unit_of(*input->node());
    const bool is_of_unit = unit != nullptr && unit == places_.unit_of(node);  // exists between ordinary steps alone
    if (liveness_.is_last_use(node, i) && holds_memory(input->type()) && !places_.is_kept(*input) && !is_of_unit) {
      parts.dropped.push_back(registers_.at(input));
    }
  }
}

bool PartsBuilder::is_weight(const Value& value) const {
  const bool is_bound = value.node()->opcode() == Opcode::kParam && value.offset() >= first_bound_input_;
  return is_bound || places_.is_weight(value);
}

AttributePath PartsBuilder::path_of(const Value& value) const {
  const std::vector<const Node*> reads = places_.attribute_reads(value);
  AttributePath path{registers_.at(reads.front()->input(0)), {}};
  for (const Node* read : reads) {
    const auto& type = read->input(0)->type()->expectRef<c10::ClassType>();
    path.slots.push_back(static_cast<uint32_t>(type.getAttributeSlot(read->attribute_as<std::string>(attr::kName))));
  }
  return path;
}

}  // namespace sconce
