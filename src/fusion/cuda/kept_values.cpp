#include "fusion/cuda/grids.h"

#include <array>

namespace sconce {
namespace {

class KeptValues {
 public:
  KeptValues(const KernelProgram& program, const Schedule& schedule)
      : program_(program), schedule_(schedule), last_reader_(program.code.size()), readers_(program.code.size()) {}

  std::vector<uint32_t> find() {
    for (pass_ = 1; pass_ <= schedule_.passes; ++pass_) {
      for (uint32_t i = 0; i < program_.code.size(); ++i) {
        if (is_reduction(program_.code[i].op) && schedule_.stage[i] == pass_) {
          visit(program_.code[i].a);
        }
      }
      for (const KernelOutput& output : program_.outputs) {
        if (output.access != Access::kOne && schedule_.stage[output.value] + 1 == pass_) {
          visit(output.value);
        }
      }
      for (const RowBuffer& buffer : schedule_.buffers) {
        if (schedule_.stage[buffer.value] + 1 == pass_) {
          visit_operands(buffer.value);
        }
      }
    }
    std::vector<uint32_t> kept;
    for (uint32_t i = 0; i < program_.code.size(); ++i) {
      if (schedule_.buffer_of(i) || readers_[i] > 1) {
        kept.push_back(i);
      }
    }
    return kept;
  }

 private:
  // A number of 16 bits is kept as the one that it is converted to.
  bool is_loaded_number(uint32_t value) const {
    const Instruction& each = program_.code[value];
    const bool is_converted = each.op == MachineOp::kConvert && program_.code[each.a].op == MachineOp::kLoad;
    return (each.op == MachineOp::kLoad || is_converted) && !c10::isReducedFloatingType(each.type) && each.type != at::kBool;
  }

  void visit(uint32_t value) {
    if (schedule_.is_of_row[value] || schedule_.buffer_of(value) || last_reader_[value] == pass_) {
      return;
    }
    last_reader_[value] = pass_;
    if (is_loaded_number(value)) {
      ++readers_[value];
      return;
    }
    visit_operands(value);
  }

  void visit_operands(uint32_t value) {
    const Instruction& each = program_.code[value];
    const std::array<uint32_t, 3> operands = {each.a, each.b, each.c};
    for (size_t i = 0; i < operand_count(each.op); ++i) {
      visit(operands[i]);
    }
  }

  const KernelProgram& program_;
  const Schedule& schedule_;
  uint32_t pass_ = 0;                  // from 1
  std::vector<uint32_t> last_reader_;  // by instruction: a pass
  std::vector<uint32_t> readers_;      // by instruction: how many passes
};

}  // namespace

std::vector<uint32_t> kept_values(const KernelProgram& program, const Schedule& schedule) {
  return KeptValues(program, schedule).find();
}

}  // namespace sconce
