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
  RowGrid(const KernelProgram& program, const GridForm& form) : GridWriter(program, form) {
    if (form.trips > 0) {
      kept_ = kept_values(program, schedule_);
    }
  }

  GridProgram write() {
    space_ = read_space();
    const uint32_t rows_of_block = form().threads / form().lanes;
    const LoopVariable thread = index(LoopOp::kThread, {});
    const bool has_columns = program().order == LoopOrder::kColumns;
    const LoopVariable width = constant(has_columns ? rows_of_block : form().lanes);
    const LoopVariable high = index(LoopOp::kDivide, {thread, width});
    const LoopVariable low = index(LoopOp::kRemainder, {thread, width});
    lane_ = has_columns ? high : low;
    slot_ = has_columns ? low : high;
    thread_ = thread;

    LoopVariable rows = form().dims > 1 ? space_.sizes[0] : constant(1);
    for (uint32_t dim = 1; dim + 1 < form().dims; ++dim) {
      rows = multiply(rows, space_.sizes[dim]);
    }
    const LoopVariable elements = space_.sizes.back();
    const LoopVariable length = space_.segments ? multiply(elements, *space_.segments) : elements;
    const LoopVariable each = constant(rows_of_block);
    // All threads of a block take as many turns, so that they meet at barriers.
    const LoopVariable first =
        begin_for(multiply(index(LoopOp::kBlock, {}), each), rows, multiply(index(LoopOp::kBlocks, {}), each));
    const LoopVariable place = add(first, slot_);
    is_active_ = less(place, rows);
    const LoopVariable row = index(LoopOp::kMinimum, {place, add(rows, constant(-1))});
    row_ = {.places = form().dims > 1 ? offsets_of(space_, form().dims - 1, row) : Variables(operand_count(), constant(0)),
            .row_length = length};
    end_ = index(LoopOp::kChoose, {is_active_, length, constant(0)});
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
  void write_pass(uint32_t pass) {
    compute_row_values(row_, pass);
    const Reductions reductions = begin_reductions(pass, form().vector);
    const std::vector<size_t> stored = outputs_of(pass);
    if (!reductions.empty() || !stored.empty()) {
      write_loop(pass, reductions, stored);
    }
    reduce(reductions);
    compute_row_values(row_, pass + 1);
    store_row_values(pass);
  }

  void write_loop(uint32_t pass, const Reductions& reductions, const std::vector<size_t>& stored) {
    const int64_t of_turn = static_cast<int64_t>(form().lanes) * form().vector;
    const LoopVariable first = multiply(lane_, constant(form().vector));
    if (form().trips == 0) {
      write_elements(begin_for(first, end_, constant(of_turn)), 0, pass, reductions, stored);
      end();
    }
    for (uint32_t trip = 0; trip < form().trips; ++trip) {
      const LoopVariable at = trip == 0 ? first : add(first, constant(trip * of_turn));
      begin_if(less(at, end_));
      write_elements(at, trip, pass, reductions, stored);
      end();
    }
  }

  // Computes the pass for the neighbors at `at`.
  void write_elements(LoopVariable at, uint32_t trip, uint32_t pass, const Reductions& reductions,
                      const std::vector<size_t>& stored) {
    Elements elements{
        .count = form().vector, .strides = space_.strides.back(), .row_length = row_.row_length, .values = row_.values};
    const auto [segment, place] = space_.segments ? divided(space_, form().dims - 1, at) : std::pair(LoopVariable(), at);
    for (size_t k = 0; k < operand_count(); ++k) {
      LoopVariable offset = add(row_.places[k], multiply(place, space_.strides.back()[k]));
      if (space_.segments) {
        offset = add(offset, multiply(segment, space_.segment_strides[k]));
      }
      elements.places.push_back(offset);
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
    std::vector<Variables> results;
    for (const size_t k : stored) {
      results.push_back(values_of(elements, program().outputs[k].value));
    }
    for (const Reduction& reduction : reductions) {
      const Variables values = values_of(elements, code(reduction.instruction).a);
      for (uint32_t v = 0; v < form().vector; ++v) {
        const LoopVariable value = values.size() == 1 ? values[0] : values[v];
        assign(reduction.parts[v], combined(reduction.instruction, reduction.parts[v], value));
      }
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (schedule_.stage[schedule_.buffers[i].value] == pass) {
        store_buffer(i, at, elements);
      }
    }
    keep(elements, trip, pass);
    for (size_t i = 0; i < stored.size(); ++i) {
      store(program().inputs.size() + stored[i], elements, results[i]);
    }
  }

  // ---- values in registers

  void place_registers() {
    registers_.resize(kept_.size());
    is_kept_.assign(kept_.size(), false);
    for (size_t i = 0; i < kept_.size(); ++i) {
      const c10::ScalarType type = code(kept_[i]).type;
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
    const Instruction& each = code(value);
    const bool is_converted = each.op == MachineOp::kConvert && code(each.a).op == MachineOp::kLoad;
    const Instruction& load = is_converted ? code(each.a) : each;
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
    begin_if(answer(LoopOp::kBoth, {is_active_, less(lane_, constant(1))}));
    for (const size_t k : stored) {
      store(program().inputs.size() + k, row_, values_of(row_, program().outputs[k].value));
    }
    end();
  }

  // Gives every thread of a row what all of them have reduced: by shuffles in a warp, then by shared memory.
  void reduce(const Reductions& reductions) {
    if (reductions.empty()) {
      return;
    }
    const bool has_columns = program().order == LoopOrder::kColumns;
    const uint32_t in_warp = has_columns ? 1 : std::min(form().lanes, kThreadsOfWarp);
    Variables values;
    for (const Reduction& reduction : reductions) {
      LoopVariable value = reduction.parts[0];
      for (uint32_t v = 1; v < form().vector; ++v) {
        value = combined(reduction.instruction, value, reduction.parts[v]);
      }
      values.push_back(combined_over(in_warp, reduction.instruction, value));
    }
    const uint32_t parts = form().lanes / in_warp;
    if (parts > 1) {
      reduce_in_shared_memory(reductions, values, in_warp, parts);
    }
    for (size_t i = 0; i < reductions.size(); ++i) {
      row_.values[reductions[i].instruction] = {values[i]};
    }
  }

  void reduce_in_shared_memory(const Reductions& reductions, Variables& values, uint32_t in_warp, uint32_t parts) {
    const bool has_columns = program().order == LoopOrder::kColumns;
    const int64_t region = kSlot * (form().threads / in_warp);
    shared_bytes_ = std::max(shared_bytes_, static_cast<size_t>(region) * reductions.size());
    const LoopVariable place = in_warp == 1 ? thread_ : index(LoopOp::kDivide, {thread_, constant(in_warp)});
    const LoopVariable rest = in_warp == 1 ? constant(0) : index(LoopOp::kRemainder, {thread_, constant(in_warp)});
    begin_if(less(rest, constant(1)));
    for (size_t i = 0; i < reductions.size(); ++i) {
      store_at(shared(add(constant(static_cast<int64_t>(i) * region), multiply(place, constant(kSlot)))), {values[i]});
    }
    end();
    barrier();
    const int64_t rows_of_block = form().threads / form().lanes;
    const LoopVariable first = multiply(slot_, constant(has_columns ? kSlot : kSlot * parts));
    for (size_t i = 0; i < reductions.size(); ++i) {
      const uint32_t reduction = reductions[i].instruction;
      for (uint32_t part = 0; part < parts; ++part) {
        const int64_t distance = static_cast<int64_t>(i) * region + part * (has_columns ? kSlot * rows_of_block : kSlot);
        const LoopVariable other = load_at(shared(add(first, constant(distance))), code(reduction).type, 1)[0];
        values[i] = part == 0 ? other : combined(reduction, values[i], other);
      }
    }
    barrier();
  }

  // ---- values that later passes use. Each thread reads what it has written itself.

  void place_buffers(LoopVariable length, uint32_t rows_of_block) {
    const auto reductions = static_cast<size_t>(std::count_if(
        program().code.begin(), program().code.end(), [](const Instruction& each) { return is_reduction(each.op); }));
    // After what reductions need.
    shared_bytes_ = reductions * kSlot * form().threads;
    LoopVariable begin = constant(static_cast<int64_t>(shared_bytes_));
    buffers_.resize(schedule_.buffers.size());
    for (const int64_t bytes : {8, 4}) {  // the larger ones first, so that all are aligned
      for (size_t i = 0; i < buffers_.size(); ++i) {
        if (bytes_in_buffer(i) == bytes) {
          // What lies side by side for a warp may leave gaps behind the row's end.
          const int64_t gap = form().vector > width_in_buffer(i) ? int64_t(form().lanes) * form().vector * bytes : 0;
          const LoopVariable row_bytes = add(multiply(length, constant(bytes)), constant(gap));
          shared_bytes_ += static_cast<size_t>(gap) * rows_of_block;
          buffers_[i] = add(begin, multiply(slot_, row_bytes));
          begin = add(begin, multiply(row_bytes, constant(rows_of_block)));
          shared_bytes_of_element_ += static_cast<size_t>(bytes) * rows_of_block;
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
  LoopVariable address_in_buffer(size_t buffer, LoopVariable at, uint32_t part) {
    const int64_t bytes = bytes_in_buffer(buffer);
    const int64_t width = width_in_buffer(buffer);
    const LoopVariable address = add(buffers_[buffer], multiply(at, constant(bytes)));
    if (width == form().vector) {
      return shared(address);
    }
    const LoopVariable back = multiply(lane_, constant(bytes * (width - form().vector)));
    return shared(add(add(address, back), constant(part * form().lanes * width * bytes)));
  }
  void load_buffer(size_t buffer, LoopVariable at, Elements& elements) {
    const RowBuffer& of = schedule_.buffers[buffer];
    const uint32_t width = width_in_buffer(buffer);
    Variables values;
    for (uint32_t part = 0; part < form().vector / width; ++part) {
      const Variables loaded = load_at(address_in_buffer(buffer, at, part), of.type, width);
      values.insert(values.end(), loaded.begin(), loaded.end());
    }
    elements.values[of.value] = values;
  }
  void store_buffer(size_t buffer, LoopVariable at, Elements& elements) {
    const Variables& values = values_of(elements, schedule_.buffers[buffer].value);
    const uint32_t width = width_in_buffer(buffer);
    for (uint32_t part = 0; part < form().vector / width; ++part) {
      Variables stored;
      for (uint32_t v = 0; v < width; ++v) {
        stored.push_back(values.size() == 1 ? values[0] : values[part * width + v]);
      }
      store_at(address_in_buffer(buffer, at, part), stored);
    }
  }

  Space space_;
  LoopVariable thread_ = 0;
  LoopVariable lane_ = 0;  // of the threads that share a row
  LoopVariable slot_ = 0;  // of the rows of the block
  LoopVariable is_active_ = 0;
  LoopVariable end_ = 0;
  Elements row_;
  Variables buffers_;                              // of the thread's row, in shared memory
  std::vector<uint32_t> kept_;                     // instructions
  std::vector<bool> is_kept_;                      // their values are in registers
  std::vector<std::vector<Variables>> registers_;  // by trip
};

}  // namespace

GridProgram grid_of_rows(const KernelProgram& program, const GridForm& form) { return RowGrid(program, form).write(); }

}  // namespace sconce
