#include "shapes/size_rules.h"

#include "ir/constant_operands.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace sconce {
namespace {

std::optional<size_t> dim_among(size_t rank, const AbstractValue& dim) {
  const auto number = dim.as_known_integer();
  return number ? position_among(rank, *number) : std::nullopt;
}

}  // namespace

AbstractValue autocast_cast(const AbstractValues& operands) {
  const TensorFacts* operand = operands[0].as_tensor();
  const auto number = operands[1].as_known_integer();
  if (operand == nullptr || !operand->dtype || !operand->device || !number) {
    return {};
  }
  const auto dtype = static_cast<c10::ScalarType>(*number);
  TensorFacts facts = *operand;
  if (facts.device->is_cpu() && c10::isFloatingType(*facts.dtype) && facts.dtype != c10::kDouble && facts.dtype != dtype) {
    facts.dtype = dtype;
    facts.forget_strides();
  }
  facts.defined.reset();
  return AbstractValue::tensor(std::move(facts));
}

std::optional<AbstractValue> tensor_property(const Node& node, const AbstractValues& operands, SizeArithmetic& arithmetic) {
  const TensorFacts* facts = operands.empty() ? nullptr : operands[0].as_tensor();
  if (facts == nullptr || node.outputs().size() != 1) {
    return std::nullopt;
  }
  const auto number = [](auto fact) { return fact ? AbstractValue::integer(static_cast<int64_t>(*fact)) : AbstractValue(); };
  switch (node.opcode()) {
    case Opcode::kDtype: return number(facts->dtype);
    case Opcode::kLayout: return number(facts->layout);
    case Opcode::kDevice: return facts->device ? AbstractValue::constant(*facts->device) : AbstractValue();
    case Opcode::kIsFloatingPoint:
      return AbstractValue::boolean(facts->dtype ? std::optional(c10::isFloatingType(*facts->dtype)) : std::nullopt);
    case Opcode::kRequiresGrad: return AbstractValue::boolean(facts->requires_grad);
    case Opcode::kIsCuda:
      return AbstractValue::boolean(facts->device ? std::optional(facts->device->is_cuda()) : std::nullopt);
    default: break;
  }
  if (!facts->sizes) {
    return std::nullopt;
  }
  if (node.opcode() == Opcode::kIsNested) {
    return AbstractValue::boolean(false);  // such tensors have no sizes
  }
  const auto& sizes = *facts->sizes;
  if (node.opcode() == Opcode::kNumel) {
    Dim product = Dim::known(1);
    for (const Dim size : sizes) {
      product = arithmetic.multiply(product, size);
    }
    return AbstractValue::integer(product);
  }
  switch (node.opcode()) {
    case Opcode::kDim: return AbstractValue::integer(static_cast<int64_t>(sizes.size()));
    case Opcode::kLength: return sizes.empty() ? AbstractValue() : AbstractValue::integer(sizes[0]);
    case Opcode::kSize: {
      if (operands.size() == 1) {
        AbstractValues all;
        for (const Dim size : sizes) {
          all.push_back(AbstractValue::integer(size));
        }
        return AbstractValue::sequence(std::move(all));
      }
      const auto dim = dim_among(sizes.size(), operands[1]);
      return dim ? AbstractValue::integer(sizes[*dim]) : AbstractValue();
    }
    default: return std::nullopt;
  }
}

std::optional<std::vector<Dim>> sizes_of_joined(const Node& node, const AbstractValues& operands,
                                                SizeArithmetic& arithmetic) {
  const bool is_stack = node.opcode() == Opcode::kStack;
  const AbstractValues* parts = operands.size() == 2 ? operands[0].as_sequence() : nullptr;
  if ((!is_stack && node.opcode() != Opcode::kCat) || parts == nullptr || parts->empty()) {
    return std::nullopt;
  }
  std::vector<const TensorFacts*> tensors;
  for (const AbstractValue& part : *parts) {
    tensors.push_back(part.as_tensor());
  }
  for (const TensorFacts* part : tensors) {
    // cat accepts an empty tensor of rank 1 with tensors of any rank.
    if (part == nullptr || !part->sizes || part->sizes->size() != tensors[0]->sizes->size() ||
        (!is_stack && part->sizes->size() < 2)) {
      return std::nullopt;
    }
  }
  std::vector<Dim> sizes = *tensors[0]->sizes;
  for (const TensorFacts* part : tensors) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = (*part->sizes)[i].is_known() ? (*part->sizes)[i] : sizes[i];  // all are equal except along the joined dim
    }
  }
  const auto dim = dim_among(sizes.size() + (is_stack ? 1 : 0), operands[1]);
  if (!dim) {
    return std::nullopt;
  }
  if (is_stack) {
    sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(*dim), Dim::known(static_cast<int64_t>(parts->size())));
    return sizes;
  }
  sizes[*dim] = Dim::known(0);
  for (const TensorFacts* part : tensors) {
    sizes[*dim] = arithmetic.add(sizes[*dim], (*part->sizes)[*dim]);
  }
  return sizes;
}

std::optional<std::vector<Dim>> sizes_of_indexed(const Node& node, const AbstractValues& operands,
                                                 SizeArithmetic& arithmetic) {
  if (node.opcode() != Opcode::kIndexed) {
    return std::nullopt;
  }
  const TensorFacts* self = operands[0].as_tensor();
  const AbstractValues* indices = operands[1].as_sequence();
  if (self == nullptr || !self->sizes || indices == nullptr || indices->size() > self->sizes->size()) {
    return std::nullopt;
  }
  std::vector<Dim> indexed;     // the sizes to which the indices broadcast
  std::optional<size_t> place;  // of these in the result: where the first index is
  std::optional<size_t> last;   // the position of the last index
  std::vector<Dim> sizes;       // the dimensions without an index
  for (size_t i = 0; i < self->sizes->size(); ++i) {
    const bool is_whole =
        i >= indices->size() || ((*indices)[i].as_constant() != nullptr && (*indices)[i].as_constant()->isNone());
    if (is_whole) {
      sizes.push_back((*self->sizes)[i]);
      continue;
    }
    const TensorFacts* index = (*indices)[i].as_tensor();
    if (index == nullptr || !index->sizes || !index->dtype || index->dtype == c10::kBool || index->dtype == c10::kByte) {
      return std::nullopt;
    }
    indexed = broadcast(indexed, *index->sizes, arithmetic);
    // Indices that are not side by side give the first dimensions.
    place = !place ? sizes.size() : last == i - 1 ? place : 0;
    last = i;
  }
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(place.value_or(0)), indexed.begin(), indexed.end());
  return sizes;
}

std::optional<std::vector<Dim>> sizes_of_reduced(const Node& node, const AbstractValues& operands) {
  const auto dim = node.op().argument_index("dim");
  const auto keepdim = node.op().argument_index("keepdim");
  const auto is_tensor = [](const AbstractValue& operand) { return operand.as_tensor() != nullptr; };
  const TensorFacts* self = operands.empty() ? nullptr : operands[0].as_tensor();
  if (!dim || !keepdim || node.schema()->arguments()[0].name() != "self" || self == nullptr || !self->sizes ||
      std::ranges::count_if(operands, is_tensor) > 1 || !operands[*keepdim].as_boolean()) {
    return std::nullopt;
  }
  const size_t rank = self->sizes->size();
  const AbstractValue& given = operands[*dim];
  const bool is_none = given.as_constant() != nullptr && given.as_constant()->isNone();
  const AbstractValues numbers = is_none                          ? AbstractValues()
                                 : given.as_sequence() != nullptr ? *given.as_sequence()
                                                                  : AbstractValues{given};
  if (numbers.empty() && !is_none) {
    return std::nullopt;
  }
  std::vector<bool> is_reduced(rank, is_none);
  for (const AbstractValue& number : numbers) {
    const auto place = dim_among(rank, number);
    if (!place) {
      return std::nullopt;
    }
    is_reduced[*place] = true;
  }
  std::vector<Dim> sizes;
  for (size_t i = 0; i < rank; ++i) {
    if (!is_reduced[i]) {
      sizes.push_back((*self->sizes)[i]);
    } else if (*operands[*keepdim].as_boolean()) {
      sizes.push_back(Dim::known(1));
    }
  }
  return sizes;
}

std::optional<std::vector<std::vector<Dim>>> sizes_of_parts(const Node& node, const AbstractValues& operands,
                                                            const c10::IValue& example) {
  const TensorFacts* whole = operands.empty() ? nullptr : operands[0].as_tensor();
  if (!node.op().cuts || whole == nullptr || !whole->sizes || !example.isTensorList()) {
    return std::nullopt;
  }
  const auto dim = dim_among(whole->sizes->size(), operands.back());
  const auto is_known = [](const AbstractValue& operand) { return operand.as_known_integer().has_value(); };
  const bool others_are_known = std::all_of(operands.begin() + 1, operands.end(), [&](const AbstractValue& operand) {
    const AbstractValues* numbers = operand.as_sequence();
    return numbers == nullptr ? is_known(operand) : std::all_of(numbers->begin(), numbers->end(), is_known);
  });
  if (!dim || !(*whole->sizes)[*dim].is_known() || !others_are_known || node.schema()->arguments().back().name() != "dim") {
    return std::nullopt;
  }
  std::vector<std::vector<Dim>> parts;
  for (const c10::IValue& part : example.toListRef()) {
    std::vector<Dim> sizes = *whole->sizes;
    if (node.opcode() == Opcode::kUnbind) {
      sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(*dim));
    } else {
      sizes[*dim] = Dim::known(part.toTensor().size(static_cast<int64_t>(*dim)));
    }
    parts.push_back(std::move(sizes));
  }
  return parts;
}

std::vector<Dim> broadcast(const std::vector<Dim>& a, const std::vector<Dim>& b, SizeArithmetic& arithmetic) {
  std::vector<Dim> longer = a.size() >= b.size() ? a : b;
  const std::vector<Dim>& shorter = a.size() >= b.size() ? b : a;
  for (size_t i = 0; i < shorter.size(); ++i) {
    Dim& size = longer[longer.size() - shorter.size() + i];
    size = arithmetic.broadcast(size, shorter[i]);
  }
  return longer;
}

}  // namespace sconce
