#include "fusion/cuda/grid_arguments.h"
#include "fusion/cuda/grid_writer.h"
#include "fusion/cuda/grids.h"

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

constexpr int64_t kBytesOfSharedAccess = 16;  // the most of a thread at once
constexpr int64_t kSlot = 8;                  // bytes of shared memory for what a thread or a warp has reduced

class RowGrid : public GridWriter {
 public:
  RowGrid(const KernelProgram& program, const GridForm& form) : GridWriter(program, form), schedule_(schedule_of(program)) {
    if (form.trips > 0) {
      kept_ = kept_values(program, schedule_);
    }
  }

  GridProgram write() {
    space_ = read_space();
    const uint32_t rows_of_block = form().threads / form().lanes;
    const GridVariable thread = index(GridOp::kThread, {});
    const bool has_columns = program().order == LoopOrder::kColumns;
    const GridVariable width = constant(has_columns ? rows_of_block : form().lanes);
    const GridVariable high = index(GridOp::kDivide, {thread, width});
    const GridVariable low = index(GridOp::kRemainder, {thread, width});
    lane_ = has_columns ? high : low;
    slot_ = has_columns ? low : high;
    thread_ = thread;

    GridVariable rows = form().dims > 1 ? space_.sizes[0] : constant(1);
    for (uint32_t dim = 1; dim + 1 < form().dims; ++dim) {
      rows = multiply(rows, space_.sizes[dim]);
    }
    const GridVariable elements = space_.sizes.back();
    const GridVariable length = space_.segments ? multiply(elements, *space_.segments) : elements;
    const GridVariable each = constant(rows_of_block);
    // All threads of a block take as many turns, so that they meet at barriers.
    const GridVariable first =
        begin_for(multiply(index(GridOp::kBlock, {}), each), rows, multiply(index(GridOp::kBlocks, {}), each));
    const GridVariable place = add(first, slot_);
    is_active_ = answer(GridOp::kLess, {place, rows});
    const GridVariable row = index(GridOp::kMinimum, {place, add(rows, constant(-1))});
    row_ = {.offsets = form().dims > 1 ? offsets_of(space_, form().dims - 1, row) : Offsets(operand_count(), constant(0)),
            .row_length = length};
    end_ = index(GridOp::kChoose, {is_active_, length, constant(0)});
    place_registers();
    if (form().has_buffers) {
      place_buffers(length, rows_of_block);
    }
    for (uint32_t pass = 0; pass < schedule_.passes; ++pass) {
      write_pass(pass);
    }
    end();
    return take();
  }

 private:
  struct Reduction {
    uint32_t instruction;
    Variables so_far;  // by neighbor
  };

  // Computes what is known of the row after `stage` passes: here, because a loop over its elements would compute it again.
  void compute_row_values(uint32_t stage) {
    for (uint32_t i = 0; i < program().code.size(); ++i) {
      if (schedule_.is_of_row[i] && schedule_.stage[i] <= stage && !is_reduction(program().code[i].op)) {
        values_of(row_, i);
      }
    }
  }

  void write_pass(uint32_t pass) {
    compute_row_values(pass);
    std::vector<Reduction> reductions;
    for (uint32_t i = 0; i < program().code.size(); ++i) {
      if (is_reduction(program().code[i].op) && schedule_.stage[i] == pass + 1) {
        reductions.push_back({i, {}});
        for (uint32_t v = 0; v < form().vector; ++v) {
          const Instruction& each = program().code[i];
          const Instruction start{.op = MachineOp::kLiteral, .type = each.type, .literal = neutral_element(each.op)};
          reductions.back().so_far.push_back(compute(start, {}));
        }
      }
    }
    std::vector<size_t> stored;  // outputs
    for (size_t k = 0; k < program().outputs.size(); ++k) {
      const KernelOutput& output = program().outputs[k];
      if (output.access != Access::kOne && schedule_.stage[output.value] == pass) {
        stored.push_back(k);
      }
    }
    if (!reductions.empty() || !stored.empty()) {
      write_loop(pass, reductions, stored);
    }
    reduce(reductions);
    compute_row_values(pass + 1);
    store_row_values(pass);
  }

  void write_loop(uint32_t pass, std::vector<Reduction>& reductions, const std::vector<size_t>& stored) {
    const int64_t of_turn = static_cast<int64_t>(form().lanes) * form().vector;
    const GridVariable first = multiply(lane_, constant(form().vector));
    if (form().trips == 0) {
      write_elements(begin_for(first, end_, constant(of_turn)), 0, pass, reductions, stored);
      end();
    }
    for (uint32_t trip = 0; trip < form().trips; ++trip) {
      const GridVariable at = trip == 0 ? first : add(first, constant(trip * of_turn));
      begin_if(answer(GridOp::kLess, {at, end_}));
      write_elements(at, trip, pass, reductions, stored);
      end();
    }
  }

  // Computes the pass for the neighbors at `at`.
  void write_elements(GridVariable at, uint32_t trip, uint32_t pass, std::vector<Reduction>& reductions,
                      const std::vector<size_t>& stored) {
    Elements elements{
        .count = form().vector, .strides = space_.strides.back(), .row_length = row_.row_length, .values = row_.values};
    const auto [segment, place] = space_.segments ? divided(space_, form().dims - 1, at) : std::pair(GridVariable(), at);
    for (size_t k = 0; k < operand_count(); ++k) {
      GridVariable offset = add(row_.offsets[k], multiply(place, space_.strides.back()[k]));
      if (space_.segments) {
        offset = add(offset, multiply(segment, space_.segment_strides[k]));
      }
      elements.offsets.push_back(offset);
    }
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (is_kept_[i]) {
        elements.values[kept_[i]] = registers_[i][trip];
      }
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (schedule_.stage[schedule_.buffers[i].value] < pass) {
        load_buffer(i, at, elements);
      }
    }
    std::vector<Variables> computed;
    for (const size_t k : stored) {
      computed.push_back(values_of(elements, program().outputs[k].value));
    }
    for (const Reduction& reduction : reductions) {
      const Instruction& each = program().code[reduction.instruction];
      const Variables values = values_of(elements, each.a);
      for (uint32_t v = 0; v < form().vector; ++v) {
        const GridVariable value = values.size() == 1 ? values[0] : values[v];
        assign(reduction.so_far[v], combine(combining_op(each.op), each.type, reduction.so_far[v], value));
      }
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (schedule_.stage[schedule_.buffers[i].value] == pass) {
        store_buffer(i, at, elements);
      }
    }
    keep(elements, trip, pass);
    for (size_t i = 0; i < stored.size(); ++i) {
      store(program().inputs.size() + stored[i], elements, computed[i]);
    }
  }

  // ---- values in registers

  void place_registers() {
    registers_.resize(kept_.size());
    is_kept_.assign(kept_.size(), false);
    for (size_t i = 0; i < kept_.size(); ++i) {
      const c10::ScalarType type = program().code[kept_[i]].type;
      for (uint32_t trip = 0; trip < form().trips; ++trip) {
        Variables& each = registers_[i].emplace_back();
        for (uint32_t v = 0; v < count_of(kept_[i]); ++v) {
          each.push_back(compute({.op = MachineOp::kLiteral, .type = type}, {}));
        }
      }
    }
  }
  // Returns how many values neighbors have: one that they share, or one each.
  uint32_t count_of(uint32_t value) const {
    const Instruction& each = program().code[value];
    const bool is_converted = each.op == MachineOp::kConvert && program().code[each.a].op == MachineOp::kLoad;
    const Instruction& load = is_converted ? program().code[each.a] : each;
    const bool is_shared = load.op == MachineOp::kLoad && program().access_of_operand(load.index) == Access::kOne;
    return is_shared ? 1 : form().vector;
  }
  // Keeps what this pass has computed, and what it must compute for later ones.
  void keep(Elements& elements, uint32_t trip, uint32_t pass) {
    for (size_t i = 0; i < kept_.size(); ++i) {
      const bool is_due = schedule_.buffer_of(kept_[i]) && schedule_.stage[kept_[i]] == pass;
      if (is_kept_[i] || (!is_due && !elements.values.contains(kept_[i]))) {
        continue;
      }
      const Variables values = values_of(elements, kept_[i]);
      for (size_t v = 0; v < registers_[i][trip].size(); ++v) {
        assign(registers_[i][trip][v], values.size() == 1 ? values[0] : values[v]);
      }
      is_kept_[i] = trip + 1 == form().trips;
    }
  }

  void store_row_values(uint32_t pass) {
    std::vector<size_t> stored;
    for (size_t k = 0; k < program().outputs.size(); ++k) {
      const KernelOutput& output = program().outputs[k];
      const uint32_t stage = schedule_.stage[output.value];
      if (output.access == Access::kOne && (stage > 0 ? stage - 1 : 0) == pass) {
        stored.push_back(k);
      }
    }
    if (stored.empty()) {
      return;
    }
    begin_if(answer(GridOp::kBoth, {is_active_, answer(GridOp::kLess, {lane_, constant(1)})}));
    for (const size_t k : stored) {
      store(program().inputs.size() + k, row_, values_of(row_, program().outputs[k].value));
    }
    end();
  }

  // Gives every thread of a row what all of them have reduced: by shuffles in a warp, then by shared memory.
  void reduce(const std::vector<Reduction>& reductions) {
    if (reductions.empty()) {
      return;
    }
    const bool has_columns = program().order == LoopOrder::kColumns;
    const uint32_t in_warp = has_columns ? 1 : std::min(form().lanes, kThreadsOfWarp);
    std::vector<GridVariable> values;
    for (const Reduction& reduction : reductions) {
      const Instruction& each = program().code[reduction.instruction];
      GridVariable value = reduction.so_far[0];
      for (uint32_t v = 1; v < form().vector; ++v) {
        value = combine(combining_op(each.op), each.type, value, reduction.so_far[v]);
      }
      for (uint32_t distance = in_warp / 2; distance > 0; distance /= 2) {
        const GridVariable other = element(GridOp::kShuffle, each.type, {value}, distance);
        value = combine(combining_op(each.op), each.type, value, other);
      }
      values.push_back(value);
    }
    const uint32_t parts = form().lanes / in_warp;
    if (parts > 1) {
      reduce_in_shared_memory(reductions, values, in_warp, parts);
    }
    for (size_t i = 0; i < reductions.size(); ++i) {
      row_.values[reductions[i].instruction] = {values[i]};
    }
  }

  void reduce_in_shared_memory(const std::vector<Reduction>& reductions, std::vector<GridVariable>& values, uint32_t in_warp,
                               uint32_t parts) {
    const bool has_columns = program().order == LoopOrder::kColumns;
    const int64_t region = kSlot * (form().threads / in_warp);
    grid_.shared_bytes = std::max(grid_.shared_bytes, static_cast<size_t>(region) * reductions.size());
    const GridVariable place = in_warp == 1 ? thread_ : index(GridOp::kDivide, {thread_, constant(in_warp)});
    const GridVariable rest = in_warp == 1 ? constant(0) : index(GridOp::kRemainder, {thread_, constant(in_warp)});
    begin_if(answer(GridOp::kLess, {rest, constant(1)}));
    for (size_t i = 0; i < reductions.size(); ++i) {
      store_shared(add(constant(static_cast<int64_t>(i) * region), multiply(place, constant(kSlot))), {values[i]});
    }
    end();
    barrier();
    const int64_t rows_of_block = form().threads / form().lanes;
    const GridVariable first = multiply(slot_, constant(has_columns ? kSlot : kSlot * parts));
    for (size_t i = 0; i < reductions.size(); ++i) {
      const Instruction& each = program().code[reductions[i].instruction];
      for (uint32_t part = 0; part < parts; ++part) {
        const int64_t distance = static_cast<int64_t>(i) * region + part * (has_columns ? kSlot * rows_of_block : kSlot);
        const GridVariable other = load_shared(add(first, constant(distance)), each.type, 1)[0];
        values[i] = part == 0 ? other : combine(combining_op(each.op), each.type, values[i], other);
      }
    }
    barrier();
  }

  // ---- values that later passes use. Each thread reads what it has written itself.

  void place_buffers(GridVariable length, uint32_t rows_of_block) {
    const auto reductions = static_cast<size_t>(std::count_if(
        program().code.begin(), program().code.end(), [](const Instruction& each) { return is_reduction(each.op); }));
    // After what reductions need.
    grid_.shared_bytes = reductions * kSlot * form().threads;
    GridVariable begin = constant(static_cast<int64_t>(grid_.shared_bytes));
    buffers_.resize(schedule_.buffers.size());
    for (const int64_t bytes : {8, 4}) {  // the larger ones first, so that all are aligned
      for (size_t i = 0; i < buffers_.size(); ++i) {
        if (bytes_in_buffer(i) == bytes) {
          // What lies side by side for a warp may leave gaps behind the row's end.
          const int64_t gap = form().vector > width_in_buffer(i) ? int64_t(form().lanes) * form().vector * bytes : 0;
          const GridVariable row_bytes = add(multiply(length, constant(bytes)), constant(gap));
          grid_.shared_bytes += static_cast<size_t>(gap) * rows_of_block;
          buffers_[i] = add(begin, multiply(slot_, row_bytes));
          begin = add(begin, multiply(row_bytes, constant(rows_of_block)));
          grid_.shared_bytes_of_element += static_cast<size_t>(bytes) * rows_of_block;
        }
      }
    }
  }
  int64_t bytes_in_buffer(size_t buffer) const { return c10::elementSize(schedule_.buffers[buffer].type) > 4 ? 8 : 4; }
  // Neighbors that a thread reads or writes at once.
  uint32_t width_in_buffer(size_t buffer) const {
    return std::min(form().vector, static_cast<uint32_t>(kBytesOfSharedAccess / bytes_in_buffer(buffer)));
  }
  // Threads of a warp read and write side by side: of a turn, first come the first neighbors of each thread.
  GridVariable address_in_buffer(size_t buffer, GridVariable at, uint32_t part) {
    const int64_t bytes = bytes_in_buffer(buffer);
    const int64_t width = width_in_buffer(buffer);
    const GridVariable address = add(buffers_[buffer], multiply(at, constant(bytes)));
    if (width == form().vector) {
      return address;
    }
    const GridVariable back = multiply(lane_, constant(bytes * (width - form().vector)));
    return add(add(address, back), constant(part * form().lanes * width * bytes));
  }
  void load_buffer(size_t buffer, GridVariable at, Elements& elements) {
    const RowBuffer& of = schedule_.buffers[buffer];
    const uint32_t width = width_in_buffer(buffer);
    Variables values;
    for (uint32_t part = 0; part < form().vector / width; ++part) {
      const Variables loaded = load_shared(address_in_buffer(buffer, at, part), of.type, width);
      values.insert(values.end(), loaded.begin(), loaded.end());
    }
    elements.values[of.value] = values;
  }
  void store_buffer(size_t buffer, GridVariable at, Elements& elements) {
    const Variables& values = values_of(elements, schedule_.buffers[buffer].value);
    const uint32_t width = width_in_buffer(buffer);
    for (uint32_t part = 0; part < form().vector / width; ++part) {
      Variables stored;
      for (uint32_t v = 0; v < width; ++v) {
        stored.push_back(values.size() == 1 ? values[0] : values[part * width + v]);
      }
      store_shared(address_in_buffer(buffer, at, part), stored);
    }
  }

  const Schedule schedule_;
  Space space_;
  GridVariable thread_ = 0;
  GridVariable lane_ = 0;  // of the threads that share a row
  GridVariable slot_ = 0;  // of the rows of the block
  GridVariable is_active_ = 0;
  GridVariable end_ = 0;
  Elements row_;
  Offsets buffers_;                                // of the thread's row, in shared memory
  std::vector<uint32_t> kept_;                     // instructions
  std::vector<bool> is_kept_;                      // their values are in registers
  std::vector<std::vector<Variables>> registers_;  // by trip
};

}  // namespace

GridProgram grid_of_rows(const KernelProgram& program, const GridForm& form) { return RowGrid(program, form).write(); }

}  // namespace sconce
