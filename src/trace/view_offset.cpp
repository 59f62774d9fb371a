#include "trace/view_offset.h"

#include "ir/constant_operands.h"

namespace sconce {
namespace {

// Returns the first index along a dim of `size` that a start of Python's means: it counts from the end if it is negative.
Dim first_index(Dim start, Dim size, SizeArithmetic& arithmetic) {
  const auto is_negative = arithmetic.less(start, Dim::known(0));
  if (start.is_unknown() || !is_negative) {
    return Dim::unknown();
  }
  return *is_negative ? arithmetic.maximum(arithmetic.add(size, start), Dim::known(0)) : arithmetic.minimum(start, size);
}

// Returns the index along the dim that is cut at which a part begins.
Dim first_of_part(const Node& node, const AbstractValues& operands, size_t part, SizeArithmetic& arithmetic) {
  const Dim number = Dim::known(static_cast<int64_t>(part));
  if (node.opcode() == Opcode::kUnbind) {
    return number;
  }
  const AbstractValues* lengths = operands[1].as_sequence();
  if (lengths == nullptr) {
    return operands[1].is_integer() ? arithmetic.multiply(number, operands[1].as_integer()) : Dim::unknown();
  }
  Dim first = Dim::known(0);
  for (size_t i = 0; i < part && i < lengths->size(); ++i) {
    first = (*lengths)[i].is_integer() ? arithmetic.add(first, (*lengths)[i].as_integer()) : Dim::unknown();
    if (first.is_unknown()) {
      return first;
    }
  }
  return first;
}

}  // namespace

Dim view_offset(const Node& node, const AbstractValues& operands, Dim base_offset, size_t part, bool moves,
                SizeArithmetic& arithmetic) {
  const TensorFacts* base = operands[0].as_tensor();
  const bool is_slice = node.opcode() == Opcode::kSlice;
  const bool is_select = node.opcode() == Opcode::kSelect;
  const bool is_cut = node.op().cuts && node.schema()->returns()[0].type()->kind() == c10::TypeKind::ListType;
  if (!is_slice && !is_select && !is_cut) {
    return moves ? Dim::unknown() : base_offset;
  }
  const auto dim = base != nullptr && base->sizes && base->strides
                       ? (is_cut ? operands.back() : operands[1]).as_known_integer()
                       : std::nullopt;
  const auto place = dim ? position_among(base->sizes->size(), *dim) : std::nullopt;
  if (!place) {
    return Dim::unknown();
  }
  const Dim size = (*base->sizes)[*place];
  Dim index = Dim::known(0);
  if (is_cut) {
    index = first_of_part(node, operands, part, arithmetic);
  } else if (operands[2].is_integer()) {
    index = first_index(operands[2].as_integer(), size, arithmetic);
  } else if (operands[2].as_constant() == nullptr || !operands[2].as_constant()->isNone()) {
    index = Dim::unknown();
  }
  const Dim stride = (*base->strides)[*place];
  return index.is_unknown() || stride.is_unknown() || base_offset.is_unknown()
             ? Dim::unknown()
             : arithmetic.add(base_offset, arithmetic.multiply(index, stride));
}

}  // namespace sconce
