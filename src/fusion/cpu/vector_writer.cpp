#include "fusion/cpu/vector_writer.h"

#include <utility>

namespace sconce {

VectorWriter::VectorWriter(const KernelProgram& program, size_t lanes) : LoopWriter(program), lanes_(lanes) {
  const size_t operands = operand_count() + schedule_.buffers.size();
  const auto word = [&](size_t number) { return index(LoopOp::kWord, {}, static_cast<int64_t>(number)); };
  rows_ = word(0);
  elements_ = word(1);
  segments_ = word(2);
  loops_.words = 3 + 3 * operands;
  for (size_t k = 0; k < operands; ++k) {
    first_.places.push_back(index(LoopOp::kAddress, {}, static_cast<int64_t>(k)));
    row_steps_.push_back(word(3 + k));
    element_steps_.push_back(word(3 + operands + k));
    segment_steps_.push_back(word(3 + 2 * operands + k));
    first_.strides.push_back(has_columns() ? row_steps_[k] : element_steps_[k]);
    const bool is_strided = k < program.inputs.size() && program.inputs[k].access == Access::kStrided;
    lane_offsets_.push_back(is_strided ? multiply(thread_, first_.strides[k]) : thread_);
  }
  first_.row_length = program.order == LoopOrder::kRows ? elements_ : multiply(elements_, segments_);
  for (uint32_t i = 0; i < program.code.size(); ++i) {
    if (code(i).op == MachineOp::kNumber || code(i).op == MachineOp::kRowLength) {
      values_of(first_, i);
    }
  }
}

void VectorWriter::end_turns(LoopVariable turn, LoopVariable last, const Variables& addresses, const Variables& steps) {
  for (size_t k = 0; k < addresses.size(); ++k) {
    assign(addresses[k], add(addresses[k], steps[k]));
  }
  assign(turn, add(turn, constant(1)));
  end_loop(less(turn, last));
}

// ---- values

void VectorWriter::write_row_values(Vector& row, uint32_t stage) {
  compute_row_values(row, stage);
  for (size_t k = 0; k < program().outputs.size(); ++k) {
    const KernelOutput& output = program().outputs[k];
    if (output.access == Access::kOne && schedule_.stage[output.value] == stage) {
      const LoopVariable address = row.places[program().inputs.size() + k];
      const LoopVariable value = values_of(row, output.value)[0];
      // In columns each lane has a row, and outputs of rows lie side by side. Else all lanes have the value of one row.
      append(has_columns() ? LoopStatement{.op = LoopOp::kStoreLanes, .operands = {address, row.index, value}}
                           : LoopStatement{.op = LoopOp::kStoreOnce, .operands = {address, value}});
    }
  }
}

// Computes all values first: an output may serve as a buffer that the value of another output is read from.
void VectorWriter::write_elements(Vector vector, const Reductions& reductions, size_t part) {
  for (const auto& [instruction, parts] : reductions) {
    const LoopVariable value = values_of(vector, code(instruction).a)[0];
    assign(parts[part], combined(instruction, parts[part], value));
  }
  std::vector<std::pair<size_t, LoopVariable>> stores;  // operand and value
  for (size_t k = 0; k < schedule_.buffers.size(); ++k) {
    if (schedule_.stage[schedule_.buffers[k].value] == vector.pass) {
      stores.emplace_back(operand_of_buffer(k), values_of(vector, schedule_.buffers[k].value)[0]);
    }
  }
  for (const size_t k : outputs_of(vector.pass)) {
    stores.emplace_back(program().inputs.size() + k, values_of(vector, program().outputs[k].value)[0]);
  }
  for (const auto& [k, value] : stores) {
    append({.op = LoopOp::kStoreLanes, .operands = {vector.places[k], vector.index, value}});
  }
}

// What no buffer keeps of an earlier pass is computed again: it is cheap, or of columns, which have no buffers
// (schedule.cpp).
LoopWriter::Variables VectorWriter::computed(Elements& elements, uint32_t instruction) {
  const auto& vector = static_cast<const Vector&>(elements);
  const auto buffer = schedule_.buffer_of(instruction);
  // The pass of its own stage computes the value, and write_elements keeps it.
  if (buffer && schedule_.stage[instruction] < vector.pass) {
    const LoopVariable address = vector.places[operand_of_buffer(*buffer)];
    return {element(LoopOp::kLoadLanes, code(instruction).type, {address, vector.index})};
  }
  return LoopWriter::computed(elements, instruction);
}

LoopWriter::Variables VectorWriter::loaded(const Elements& elements, const Instruction& load) {
  const auto& vector = static_cast<const Vector&>(elements);
  const LoopVariable address = vector.places[load.index];
  switch (program().inputs[load.index].access) {
    case Access::kElements: return {element(LoopOp::kLoadLanes, load.type, {address, vector.index})};
    case Access::kOne: return {element(LoopOp::kLoad, load.type, {address})};
    case Access::kStrided: break;
  }
  const LoopVariable first = multiply(vector.index, vector.strides[load.index]);
  return {element(LoopOp::kLoad, load.type, {add(address, add(first, lane_offsets_[load.index]))})};
}

size_t VectorWriter::operand_of_buffer(size_t buffer) const {
  const auto output = schedule_.buffers[buffer].output;
  return output ? program().inputs.size() + *output : operand_count() + buffer;
}

}  // namespace sconce
