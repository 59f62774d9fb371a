#include "trace/sizes/view_offset.h"

#include "ir/constant_operands.h"

namespace sconce {
namespace {

// Returns the answer for the run that is traced, which becomes a guard; nothing if a number is unknown.
std::optional<bool> is_less(Dim a, Dim b, SymbolicSizes& sizes) {
  const auto left = sizes.arithmetic().example(a);
  const auto right = sizes.arithmetic().example(b);
  return left && right ? std::optional(sizes.decide(SizeGuard::Relation::kLess, a, b, *left < *right)) : std::nullopt;
}

// Returns the index along a dim of `size` that a bound of Python's means: it counts from the end if it is negative, and ends
// at the ends of the dim.
Dim bounded(Dim bound, Dim size, SymbolicSizes& sizes) {
  const auto is_negative = is_less(bound, Dim::known(0), sizes);
  const Dim index = is_negative && *is_negative ? sizes.arithmetic().add(size, bound) : bound;
  const auto is_before = is_negative && *is_negative ? is_less(index, Dim::known(0), sizes) : std::optional(false);
  const auto is_behind = is_negative && is_before ? is_less(size, index, sizes) : std::nullopt;
  if (!is_behind) {
    return Dim::unknown();
  }
  return *is_before ? Dim::known(0) : *is_behind ? size : index;
}

bool is_none(const AbstractValue& value) { return value.as_constant() != nullptr && value.as_constant()->isNone(); }

Dim bound_of(const AbstractValue& operand, Dim if_none, Dim size, SymbolicSizes& sizes) {
  return is_none(operand) ? if_none : operand.is_integer() ? bounded(operand.as_integer(), size, sizes) : Dim::unknown();
}

// Returns the dim that the node slices, selects from or cuts; nothing if the facts of its operand are unknown.
std::optional<size_t> dim_of(const AbstractValues& operands, const AbstractValue& dim) {
  const TensorFacts* base = operands[0].as_tensor();
  const auto number = base != nullptr && base->sizes ? dim.as_known_integer() : std::nullopt;
  return number ? position_among(base->sizes->size(), *number) : std::nullopt;
}

// Returns the length of each part that the node cuts from a dim of `size`. The last part may be shorter. Nothing if parts
// differ, and the operands tell how many there are.
std::optional<Dim> length_of_parts(const Node& node, const AbstractValues& operands, Dim size, SizeArithmetic& arithmetic) {
  if (node.opcode() == Opcode::kUnbind) {
    return Dim::known(1);
  }
  const bool is_count = node.named_input("chunks") != nullptr;
  const bool is_length = node.named_input("split_size") != nullptr && operands[1].as_sequence() == nullptr;
  if (!is_count && !is_length) {
    return std::nullopt;
  }
  const Dim number = operands[1].is_integer() ? operands[1].as_integer() : Dim::unknown();
  return is_length ? number
                   : arithmetic.floor_divide(arithmetic.subtract(arithmetic.add(size, number), Dim::known(1)), number);
}

// Returns the index along a dim of `size`, which the node cuts, at which part `part` begins.
Dim first_of_part(const Node& node, const AbstractValues& operands, Dim size, size_t part, SizeArithmetic& arithmetic) {
  if (const auto length = length_of_parts(node, operands, size, arithmetic)) {
    return arithmetic.multiply(Dim::known(static_cast<int64_t>(part)), *length);
  }
  const bool has_lengths = node.named_input("split_sizes") != nullptr || node.named_input("split_size") != nullptr;
  const AbstractValues* lengths = has_lengths ? operands[1].as_sequence() : nullptr;
  if (lengths == nullptr) {
    return Dim::unknown();
  }
  Dim first = Dim::known(0);
  for (size_t i = 0; i < part && i < lengths->size(); ++i) {
    first = (*lengths)[i].is_integer() ? arithmetic.add(first, (*lengths)[i].as_integer()) : Dim::unknown();
  }
  return first;
}

}  // namespace

std::optional<std::vector<Dim>> sizes_of_slice(const Node& node, const AbstractValues& operands, SymbolicSizes& sizes) {
  if (node.opcode() != Opcode::kSlice || operands.size() != 5 || operands[0].as_tensor() == nullptr) {
    return std::nullopt;
  }
  const auto dim = dim_of(operands, operands[1]);
  const auto step = operands[4].as_known_integer();
  if (!dim || !step || *step < 1) {
    return std::nullopt;
  }
  std::vector<Dim> result = *operands[0].as_tensor()->sizes;
  const Dim size = result[*dim];
  const Dim first = bound_of(operands[2], Dim::known(0), size, sizes);
  const Dim end = bound_of(operands[3], size, size, sizes);
  const auto is_empty = size.is_unknown() ? std::nullopt : is_less(end, first, sizes);
  if (!is_empty) {
    return std::nullopt;
  }
  SizeArithmetic& arithmetic = sizes.arithmetic();
  const Dim length = *is_empty ? Dim::known(0) : arithmetic.subtract(end, first);
  result[*dim] =
      *step == 1 ? length : arithmetic.floor_divide(arithmetic.add(length, Dim::known(*step - 1)), Dim::known(*step));
  return result;
}

std::optional<std::vector<Dim>> sizes_of_part(const Node& node, const AbstractValues& operands, size_t part, size_t count,
                                              SizeArithmetic& arithmetic) {
  const auto dim = node.op().cuts ? dim_of(operands, operands.back()) : std::nullopt;
  if (!dim) {
    return std::nullopt;
  }
  std::vector<Dim> result = *operands[0].as_tensor()->sizes;
  const Dim size = result[*dim];
  if (node.opcode() == Opcode::kUnbind) {
    result.erase(result.begin() + static_cast<std::ptrdiff_t>(*dim));
    return result;
  }
  const Dim end = part + 1 == count ? size : first_of_part(node, operands, size, part + 1, arithmetic);
  result[*dim] = arithmetic.subtract(end, first_of_part(node, operands, size, part, arithmetic));
  return result;
}

void guard_count_of_parts(const Node& node, const AbstractValues& operands, size_t count, SymbolicSizes& sizes) {
  const auto dim = dim_of(operands, operands.back());
  const Dim size = dim ? (*operands[0].as_tensor()->sizes)[*dim] : Dim::unknown();
  const auto length = length_of_parts(node, operands, size, sizes.arithmetic());
  if (!length) {
    return;
  }
  const Dim parts = Dim::known(static_cast<int64_t>(count));
  if (*length == Dim::known(1) && !size.is_unknown()) {
    sizes.pin(size, static_cast<int64_t>(count));
    return;
  }
  // The last part begins before the end, and no other would.
  const auto last = sizes.arithmetic().multiply(sizes.arithmetic().subtract(parts, Dim::known(1)), *length);
  if (!is_less(last, size, sizes) || !is_less(sizes.arithmetic().multiply(parts, *length), size, sizes)) {
    sizes.refuse_unknown();
  }
}

Dim view_offset(const Node& node, const AbstractValues& operands, Dim base_offset, size_t part, bool moves,
                SymbolicSizes& sizes) {
  SizeArithmetic& arithmetic = sizes.arithmetic();
  const TensorFacts* base = operands[0].as_tensor();
  const bool is_slice = node.opcode() == Opcode::kSlice;
  const bool is_select = node.opcode() == Opcode::kSelect;
  const bool is_cut = node.op().cuts && node.schema()->returns()[0].type()->kind() == c10::TypeKind::ListType;
  if (const auto given = node.op().argument_index("storage_offset")) {
    const AbstractValue& offset = operands[*given];
    return is_none(offset) ? base_offset : offset.is_integer() ? offset.as_integer() : Dim::unknown();
  }
  if (!is_slice && !is_select && !is_cut) {
    return moves ? Dim::unknown() : base_offset;
  }
  const auto dim = dim_of(operands, is_cut ? operands.back() : operands[1]);
  if (!dim || !base->strides) {
    return Dim::unknown();
  }
  const Dim index = is_cut ? first_of_part(node, operands, (*base->sizes)[*dim], part, arithmetic)
                           : bound_of(operands[2], Dim::known(0), (*base->sizes)[*dim], sizes);
  const Dim stride = (*base->strides)[*dim];
  return index.is_unknown() || stride.is_unknown() || base_offset.is_unknown()
             ? Dim::unknown()
             : arithmetic.add(base_offset, arithmetic.multiply(index, stride));
}

}  // namespace sconce
