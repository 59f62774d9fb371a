#include "fusion/cpu/vector_writer.h"
#include "fusion/program/cost_model.h"

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

//   for each row
//     compute what is known of the row before any pass
//     for each pass of the schedule
//       for each segment of the row                             LoopOrder::kSegments alone
//         while kUnrolledVectors fit: reduce them side by side  cheap values of long rows alone
//         while a vector fits: reduce it, store its results
//         if elements are left: the same under a mask
//         combine the reductions with those of former segments
//       combine the lanes of the reductions
//       compute what is known of the row after this pass
//
// All counts are at least 1 (llvm_text.h), so the loops over rows and segments are tested at their ends.
class RowLoops : public VectorWriter {
 public:
  RowLoops(const KernelProgram& program, size_t lanes) : VectorWriter(program, lanes) {}

  LoopProgram write() {
    // Shorter rows skip the unrolled loop: they would have no iteration of it, only its parts to join.
    is_long_ = less_or_equal(constant(static_cast<int64_t>(cost_model::kUnrolledVectors * lanes_)), elements_);
    of_row_ = first_;
    of_row_.index = constant(0);
    begin_loop();
    write_row_values(of_row_, 0);
    for (of_row_.pass = 0; of_row_.pass < schedule_.passes; ++of_row_.pass) {
      const bool has_segments = program().order == LoopOrder::kSegments;
      for (const auto& [instruction, parts] : has_segments ? write_segments() : write_segment(of_row_)) {
        of_row_.values[instruction] = {combined_over(static_cast<uint32_t>(lanes_), instruction, parts[0])};
      }
      write_row_values(of_row_, of_row_.pass + 1);
    }
    end_turns(row_, rows_, of_row_.places, row_steps_);
    return take();
  }

 private:
  // Each segment is reduced by itself: sums of sums are more precise.
  Reductions write_segments() {
    const LoopVariable number = counter();
    Vector segment = of_row_;
    for (LoopVariable& address : segment.places) {
      assign(variable(c10::ScalarType::Undefined), address);
      address = loops_.statements.back().results[0];
    }
    const Reductions totals = begin_reductions(of_row_.pass, 1);
    begin_loop();
    const Reductions reduced = write_segment(segment);
    for (size_t i = 0; i < totals.size(); ++i) {
      const LoopVariable total = totals[i].parts[0];
      assign(total, combined(totals[i].instruction, total, reduced[i].parts[0]));
    }
    end_turns(number, segments_, segment.places, segment_steps_);
    return totals;
  }

  // Returns what the lanes have reduced.
  Reductions write_segment(Vector vector) {
    vector.index = counter();
    const Reductions reductions = begin_reductions(vector.pass, 1);
    // A cheap value is computed in less time than the sum takes to which it is added.
    const auto is_cheap = [&](const Reduction& each) { return schedule_.is_cheap[code(each.instruction).a]; };
    if (!reductions.empty() && std::ranges::all_of(reductions, is_cheap)) {
      begin_if(is_long_);
      write_unrolled(vector, reductions);
      end();
    }
    for_full_vectors(vector.index, 1, elements_, [&] { write_elements(vector, reductions, 0); });
    for_rest(vector.index, elements_, [&] { write_elements(vector, reductions, 0); });
    return reductions;
  }

  // Writes the loop in which each of several vectors has its own part of every reduction. The parts do not wait for each
  // other (cost_model.h). Elements that are left go to the loop of single vectors.
  void write_unrolled(const Vector& vector, const Reductions& reductions) {
    Reductions many = begin_reductions(vector.pass, cost_model::kUnrolledVectors);
    for_full_vectors(vector.index, cost_model::kUnrolledVectors, elements_, [&] {
      for (size_t k = 0; k < cost_model::kUnrolledVectors; ++k) {
        Vector each = vector;
        each.index = after_vectors(vector.index, k);
        write_elements(each, many, k);
      }
    });
    for (size_t i = 0; i < many.size(); ++i) {
      auto& [instruction, parts] = many[i];
      for (size_t distance = parts.size() / 2; distance > 0; distance /= 2) {
        for (size_t k = 0; k < distance; ++k) {
          parts[k] = combined(instruction, parts[k], parts[k + distance]);
        }
      }
      assign(reductions[i].parts[0], parts[0]);
    }
  }

  Vector of_row_;
  LoopVariable is_long_ = 0;
};

}  // namespace

LoopProgram row_loops(const KernelProgram& program, size_t lanes) { return RowLoops(program, lanes).write(); }

}  // namespace sconce
