#include "fusion/cpu/element_writer.h"

#include "fusion/cpu/llvm_text.h"
#include "fusion/program/scalar_functions.h"

#include <algorithm>
#include <array>

namespace sconce {

ElementWriter::ElementWriter(const KernelProgram& program, size_t lanes)
    : w_(lanes),
      program_(program),
      schedule_(schedule_of(program)),
      operands_(program.inputs.size() + program.outputs.size() + schedule_.buffers.size()) {}

std::string ElementWriter::module() const {
  return w_.module("define void @" + std::string(kKernelFunctionName) +
                   "(ptr %operands, ptr %steps, ptr %numbers, i64 %rows, i64 %elements, i64 %segments)");
}

void ElementWriter::write_entry() {
  w_.line("entry:");
  const auto load_step = [&](const char* name, size_t section, size_t k) {
    const std::string n = std::to_string(k);
    w_.line(named((std::string(name) + "_at").c_str(), k) + " = getelementptr i64, ptr %steps, i64 " +
            std::to_string(section * operands_ + k));
    w_.line(name + n + " = load i64, ptr " + name + "_at" + n);
  };
  const bool has_columns = program_.order == LoopOrder::kColumns;
  for (size_t k = 0; k < operands_; ++k) {
    const std::string n = std::to_string(k);
    const bool is_strided = k < program_.inputs.size() && program_.inputs[k].access == Access::kStrided;
    w_.line("%at" + n + " = getelementptr ptr, ptr %operands, i64 " + n);
    w_.line("%first" + n + " = load ptr, ptr %at" + n);
    // Lanes of columns take rows that lie side by side. Only a strided input asks how far apart its rows are.
    if (!has_columns || is_strided) {
      load_step("%row_step", 0, k);
    }
    if (has_columns || is_strided) {
      load_step("%element_step", 1, k);
    }
    if (program_.order != LoopOrder::kRows) {
      load_step("%segment_step", 2, k);
    }
    if (is_strided) {
      w_.line("%lane_offsets" + n + " = mul " + w_.vector("i64") + " " + w_.lane_numbers("i64") + ", " +
              w_.splat("i64", (has_columns ? "%row_step" : "%element_step") + n));
    }
  }
  for (size_t k = 0; k < program_.numbers.size(); ++k) {
    const std::string n = std::to_string(k);
    const bool is_float = c10::isFloatingType(program_.numbers[k]);
    const std::string type = is_float ? "double" : "i64";
    // A call gives each number as a double or an int64 (KernelFunction), a bool as an int64.
    w_.line("%number_at" + n + " = getelementptr i64, ptr %numbers, i64 " + n);
    w_.line("%number_in" + n + " = load " + type + ", ptr %number_at" + n);
    numbers_.push_back(
        w_.convert(w_.splat(type, "%number_in" + n), is_float ? at::kDouble : at::kLong, program_.numbers[k]));
  }
  w_.line("%length = mul i64 %elements, " + std::string(program_.order == LoopOrder::kRows ? "1" : "%segments"));
  w_.line("%length32 = uitofp i64 %length to float");
  w_.line("%length64 = uitofp i64 %length to double");
}

// ---- reductions

std::vector<uint32_t> ElementWriter::reductions_of(uint32_t pass) const {
  std::vector<uint32_t> reductions;
  for (uint32_t i = 0; i < program_.code.size(); ++i) {
    if (is_reduction(program_.code[i].op) && schedule_.stage[i] == pass + 1) {
      reductions.push_back(i);
    }
  }
  return reductions;
}

bool ElementWriter::are_cheap(const std::vector<uint32_t>& reductions) const {
  return std::ranges::all_of(reductions, [&](uint32_t reduction) { return schedule_.is_cheap[program_.code[reduction].a]; });
}

std::string ElementWriter::type_of(uint32_t reduction) const {
  return w_.vector(LlvmWriter::register_type(program_.code[reduction].type));
}

std::string ElementWriter::start_of(uint32_t reduction) const {
  // Reductions are of floating dtypes alone (reductions.cpp), of which a literal reads `literal`.
  return w_.literal({.op = MachineOp::kLiteral,
                     .type = program_.code[reduction].type,
                     .literal = neutral_element(program_.code[reduction].op)});
}

std::string ElementWriter::combined(uint32_t reduction, const std::string& a, const std::string& b) {
  return w_.compute(combining_op(program_.code[reduction].op), program_.code[reduction].type, {a, b, ""});
}

std::string ElementWriter::with_lanes_combined(uint32_t reduction, const std::string& value) {
  return w_.reduce_lanes(combining_op(program_.code[reduction].op), program_.code[reduction].type, value);
}

std::string ElementWriter::reduced(Vector& vector, uint32_t reduction, const std::string& so_far) {
  return combined(reduction, so_far, value_of(vector, program_.code[reduction].a));
}

void ElementWriter::define(const std::string& name, uint32_t reduction, const std::string& value) {
  // LLVM has no copy of a value: a bitcast to the same type is one.
  w_.line(name + " = bitcast " + type_of(reduction) + " " + value + " to " + type_of(reduction));
}

std::string ElementWriter::mask_of(const std::string& left) {
  // Less than a vector is left, so 32 bits hold the number.
  const std::string narrow = w_.value("trunc i64 " + left + " to i32");
  return w_.value("icmp ult " + w_.vector("i32") + " " + w_.lane_numbers("i32") + ", " + w_.splat("i32", narrow));
}

// ---- values

void ElementWriter::write_row_values(Vector& vector, uint32_t stage) {
  Values& of_row = *vector.of_row;
  for (uint32_t i = 0; i < program_.code.size(); ++i) {
    const Instruction& each = program_.code[i];
    // Operands come before what is computed of them, so all are known here. The loops have entered reductions themselves.
    if (schedule_.is_of_row[i] && schedule_.stage[i] == stage && !is_reduction(each.op)) {
      const auto numbers = operands_of(each);
      std::array<std::string, 3> operands;
      for (size_t k = 0; k < numbers.size(); ++k) {
        operands[k] = of_row.at(numbers[k]);
      }
      of_row[i] = computed(vector, each, operands);
    }
  }
  for (size_t k = 0; k < program_.outputs.size(); ++k) {
    const KernelOutput& output = program_.outputs[k];
    if (output.access != Access::kOne || !schedule_.is_of_row[output.value] || schedule_.stage[output.value] != stage) {
      continue;
    }
    const std::string lanes = w_.to_memory(of_row.at(output.value), output.type);
    const size_t operand = program_.inputs.size() + k;
    // In columns each lane has a row, and outputs of rows lie side by side. Else all lanes have the value of one row.
    if (program_.order == LoopOrder::kColumns) {
      w_.store(output.type, lanes, address(vector, operand, output.type), vector.mask);
    } else {
      const std::string element = LlvmWriter::memory_type(output.type);
      const std::string first = w_.value("extractelement " + w_.vector(element) + " " + lanes + ", i64 0");
      w_.line("store " + element + " " + first + ", ptr " + vector.pointers + std::to_string(operand) + ", align " +
              std::to_string(c10::elementSize(output.type)));
    }
  }
}

std::string ElementWriter::computed(Vector& vector, const Instruction& each, const std::array<std::string, 3>& operands) {
  switch (each.op) {
    case MachineOp::kLoad: return load(vector, each);
    case MachineOp::kNumber: return numbers_[each.index];
    case MachineOp::kLiteral: return w_.literal(each);
    case MachineOp::kRowLength:
      return w_.splat(LlvmWriter::register_type(each.type), each.type == at::kDouble ? "%length64" : "%length32");
    case MachineOp::kConvert: return w_.convert(operands[0], program_.code[each.a].type, each.type);
    case MachineOp::kCall:
    case MachineOp::kCallOfTwo:
      return w_.call_for_each_lane(symbol_of(scalar_functions()[each.index], each.type), each.type, operand_count(each.op),
                                   operands);
    default: return w_.compute(each.op, program_.code[each.op == MachineOp::kSelect ? each.b : each.a].type, operands);
  }
}

// Writes what a value needs where it is first used, so that each pass computes only what it stores or reduces. What no
// buffer keeps of an earlier pass is computed again: it is cheap, or of columns, which have no buffers (schedule.cpp).
const std::string& ElementWriter::value_of(Vector& vector, uint32_t value) {
  if (schedule_.is_of_row[value]) {
    return vector.of_row->at(value);
  }
  if (const auto known = vector.values.find(value); known != vector.values.end()) {
    return known->second;
  }
  const Instruction& each = program_.code[value];
  const auto buffer = schedule_.buffer_of(value);
  std::string result;
  // The pass of its own stage computes the value, and write_stores keeps it.
  if (buffer && schedule_.stage[value] < vector.pass) {
    result =
        w_.from_memory(w_.load(each.type, address(vector, operand_of_buffer(*buffer), each.type), vector.mask), each.type);
  } else {
    const auto numbers = operands_of(each);
    std::array<std::string, 3> operands;
    for (size_t k = 0; k < numbers.size(); ++k) {
      operands[k] = value_of(vector, numbers[k]);
    }
    result = computed(vector, each, operands);
  }
  return vector.values[value] = result;
}

// ---- memory

std::string ElementWriter::load(const Vector& vector, const Instruction& each) {
  const std::string pointer = vector.pointers + std::to_string(each.index);
  switch (program_.inputs[each.index].access) {
    case Access::kElements:
      return w_.from_memory(w_.load(each.type, address(vector, each.index, each.type), vector.mask), each.type);
    case Access::kOne: {
      const std::string element = LlvmWriter::memory_type(each.type);
      const std::string one = w_.value("load " + element + ", ptr " + pointer + ", align 1");
      return w_.from_memory(w_.splat(element, one), each.type);
    }
    case Access::kStrided: break;
  }
  const std::string k = std::to_string(each.index);
  const std::string step = (program_.order == LoopOrder::kColumns ? "%row_step" : "%element_step") + k;
  // The address of lane j: pointer + (index + j) * step.
  const std::string first = w_.value("mul i64 " + vector.index + ", " + step);
  const std::string offsets = w_.value("add " + w_.vector("i64") + " " + w_.splat("i64", first) + ", %lane_offsets" + k);
  const std::string addresses = w_.value("getelementptr i8, ptr " + pointer + ", " + w_.vector("i64") + " " + offsets);
  return w_.from_memory(w_.gather(each.type, addresses, vector.mask), each.type);
}

// Computes all values first: an output may serve as a buffer that the value of another output is read from.
void ElementWriter::write_stores(Vector& vector) {
  struct Store {
    c10::ScalarType type;
    std::string value;
    std::string address;
  };
  std::vector<Store> stores;
  for (size_t k = 0; k < schedule_.buffers.size(); ++k) {
    const RowBuffer& buffer = schedule_.buffers[k];
    if (schedule_.stage[buffer.value] == vector.pass) {
      const std::string value = w_.to_memory(value_of(vector, buffer.value), buffer.type);
      stores.push_back({buffer.type, value, address(vector, operand_of_buffer(k), buffer.type)});
    }
  }
  for (size_t k = 0; k < program_.outputs.size(); ++k) {
    const KernelOutput& output = program_.outputs[k];
    if (output.access == Access::kElements && schedule_.stage[output.value] == vector.pass) {
      const std::string value = w_.to_memory(value_of(vector, output.value), output.type);
      stores.push_back({output.type, value, address(vector, program_.inputs.size() + k, output.type)});
    }
  }
  for (const Store& store : stores) {
    w_.store(store.type, store.value, store.address, vector.mask);
  }
}

std::string ElementWriter::address(const Vector& vector, size_t operand, c10::ScalarType type) {
  return w_.value("getelementptr " + LlvmWriter::memory_type(type) + ", ptr " + vector.pointers + std::to_string(operand) +
                  ", i64 " + vector.index);
}

size_t ElementWriter::operand_of_buffer(size_t buffer) const {
  const auto output = schedule_.buffers[buffer].output;
  return output ? program_.inputs.size() + *output : program_.inputs.size() + program_.outputs.size() + buffer;
}

}  // namespace sconce
