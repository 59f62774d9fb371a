#include "fusion/cuda/grid_writer.h"

namespace sconce {

void GridWriter::store_at(LoopVariable address, const Variables& values) {
  LoopStatement statement{.op = LoopOp::kStore, .operands = {address}};
  statement.operands.insert(statement.operands.end(), values.begin(), values.end());
  append(std::move(statement));
}

LoopWriter::Variables GridWriter::load_at(LoopVariable address, c10::ScalarType type, uint32_t count) {
  LoopStatement statement{.op = LoopOp::kLoad, .operands = {address}};
  for (uint32_t i = 0; i < count; ++i) {
    statement.results.push_back(variable(type));
  }
  append(statement);
  return statement.results;
}

GridWriter::Space GridWriter::read_space() {
  Space space;
  space.sizes.push_back(next_word());
  for (uint32_t dim = 1; dim < form().dims; ++dim) {
    space.sizes.push_back(next_word());
  }
  for (uint32_t dim = 0; dim < form().dims; ++dim) {
    space.strides.emplace_back();
    for (size_t k = 0; k < operand_count(); ++k) {
      space.strides.back().push_back(next_word());
    }
  }
  if (form().has_segments) {
    space.segments = next_word();
    for (size_t k = 0; k < operand_count(); ++k) {
      space.segment_strides.push_back(next_word());
    }
  }
  space.reciprocals.resize(form().dims);
  for (size_t dim = first_divided_dim(form()); dim < form().dims; ++dim) {
    const LoopVariable multiplier = next_word();
    space.reciprocals[dim] = {multiplier, next_word()};
  }
  return space;
}

std::pair<LoopVariable, LoopVariable> GridWriter::divided(const Space& space, size_t dim, LoopVariable a) {
  const LoopVariable size = space.sizes[dim];
  const auto& reciprocal = space.reciprocals[dim];
  if (!reciprocal) {
    const LoopVariable quotient = index(LoopOp::kDivide, {a, size});
    return {quotient, index(LoopOp::kRemainder, {a, size})};
  }
  const LoopVariable quotient = index(LoopOp::kQuotient, {a, reciprocal->first, reciprocal->second});
  return {quotient, index(LoopOp::kSubtract, {a, multiply(quotient, size)})};
}

LoopWriter::Variables GridWriter::offsets_of(const Space& space, size_t dims, LoopVariable at) {
  Variables offsets(operand_count(), constant(0));
  for (size_t dim = dims; dim-- > 0;) {
    const auto [rest, place] = dim == 0 ? std::pair(at, at) : divided(space, dim, at);
    for (size_t k = 0; k < operand_count(); ++k) {
      const LoopVariable step = multiply(place, space.strides[dim][k]);
      offsets[k] = dim + 1 == dims ? step : add(offsets[k], step);
    }
    at = rest;
  }
  return offsets;
}

// Loads neighbors by one instruction where they lie side by side.
LoopWriter::Variables GridWriter::loaded(const Elements& elements, const Instruction& load) {
  const size_t operand = load.index;
  const Access access = program().access_of_operand(operand);
  const bool is_one = access == Access::kOne || elements.count == 1;
  LoopVariable offset = elements.places[operand];
  if (is_one || access == Access::kElements) {
    return load_at(address(operand, offset), load.type, is_one ? 1 : elements.count);
  }
  Variables results;
  for (uint32_t i = 0; i < elements.count; ++i) {
    offset = i == 0 ? offset : add(offset, elements.strides[operand]);
    results.push_back(load_at(address(operand, offset), load.type, 1)[0]);
  }
  return results;
}

void GridWriter::store(size_t operand, const Elements& elements, const Variables& values) {
  const bool is_one = program().access_of_operand(operand) == Access::kOne;
  Variables stored = values;
  stored.resize(is_one ? 1 : elements.count, values[0]);
  store_at(address(operand, elements.places[operand]), stored);
}

}  // namespace sconce
