#include "fusion/cuda/grid_writer.h"

#include <algorithm>
#include <array>

namespace sconce {
namespace {

constexpr c10::ScalarType kIndex = c10::ScalarType::Undefined;

}  // namespace

GridWriter::GridWriter(const KernelProgram& program, const GridForm& form) {
  grid_.program = program;
  grid_.form = form;
}

GridProgram GridWriter::take() {
  grid_.statements.insert(grid_.statements.begin(), first_.begin(), first_.end());
  return std::move(grid_);
}

GridVariable GridWriter::variable(c10::ScalarType type) {
  grid_.types.push_back(type);
  return static_cast<GridVariable>(grid_.types.size() - 1);
}

// ---- indices --------------------------------------------------------------------------------------------------------

GridVariable GridWriter::constant(int64_t number) {
  const auto [found, is_new] = constants_.try_emplace(number, 0);
  if (is_new) {
    found->second = variable(kIndex);
    first_.push_back({.op = GridOp::kConstant, .results = {found->second}, .number = number});
  }
  return found->second;
}

GridVariable GridWriter::next_word() {
  const GridVariable result = variable(kIndex);
  first_.push_back({.op = GridOp::kWord, .results = {result}, .number = static_cast<int64_t>(grid_.words++)});
  return result;
}

GridVariable GridWriter::index(GridOp op, std::initializer_list<GridVariable> operands, int64_t number) {
  return element(op, kIndex, operands, number);
}

GridVariable GridWriter::answer(GridOp op, std::initializer_list<GridVariable> operands) {
  return element(op, at::kBool, operands);
}

GridVariable GridWriter::begin_for(GridVariable first, GridVariable end, GridVariable step, bool is_rest) {
  return index(GridOp::kFor, {first, end, step}, is_rest ? 1 : 0);
}

// ---- elements -------------------------------------------------------------------------------------------------------

GridVariable GridWriter::element(GridOp op, c10::ScalarType type, std::initializer_list<GridVariable> operands,
                                 int64_t number) {
  const GridVariable result = variable(type);
  append({.op = op, .results = {result}, .operands = operands, .number = number});
  return result;
}

GridVariable GridWriter::compute(const Instruction& instruction, Variables operands) {
  const GridVariable result = variable(instruction.type);
  append({.op = GridOp::kCompute, .results = {result}, .operands = std::move(operands), .instruction = instruction});
  return result;
}

GridVariable GridWriter::combine(MachineOp op, c10::ScalarType type, GridVariable a, GridVariable b) {
  return compute({.op = op, .type = type}, {a, b});
}

void GridWriter::store_shared(GridVariable offset, const Variables& values) {
  GridStatement statement{.op = GridOp::kSharedStore, .operands = {offset}};
  statement.operands.insert(statement.operands.end(), values.begin(), values.end());
  append(std::move(statement));
}

GridWriter::Variables GridWriter::load_shared(GridVariable offset, c10::ScalarType type, uint32_t count) {
  GridStatement statement{.op = GridOp::kSharedLoad, .operands = {offset}};
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
    const GridVariable multiplier = next_word();
    space.reciprocals[dim] = {multiplier, next_word()};
  }
  return space;
}

std::pair<GridVariable, GridVariable> GridWriter::divided(const Space& space, size_t dim, GridVariable a) {
  const GridVariable size = space.sizes[dim];
  const auto& reciprocal = space.reciprocals[dim];
  if (!reciprocal) {
    const GridVariable quotient = index(GridOp::kDivide, {a, size});
    return {quotient, index(GridOp::kRemainder, {a, size})};
  }
  const GridVariable quotient = index(GridOp::kQuotient, {a, reciprocal->first, reciprocal->second});
  return {quotient, index(GridOp::kSubtract, {a, multiply(quotient, size)})};
}

GridWriter::Offsets GridWriter::offsets_of(const Space& space, size_t dims, GridVariable at) {
  Offsets offsets(operand_count(), constant(0));
  for (size_t dim = dims; dim-- > 0;) {
    const auto [rest, place] = dim == 0 ? std::pair(at, at) : divided(space, dim, at);
    for (size_t k = 0; k < operand_count(); ++k) {
      const GridVariable step = multiply(place, space.strides[dim][k]);
      offsets[k] = dim + 1 == dims ? step : add(offsets[k], step);
    }
    at = rest;
  }
  return offsets;
}

const GridWriter::Variables& GridWriter::values_of(Elements& elements, uint32_t instruction) {
  if (const auto found = elements.values.find(instruction); found != elements.values.end()) {
    return found->second;
  }
  Variables values = computed(elements, program().code[instruction]);
  return elements.values[instruction] = std::move(values);
}

GridWriter::Variables GridWriter::computed(Elements& elements, const Instruction& instruction) {
  switch (instruction.op) {
    case MachineOp::kLoad: return loaded(elements, instruction);
    case MachineOp::kNumber: return {element(GridOp::kParameter, instruction.type, {}, instruction.index)};
    case MachineOp::kRowLength: return {element(GridOp::kLength, instruction.type, {elements.row_length})};
    default: break;
  }
  const std::array<uint32_t, 3> ids = {instruction.a, instruction.b, instruction.c};
  std::vector<Variables> operands;
  size_t count = 1;
  for (size_t i = 0; i < sconce::operand_count(instruction.op); ++i) {
    operands.push_back(values_of(elements, ids[i]));
    count = std::max(count, operands.back().size());
  }
  Variables results;
  for (size_t i = 0; i < count; ++i) {
    Variables each;
    for (const Variables& operand : operands) {
      each.push_back(operand.size() == 1 ? operand[0] : operand[i]);
    }
    results.push_back(compute(instruction, std::move(each)));
  }
  return results;
}

// Loads neighbors by one instruction where they lie side by side.
GridWriter::Variables GridWriter::loaded(const Elements& elements, const Instruction& load) {
  const size_t operand = load.index;
  const Access access = program().access_of_operand(operand);
  const bool is_one = access == Access::kOne || elements.count == 1;
  Variables results;
  if (is_one || access == Access::kElements) {
    GridStatement statement{.op = GridOp::kLoad, .operands = {elements.offsets[operand]}};
    for (uint32_t i = 0; i < (is_one ? 1 : elements.count); ++i) {
      results.push_back(variable(load.type));
    }
    statement.results = results;
    statement.number = static_cast<int64_t>(operand);
    append(std::move(statement));
    return results;
  }
  GridVariable offset = elements.offsets[operand];
  for (uint32_t i = 0; i < elements.count; ++i) {
    offset = i == 0 ? offset : add(offset, elements.strides[operand]);
    results.push_back(element(GridOp::kLoad, load.type, {offset}, static_cast<int64_t>(operand)));
  }
  return results;
}

void GridWriter::store(size_t operand, const Elements& elements, const Variables& values) {
  const bool is_one = program().access_of_operand(operand) == Access::kOne;
  GridStatement statement{.op = GridOp::kStore, .operands = {elements.offsets[operand]}};
  for (uint32_t i = 0; i < (is_one ? 1 : elements.count); ++i) {
    statement.operands.push_back(values.size() == 1 ? values[0] : values[i]);
  }
  statement.number = static_cast<int64_t>(operand);
  append(std::move(statement));
}

}  // namespace sconce
