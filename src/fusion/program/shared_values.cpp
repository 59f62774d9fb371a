#include "fusion/program/shared_values.h"

#include "fusion/program/cost_model.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace sconce {
namespace {

size_t cost_of(MachineOp op) {
  return is_library_function(op)                                 ? cost_model::kCostOfLibraryFunction
         : op == MachineOp::kSqrt || op == MachineOp::kDiv       ? cost_model::kCostOfRoot
         : op == MachineOp::kLiteral || op == MachineOp::kNumber ? 0
                                                                 : 1;
}

class Splitting {
 public:
  Splitting(const KernelProgram& whole, const std::vector<bool>& is_of_all_rows)
      : whole_(whole), is_shared_(whole.code.size()), is_vector_(whole.code.size()) {
    for (size_t i = 0; i < whole.code.size(); ++i) {
      const Instruction& each = whole.code[i];
      const auto operands = operands_of(each);
      is_shared_[i] = each.op == MachineOp::kLoad ? is_of_all_rows[each.index]
                                                  : std::ranges::all_of(operands, [&](uint32_t k) { return is_shared_[k]; });
      is_vector_[i] = each.op == MachineOp::kLoad ? whole.inputs[each.index].access != Access::kOne
                                                  : std::ranges::any_of(operands, [&](uint32_t k) { return is_vector_[k]; });
    }
  }

  std::optional<SharedValues> run() {
    for (KernelOutput output : whole_.outputs) {
      output.value = of_rows(output.value);
      split_.rows.outputs.push_back(output);
    }
    if (cost_ < cost_model::kMinCostToShare) {
      return std::nullopt;
    }
    // The values come after the other inputs.
    for (const uint32_t value : loads_of_values_) {
      split_.rows.code[value].index += static_cast<uint32_t>(split_.inputs_of_rows.size());
    }
    for (const KernelOutput& value : split_.before.outputs) {
      split_.rows.inputs.push_back({value.type, Access::kElements});
    }
    split_.before.numbers = split_.rows.numbers = whole_.numbers;
    return std::move(split_);
  }

 private:
  using Numbers = std::vector<std::optional<uint32_t>>;

  // Returns whether the value is computed before the rows. One without an element for each column costs nothing there.
  bool is_before(uint32_t value) const {
    const Instruction& instruction = whole_.code[value];
    return is_shared_[value] && is_vector_[value] && operand_count(instruction.op) > 0 &&
           (instruction.type == c10::kFloat || instruction.type == c10::kDouble);
  }

  // Returns the value's number among the rows' instructions.
  uint32_t of_rows(uint32_t value) {
    if (numbers_of_rows_[value]) {
      return *numbers_of_rows_[value];
    }
    uint32_t number = 0;
    if (is_before(value)) {
      const c10::ScalarType type = whole_.code[value].type;
      const auto index = static_cast<uint32_t>(split_.before.outputs.size());
      split_.before.outputs.push_back({type, add_before(value)});
      number = push(split_.rows, {.op = MachineOp::kLoad, .type = type, .index = index});
      loads_of_values_.push_back(number);
    } else {
      Instruction instruction = whole_.code[value];
      copy(instruction, split_.rows, split_.inputs_of_rows, [this](uint32_t operand) { return of_rows(operand); });
      number = push(split_.rows, instruction);
    }
    numbers_of_rows_[value] = number;
    return number;
  }

  uint32_t add_before(uint32_t value) {
    if (!numbers_before_[value]) {
      Instruction instruction = whole_.code[value];
      cost_ += cost_of(instruction.op);
      copy(instruction, split_.before, split_.inputs_before, [this](uint32_t operand) { return add_before(operand); });
      numbers_before_[value] = push(split_.before, instruction);
    }
    return *numbers_before_[value];
  }

  // Lets a copied instruction read the operands and inputs of the program that it is copied to.
  template <typename NumberOf>
  void copy(Instruction& instruction, KernelProgram& program, std::vector<size_t>& inputs, const NumberOf& number_of) {
    const std::array<uint32_t*, 3> operands = {&instruction.a, &instruction.b, &instruction.c};
    for (size_t k = 0; k < operand_count(instruction.op); ++k) {
      *operands[k] = number_of(*operands[k]);
    }
    if (instruction.op == MachineOp::kLoad) {
      const auto found = std::ranges::find(inputs, instruction.index);
      const auto index = static_cast<uint32_t>(found - inputs.begin());
      if (found == inputs.end()) {
        inputs.push_back(instruction.index);
        program.inputs.push_back(whole_.inputs[instruction.index]);
      }
      instruction.index = index;
    }
  }

  static uint32_t push(KernelProgram& program, const Instruction& instruction) {
    program.code.push_back(instruction);
    return static_cast<uint32_t>(program.code.size() - 1);
  }

  const KernelProgram& whole_;
  std::vector<bool> is_shared_;  // by instruction: all rows compute the same
  std::vector<bool> is_vector_;  // there is one for each column
  Numbers numbers_of_rows_ = Numbers(whole_.code.size());
  Numbers numbers_before_ = Numbers(whole_.code.size());
  std::vector<uint32_t> loads_of_values_;  // among the rows' instructions
  size_t cost_ = 0;
  SharedValues split_;
};

int64_t rows_of(const Iteration& iteration) {
  return std::accumulate(iteration.sizes.begin(), iteration.sizes.end() - 1, int64_t{1}, std::multiplies<>());
}

Iteration with_inputs(const std::vector<size_t>& inputs, const Iteration& whole) {
  Iteration part;
  for (const size_t input : inputs) {
    part.strides.push_back(whole.strides[input]);
  }
  return part;
}

}  // namespace

std::vector<bool> inputs_of_all_rows(const KernelProgram& program, const Iteration& iteration) {
  if (iteration.order != LoopOrder::kRows || iteration.segments != 1 || rows_of(iteration) < cost_model::kMinRowsToShare ||
      iteration.sizes.back() < 2 || program.has_reductions()) {
    return {};
  }
  std::vector<bool> is_of_all_rows;
  for (size_t k = 0; k < program.inputs.size(); ++k) {
    bool is_same = true;
    for (size_t dim = 0; dim + 1 < iteration.sizes.size(); ++dim) {
      is_same = is_same && (iteration.strides[k][dim] == 0 || iteration.sizes[dim] == 1);
    }
    is_of_all_rows.push_back(is_same);
  }
  return is_of_all_rows;
}

std::optional<SharedValues> split_shared_values(const KernelProgram& program, const std::vector<bool>& is_of_all_rows) {
  const bool are_any = std::ranges::any_of(is_of_all_rows, [](bool is_same) { return is_same; });
  return are_any ? Splitting(program, is_of_all_rows).run() : std::nullopt;
}

Iteration iteration_before(const SharedValues& split, const Iteration& whole) {
  Iteration part = with_inputs(split.inputs_before, whole);
  for (std::vector<int64_t>& strides : part.strides) {
    strides = {0, strides.back()};
  }
  for (const KernelOutput& value : split.before.outputs) {
    part.strides.push_back({0, static_cast<int64_t>(c10::elementSize(value.type))});
  }
  part.sizes = {1, whole.sizes.back()};
  part.segment_strides.resize(part.strides.size());
  return part;
}

Iteration iteration_of_rows(const SharedValues& split, const Iteration& whole) {
  Iteration part = with_inputs(split.inputs_of_rows, whole);
  for (const KernelOutput& value : split.before.outputs) {
    part.strides.emplace_back(whole.sizes.size()).back() = static_cast<int64_t>(c10::elementSize(value.type));
  }
  part.strides.insert(part.strides.end(), whole.strides.end() - static_cast<int64_t>(split.rows.outputs.size()),
                      whole.strides.end());
  part.sizes = whole.sizes;
  part.segment_strides.resize(part.strides.size());
  return part;
}

}  // namespace sconce
