#include "fusion/llvm_text.h"

#include "base/assert.h"
#include "fusion/llvm_writer.h"

#include <array>

namespace sconce {
namespace {

// Writes the code of one element of each lane: once for full vectors, once under a mask.
class Body {
 public:
  Body(LlvmWriter& writer, const KernelProgram& program, std::string index, std::string mask)
      : w(writer), program_(program), index_(std::move(index)), mask_(std::move(mask)) {}

  void write() {
    for (const Instruction& each : program_.code) {
      values_.push_back(value_of(each));
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      store(i);
    }
  }

 private:
  std::string value_of(const Instruction& each) {
    const std::array<std::string, 3> operands = {operand(each, 0), operand(each, 1), operand(each, 2)};
    switch (each.op) {
      case MachineOp::kLoad: return load(each);
      case MachineOp::kNumber: return "%number" + std::to_string(each.index);
      case MachineOp::kLiteral: return w.literal(each);
      case MachineOp::kConvert: return w.convert(operands[0], program_.code[each.a].type, each.type);
      default: return w.compute(each.op, program_.code[each.op == MachineOp::kSelect ? each.b : each.a].type, operands);
    }
  }

  std::string operand(const Instruction& each, size_t i) const {
    const std::array<uint32_t, 3> numbers = {each.a, each.b, each.c};
    return i < operand_count(each.op) ? values_[numbers[i]] : "";
  }

  std::string load(const Instruction& each) {
    const std::string k = std::to_string(each.index);
    switch (program_.inputs[each.index].access) {
      case Access::kOne: return "%one" + k;
      case Access::kElements: return w.from_memory(w.load(each.type, address(each.index, each.type), mask_), each.type);
      case Access::kStrided: {
        const std::string first = w.value("mul i64 " + index_ + ", %stride" + k);
        const std::string offsets = w.value("add " + w.vector("i64") + " " + w.splat("i64", first) + ", %lane_offsets" + k);
        const std::string addresses = w.value("getelementptr i8, ptr %p" + k + ", " + w.vector("i64") + " " + offsets);
        return w.from_memory(w.gather(each.type, addresses, mask_), each.type);
      }
    }
    return "";
  }

  void store(size_t output) {
    const auto [type, value] = program_.outputs[output];
    w.store(type, w.to_memory(values_[value], type), address(program_.inputs.size() + output, type), mask_);
  }

  std::string address(size_t operand, c10::ScalarType type) {
    return w.value("getelementptr " + LlvmWriter::memory_type(type) + ", ptr %p" + std::to_string(operand) + ", i64 " +
                   index_);
  }

  LlvmWriter& w;
  const KernelProgram& program_;
  const std::string index_;
  const std::string mask_;  // empty: all lanes
  std::vector<std::string> values_;
};

class Function {
 public:
  Function(const KernelProgram& program, size_t lanes)
      : w(lanes), program_(program), operands_(program.inputs.size() + program.outputs.size()) {}

  std::string text() {
    write_entry();
    write_row_head();
    const std::string lanes = std::to_string(w.lanes());
    w.line("head:");
    w.line("%i = phi i64 [ 0, %row ], [ %after, %body ]");
    w.line("%after = add i64 %i, " + lanes);
    w.line("%fits = icmp ule i64 %after, %elements");
    w.line("br i1 %fits, label %body, label %tail");
    w.line("body:");
    Body(w, program_, "%i", "").write();
    w.line("br label %head");
    w.line("tail:");
    w.line("%is_left = icmp ult i64 %i, %elements");
    w.line("br i1 %is_left, label %rest, label %row_end");
    w.line("rest:");
    const std::string left = w.value("sub i64 %elements, %i");
    const std::string narrow = w.value("trunc i64 " + left + " to i32");
    const std::string mask =
        w.value("icmp ult " + w.vector("i32") + " " + w.lane_numbers("i32") + ", " + w.splat("i32", narrow));
    Body(w, program_, "%i", mask).write();
    w.line("br label %row_end");
    write_row_end();
    return w.module("define void @" + std::string(kKernelFunctionName) +
                    "(ptr %operands, ptr %steps, ptr %numbers, i64 %rows, i64 %elements)");
  }

 private:
  void write_entry() {
    w.line("entry:");
    for (size_t k = 0; k < operands_; ++k) {
      const std::string n = std::to_string(k);
      w.line("%at" + n + " = getelementptr ptr, ptr %operands, i64 " + n);
      w.line("%first" + n + " = load ptr, ptr %at" + n);
      w.line("%step_at" + n + " = getelementptr i64, ptr %steps, i64 " + n);
      w.line("%step" + n + " = load i64, ptr %step_at" + n);
      if (is_strided(k)) {
        w.line("%stride_at" + n + " = getelementptr i64, ptr %steps, i64 " + std::to_string(operands_ + k));
        w.line("%stride" + n + " = load i64, ptr %stride_at" + n);
        w.line("%lane_offsets" + n + " = mul " + w.vector("i64") + " " + w.lane_numbers("i64") + ", " +
               w.splat("i64", "%stride" + n));
      }
    }
    for (size_t k = 0; k < program_.numbers.size(); ++k) {
      const std::string n = std::to_string(k);
      const c10::ScalarType type = program_.numbers[k];
      const bool is_float = c10::isFloatingType(type);
      w.line("%number_at" + n + " = getelementptr i64, ptr %numbers, i64 " + n);
      w.line("%number_in" + n + " = load " + std::string(is_float ? "double" : "i64") + ", ptr %number_at" + n);
      const std::string all = w.splat(is_float ? "double" : "i64", "%number_in" + n);
      w.name("%number" + n, w.convert(all, is_float ? at::kDouble : at::kLong, type), LlvmWriter::register_type(type));
    }
    w.line("br label %row");
  }

  void write_row_head() {
    w.line("row:");
    w.line("%r = phi i64 [ 0, %entry ], [ %next_row, %row_end ]");
    for (size_t k = 0; k < operands_; ++k) {
      const std::string n = std::to_string(k);
      w.line("%p" + n + " = phi ptr [ %first" + n + ", %entry ], [ %next" + n + ", %row_end ]");
    }
    for (size_t k = 0; k < program_.inputs.size(); ++k) {
      const auto [type, access] = program_.inputs[k];
      if (access == Access::kOne) {
        const std::string one =
            w.value("load " + LlvmWriter::memory_type(type) + ", ptr %p" + std::to_string(k) + ", align 1");
        w.name("%one" + std::to_string(k), w.from_memory(w.splat(LlvmWriter::memory_type(type), one), type),
               LlvmWriter::register_type(type));
      }
    }
    w.line("br label %head");
  }

  void write_row_end() {
    w.line("row_end:");
    w.line("%next_row = add i64 %r, 1");
    for (size_t k = 0; k < operands_; ++k) {
      const std::string n = std::to_string(k);
      w.line("%next" + n + " = getelementptr i8, ptr %p" + n + ", i64 %step" + n);
    }
    w.line("%more = icmp ult i64 %next_row, %rows");
    w.line("br i1 %more, label %row, label %exit");
    w.line("exit:");
    w.line("ret void");
  }

  bool is_strided(size_t k) const { return k < program_.inputs.size() && program_.inputs[k].access == Access::kStrided; }

  LlvmWriter w;
  const KernelProgram& program_;
  const size_t operands_;
};

}  // namespace

std::string llvm_text(const KernelProgram& program, size_t lanes) { return Function(program, lanes).text(); }

}  // namespace sconce
