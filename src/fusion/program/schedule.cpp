#include "fusion/program/schedule.h"

#include "fusion/program/cost_model.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace sconce {
namespace {

class Scheduler {
 public:
  explicit Scheduler(const KernelProgram& program) : program_(program) {}

  Schedule schedule() {
    for (const Instruction& each : program_.code) {
      place(each);
    }
    for (const KernelOutput& output : program_.outputs) {
      schedule_.passes = std::max(schedule_.passes, pass_of(output) + 1);
    }
    for (uint32_t i = 0; i < program_.code.size(); ++i) {
      if (is_reduction(program_.code[i].op)) {
        schedule_.passes = std::max(schedule_.passes, schedule_.stage[i]);
        find_buffers(program_.code[i].a, schedule_.stage[i] - 1);
      }
    }
    if (schedule_.passes == 1) {
      return std::move(schedule_);  // nothing is taken from an earlier pass
    }
    for (const KernelOutput& output : program_.outputs) {
      find_buffers(output.value, pass_of(output));
    }
    for (RowBuffer& buffer : schedule_.buffers) {
      buffer.output = output_for(buffer);
    }
    return std::move(schedule_);
  }

 private:
  void place(const Instruction& each) {
    bool is_of_row = each.op == MachineOp::kLoad ? program_.is_of_row(program_.inputs[each.index]) : true;
    uint32_t stage = 0;
    size_t cost = is_library_function(each.op) ? cost_model::kCostOfLibraryFunction : 1;
    for (const uint32_t operand : operands_of(each)) {
      // Bounded: costs of shared operands would grow exponentially.
      cost = std::min(cost + cost_[operand], cost_model::kCostOfLibraryFunction);
      is_of_row = is_of_row && schedule_.is_of_row[operand];
      stage = std::max(stage, schedule_.stage[operand]);
    }
    if (is_reduction(each.op)) {
      is_of_row = true;
      ++stage;
    }
    schedule_.is_of_row.push_back(is_of_row);
    schedule_.stage.push_back(stage);
    cost_.push_back(is_of_row ? 0 : cost);
    schedule_.is_cheap.push_back(cost_.back() <= cost_model::kMaxCostToRecompute);
  }

  // Returns the pass that stores an output. A value of the row is stored after the pass before.
  uint32_t pass_of(const KernelOutput& output) const {
    const uint32_t stage = schedule_.stage[output.value];
    return output.access == Access::kOne && stage > 0 ? stage - 1 : stage;
  }

  // Finds the values that `pass` needs for `value` and takes from an earlier pass.
  void find_buffers(uint32_t value, uint32_t pass) {
    if (schedule_.is_of_row[value] || !seen_.insert({value, pass}).second) {
      return;
    }
    // Columns have no buffers: what rows have in common is in registers.
    if (schedule_.stage[value] < pass && !schedule_.is_cheap[value] && program_.order != LoopOrder::kColumns) {
      if (!schedule_.buffer_of(value)) {
        schedule_.buffers.push_back({value, program_.code[value].type, std::nullopt});
      }
      last_read_[value] = std::max(last_read_[value], pass);
      find_buffers(value, schedule_.stage[value]);
      return;
    }
    for (const uint32_t operand : operands_of(program_.code[value])) {
      find_buffers(operand, pass);
    }
  }

  // Returns an output of the buffer's type that no other buffer takes and that is written when the buffer is last read.
  std::optional<uint32_t> output_for(const RowBuffer& buffer) {
    for (uint32_t i = 0; i < program_.outputs.size(); ++i) {
      const KernelOutput& output = program_.outputs[i];
      if (output.access == Access::kElements && output.type == buffer.type &&
          pass_of(output) >= last_read_.at(buffer.value) && taken_.insert(i).second) {
        return i;
      }
    }
    return std::nullopt;
  }

  const KernelProgram& program_;
  Schedule schedule_;
  std::vector<size_t> cost_;  // by instruction
  std::set<std::pair<uint32_t, uint32_t>> seen_;
  std::map<uint32_t, uint32_t> last_read_;
  std::set<uint32_t> taken_;
};

}  // namespace

std::optional<size_t> Schedule::buffer_of(uint32_t value) const {
  const auto found = std::ranges::find_if(buffers, [&](const RowBuffer& buffer) { return buffer.value == value; });
  return found == buffers.end() ? std::nullopt : std::optional(static_cast<size_t>(found - buffers.begin()));
}

Schedule schedule_of(const KernelProgram& program) { return Scheduler(program).schedule(); }

}  // namespace sconce
