#include "fusion/cpu/row_loops.h"

#include "fusion/cpu/element_writer.h"
#include "fusion/program/cost_model.h"

#include <array>

namespace sconce {
namespace {

// Writes the loops, and lets ElementWriter write what they compute. The names on the right are those of blocks:
//
//   for each row                                                row … row_end
//     compute what is known of the row before any pass
//     for each pass of the schedule                             pass
//       for each segment of the row                             piece: LoopOrder::kSegments alone
//         while kUnrolledVectors fit: reduce them side by side  many, joined: cheap values of long rows alone
//         while a vector fits: reduce it, store its results     head, body
//         if elements are left: the same under a mask           tail, rest
//         combine the reductions with those of former segments  done
//       combine the lanes of the reductions
//       compute what is known of the row after this pass
//
// All counts are at least 1 (llvm_text.h), so the loops over rows and segments are tested at their ends.
class RowLoops : public ElementWriter {
 public:
  RowLoops(const KernelProgram& program, size_t lanes) : ElementWriter(program, lanes) {}

  std::string text() {
    write_entry();
    // Shorter rows skip the unrolled loop: they would have no iteration of it, only its parts to join.
    w_.line("%is_long = icmp uge i64 %elements, " + std::to_string(cost_model::kUnrolledVectors * w_.lanes()));
    w_.line("br label %row");
    write_row_head();
    for (uint32_t pass = 0; pass < schedule_.passes; ++pass) {
      write_pass(pass);
    }
    write_row_end();
    return module();
  }

 private:
  bool has_segments() const { return program_.order == LoopOrder::kSegments; }
  std::string pointers_of(uint32_t pass) const { return has_segments() ? "%piece" + std::to_string(pass) + "_" : "%p"; }

  // ---- the rows

  void write_row_head() {
    w_.line("row:");
    w_.line("%r = phi i64 [ 0, %entry ], [ %next_row, %row_end ]");
    for (size_t k = 0; k < operands_; ++k) {
      const std::string n = std::to_string(k);
      w_.line("%p" + n + " = phi ptr [ %first" + n + ", %entry ], [ %next" + n + ", %row_end ]");
    }
    write_values_of_row(0);
    w_.line("br label %pass0");
  }

  void write_row_end() {
    w_.line("row_end:");
    w_.line("%next_row = add i64 %r, 1");
    for (size_t k = 0; k < operands_; ++k) {
      const std::string n = std::to_string(k);
      w_.line("%next" + n + " = getelementptr i8, ptr %p" + n + ", i64 %row_step" + n);
    }
    w_.line("%more = icmp ult i64 %next_row, %rows");
    w_.line("br i1 %more, label %row, label %exit");
    w_.line("exit:");
    w_.line("ret void");
  }

  void write_values_of_row(uint32_t stage) {
    Vector row{stage, "%p", "0", "", &of_row_};
    write_row_values(row, stage);
  }

  // ---- a pass over the row
  //
  //   piece: a segment, if the row has several: the reductions of those before
  //   many:  several full vectors, each with reductions of its own, in long rows; joined: their reductions in one
  //   head:  i, the reductions so far; full vectors while they fit
  //   body:  a full vector            rest:  what is left, under a mask
  //   done:  the reductions of the segment; those of all so far
  //   all:   the reductions' values, and what the row computes of them

  void write_pass(uint32_t pass) {
    const std::string p = std::to_string(pass);
    const std::vector<uint32_t> reductions = reductions_of(pass);
    // A cheap value is computed in less time than the sum takes to which it is added.
    const bool is_unrolled = !reductions.empty() && are_cheap(reductions);
    w_.line("pass" + p + ":");
    if (has_segments()) {
      write_segment_head(p, reductions);
    }
    const std::string start = (has_segments() ? "%piece" : "%pass") + p;
    w_.line(is_unrolled ? "br i1 %is_long, label %many" + p + ", label %head" + p : "br label %head" + p);
    // The unrolled loop comes first: the head's phis name what it leaves in `joined_`.
    if (is_unrolled) {
      write_unrolled(pass, reductions, start);
    }
    w_.line("head" + p + ":");
    w_.line("%i" + p + " = phi i64 [ 0, " + start + " ], [ %after" + p + ", %body" + p + " ]" +
            (is_unrolled ? ", [ %many_i" + p + ", %joined" + p + " ]" : ""));
    for (const uint32_t reduction : reductions) {
      const std::string f = std::to_string(reduction);
      // The body gives %more its value further below (`define`). A phi may name a value before that.
      w_.line("%reduction" + f + " = phi " + type_of(reduction) + " [ " + start_of(reduction) + ", " + start +
              " ], [ %more" + f + ", %body" + p + " ]" +
              (is_unrolled ? ", [ " + joined_.at(reduction) + ", %joined" + p + " ]" : ""));
    }
    w_.line("%after" + p + " = add i64 %i" + p + ", " + std::to_string(w_.lanes()));
    w_.line("%fits" + p + " = icmp ule i64 %after" + p + ", %elements");
    w_.line("br i1 %fits" + p + ", label %body" + p + ", label %tail" + p);

    w_.line("body" + p + ":");
    Vector full{pass, pointers_of(pass), "%i" + p, "", &of_row_};
    for (const uint32_t reduction : reductions) {
      define(named("%more", reduction), reduction, reduced(full, reduction, named("%reduction", reduction)));
    }
    write_stores(full);
    w_.line("br label %head" + p);

    w_.line("tail" + p + ":");
    w_.line("%is_left" + p + " = icmp ult i64 %i" + p + ", %elements");
    w_.line("br i1 %is_left" + p + ", label %rest" + p + ", label %done" + p);

    w_.line("rest" + p + ":");
    Vector rest{pass, pointers_of(pass), "%i" + p, mask_of(w_.value("sub i64 %elements, %i" + p)), &of_row_};
    for (const uint32_t reduction : reductions) {
      const std::string f = std::to_string(reduction);
      const std::string all = reduced(rest, reduction, "%reduction" + f);
      // Lanes beyond the end computed with zeros in place of elements. They keep what they have.
      w_.line("%last" + f + " = select " + w_.vector("i1") + " " + rest.mask + ", " + type_of(reduction) + " " + all + ", " +
              type_of(reduction) + " %reduction" + f);
    }
    write_stores(rest);
    w_.line("br label %done" + p);

    w_.line("done" + p + ":");
    // All phis come before anything else: LLVM accepts them only at the head of a block.
    for (const uint32_t reduction : reductions) {
      const std::string f = std::to_string(reduction);
      w_.line("%lanes" + f + " = phi " + type_of(reduction) + " [ %reduction" + f + ", %tail" + p + " ], [ %last" + f +
              ", %rest" + p + " ]");
    }
    if (has_segments()) {
      write_segment_end(p, reductions);
    }
    for (const uint32_t reduction : reductions) {
      of_row_[reduction] = with_lanes_combined(reduction, named(has_segments() ? "%total" : "%lanes", reduction));
    }
    write_values_of_row(pass + 1);
    w_.line("br label %" + (pass + 1 < schedule_.passes ? named("pass", pass + 1) : "row_end"));
  }

  // Each segment is reduced by itself: sums of sums are more precise.
  void write_segment_head(const std::string& p, const std::vector<uint32_t>& reductions) {
    w_.line("br label %piece" + p);
    w_.line("piece" + p + ":");
    w_.line("%s" + p + " = phi i64 [ 0, %pass" + p + " ], [ %next_s" + p + ", %done" + p + " ]");
    for (size_t k = 0; k < operands_; ++k) {
      const std::string n = std::to_string(k);
      w_.line("%piece" + p + "_" + n + " = phi ptr [ %p" + n + ", %pass" + p + " ], [ %next_piece" + p + "_" + n +
              ", %done" + p + " ]");
    }
    for (const uint32_t reduction : reductions) {
      const std::string f = std::to_string(reduction);
      w_.line("%so_far" + f + " = phi " + type_of(reduction) + " [ " + start_of(reduction) + ", %pass" + p + " ], [ %total" +
              f + ", %done" + p + " ]");
    }
  }

  void write_segment_end(const std::string& p, const std::vector<uint32_t>& reductions) {
    for (const uint32_t reduction : reductions) {
      define(named("%total", reduction), reduction,
             combined(reduction, named("%so_far", reduction), named("%lanes", reduction)));
    }
    for (size_t k = 0; k < operands_; ++k) {
      const std::string n = std::to_string(k);
      w_.line("%next_piece" + p + "_" + n + " = getelementptr i8, ptr %piece" + p + "_" + n + ", i64 %segment_step" + n);
    }
    w_.line("%next_s" + p + " = add i64 %s" + p + ", 1");
    w_.line("%more_s" + p + " = icmp ult i64 %next_s" + p + ", %segments");
    w_.line("br i1 %more_s" + p + ", label %piece" + p + ", label %all" + p);
    w_.line("all" + p + ":");
  }

  // Writes the loop in which each of several vectors has its own part of every reduction. The parts do not wait for each
  // other (cost_model.h). Elements that are left go to the loop of single vectors.
  void write_unrolled(uint32_t pass, const std::vector<uint32_t>& reductions, const std::string& start) {
    const std::string p = std::to_string(pass);
    const auto part = [](const char* prefix, uint32_t reduction, size_t k) {
      return named(prefix, reduction) + "_" + std::to_string(k);
    };
    w_.line("many" + p + ":");
    w_.line("%many_i" + p + " = phi i64 [ 0, " + start + " ], [ %many_after" + p + ", %many_body" + p + " ]");
    for (const uint32_t reduction : reductions) {
      for (size_t k = 0; k < cost_model::kUnrolledVectors; ++k) {
        w_.line(part("%part", reduction, k) + " = phi " + type_of(reduction) + " [ " + start_of(reduction) + ", " + start +
                " ], [ " + part("%more_of_part", reduction, k) + ", %many_body" + p + " ]");
      }
    }
    w_.line("%many_after" + p + " = add i64 %many_i" + p + ", " + std::to_string(cost_model::kUnrolledVectors * w_.lanes()));
    w_.line("%many_fit" + p + " = icmp ule i64 %many_after" + p + ", %elements");
    w_.line("br i1 %many_fit" + p + ", label %many_body" + p + ", label %joined" + p);

    w_.line("many_body" + p + ":");
    for (size_t k = 0; k < cost_model::kUnrolledVectors; ++k) {
      Vector full{pass, pointers_of(pass), w_.value("add i64 %many_i" + p + ", " + std::to_string(k * w_.lanes())), "",
                  &of_row_};
      for (const uint32_t reduction : reductions) {
        define(part("%more_of_part", reduction, k), reduction, reduced(full, reduction, part("%part", reduction, k)));
      }
      write_stores(full);
    }
    w_.line("br label %many" + p);

    w_.line("joined" + p + ":");
    for (const uint32_t reduction : reductions) {
      std::array<std::string, cost_model::kUnrolledVectors> parts;
      for (size_t k = 0; k < cost_model::kUnrolledVectors; ++k) {
        parts[k] = part("%part", reduction, k);
      }
      for (size_t distance = cost_model::kUnrolledVectors / 2; distance > 0; distance /= 2) {
        for (size_t k = 0; k < distance; ++k) {
          parts[k] = combined(reduction, parts[k], parts[k + distance]);
        }
      }
      joined_[reduction] = parts[0];
    }
    w_.line("br label %head" + p);
  }

  Values of_row_;
  Values joined_;  // reductions of the unrolled loop
};

}  // namespace

std::string row_loops_text(const KernelProgram& program, size_t lanes) { return RowLoops(program, lanes).text(); }

}  // namespace sconce
