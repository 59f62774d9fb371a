#include "fusion/program/loop_writer.h"

#include <algorithm>

namespace sconce {
namespace {

constexpr c10::ScalarType kIndex = c10::ScalarType::Undefined;

}  // namespace

LoopProgram LoopWriter::take() {
  loops_.statements.insert(loops_.statements.begin(), first_.begin(), first_.end());
  return std::move(loops_);
}

LoopVariable LoopWriter::variable(c10::ScalarType type) {
  loops_.types.push_back(type);
  return static_cast<LoopVariable>(loops_.types.size() - 1);
}

// ---- indices --------------------------------------------------------------------------------------------------------

LoopVariable LoopWriter::constant(int64_t number) {
  const auto [found, is_new] = constants_.try_emplace(number, 0);
  if (is_new) {
    found->second = variable(kIndex);
    first_.push_back({.op = LoopOp::kConstant, .results = {found->second}, .number = number});
  }
  return found->second;
}

LoopVariable LoopWriter::next_word() {
  const LoopVariable result = variable(kIndex);
  first_.push_back({.op = LoopOp::kWord, .results = {result}, .number = static_cast<int64_t>(loops_.words++)});
  return result;
}

LoopVariable LoopWriter::index(LoopOp op, std::initializer_list<LoopVariable> operands, int64_t number) {
  return element(op, kIndex, operands, number);
}

LoopVariable LoopWriter::answer(LoopOp op, std::initializer_list<LoopVariable> operands) {
  return element(op, at::kBool, operands);
}

// ---- elements -------------------------------------------------------------------------------------------------------

LoopVariable LoopWriter::element(LoopOp op, c10::ScalarType type, std::initializer_list<LoopVariable> operands,
                                 int64_t number) {
  const LoopVariable result = variable(type);
  append({.op = op, .results = {result}, .operands = operands, .number = number});
  return result;
}

LoopVariable LoopWriter::compute(const Instruction& instruction, Variables operands) {
  const LoopVariable result = variable(instruction.type);
  append({.op = LoopOp::kCompute, .results = {result}, .operands = std::move(operands), .instruction = instruction});
  return result;
}

const LoopWriter::Variables& LoopWriter::values_of(Elements& elements, uint32_t instruction) {
  if (const auto found = elements.values.find(instruction); found != elements.values.end()) {
    return found->second;
  }
  Variables values = computed(elements, instruction);
  return elements.values[instruction] = std::move(values);
}

LoopWriter::Variables LoopWriter::computed(Elements& elements, uint32_t instruction) {
  const Instruction& each = code(instruction);
  switch (each.op) {
    case MachineOp::kLoad: return loaded(elements, each);
    case MachineOp::kNumber: return {element(LoopOp::kParameter, each.type, {}, each.index)};
    case MachineOp::kRowLength: return {element(LoopOp::kLength, each.type, {elements.row_length})};
    default: break;
  }
  std::vector<Variables> operands;
  size_t count = 1;
  for (const uint32_t operand : operands_of(each)) {
    operands.push_back(values_of(elements, operand));
    count = std::max(count, operands.back().size());
  }
  Variables results;
  for (size_t i = 0; i < count; ++i) {
    Variables of_neighbor;
    for (const Variables& operand : operands) {
      of_neighbor.push_back(operand.size() == 1 ? operand[0] : operand[i]);
    }
    results.push_back(compute(each, std::move(of_neighbor)));
  }
  return results;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

void LoopWriter::compute_row_values(Elements& row, uint32_t stage) {
  for (uint32_t i = 0; i < program().code.size(); ++i) {
    if (schedule_.is_of_row[i] && schedule_.stage[i] <= stage && !is_reduction(code(i).op)) {
      values_of(row, i);
    }
  }
}

std::vector<size_t> LoopWriter::outputs_of(uint32_t pass) const {
  std::vector<size_t> outputs;
  for (size_t k = 0; k < program().outputs.size(); ++k) {
    const KernelOutput& output = program().outputs[k];
    if (output.access != Access::kOne && schedule_.stage[output.value] == pass) {
      outputs.push_back(k);
    }
  }
  return outputs;
}

LoopWriter::Reductions LoopWriter::begin_reductions(uint32_t pass, size_t parts) {
  Reductions reductions;
  for (uint32_t i = 0; i < program().code.size(); ++i) {
    if (!is_reduction(code(i).op) || schedule_.stage[i] != pass + 1) {
      continue;
    }
    reductions.push_back({i, {}});
    for (size_t part = 0; part < parts; ++part) {
      // Reductions are of floating dtypes alone (reductions.cpp), of which a literal reads `literal`.
      const double neutral = neutral_element(code(i).op);
      reductions.back().parts.push_back(compute({.op = MachineOp::kLiteral, .type = code(i).type, .literal = neutral}, {}));
    }
  }
  return reductions;
}

LoopVariable LoopWriter::combined(uint32_t reduction, LoopVariable a, LoopVariable b) {
  const Instruction& each = code(reduction);
  return compute({.op = combining_op(each.op), .type = each.type}, {a, b});
}

LoopVariable LoopWriter::combined_over(uint32_t threads, uint32_t reduction, LoopVariable value) {
  for (uint32_t distance = threads / 2; distance > 0; distance /= 2) {
    value = combined(reduction, value, element(LoopOp::kShuffle, code(reduction).type, {value}, distance));
  }
  return value;
}

}  // namespace sconce
