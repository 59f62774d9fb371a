#include "fusion/cpu/row_loops.h"

#include "fusion/cpu/element_writer.h"
#include "fusion/program/cost_model.h"

namespace sconce {
namespace {

// Rows in tiles: of several vectors where values are cheap, then of one, then of what is left, under a mask. All elements of
// a tile's rows are reduced in registers. With tiles of `many` vectors:
//
//   for (r = 0; r + many * lanes <= rows; r += many * lanes)  a tile of `many` vectors    many
//   for (; r + lanes <= rows; r += lanes)                     a tile of one vector        one
//   if (r < rows)                                             the same under a mask       rest
class ColumnLoops : public ElementWriter {
 public:
  ColumnLoops(const KernelProgram& program, size_t lanes) : ElementWriter(program, lanes) {}

  std::string text() {
    write_entry();
    w_.line("br label %many");
    const size_t many = vectors_of_tile();
    w_.line("many:");
    w_.line("%many_r = phi i64 [ 0, %entry ], [ %many_next, %many_end ]");
    w_.line("%many_next = add i64 %many_r, " + std::to_string(many * w_.lanes()));
    w_.line("%many_fit = icmp ule i64 %many_next, %rows");
    w_.line("br i1 %many_fit, label %many_tile, label %one");
    write_tile("many_", "%many_r", many, "");
    w_.line("br label %many");

    w_.line("one:");
    if (many > 1) {
      w_.line("%one_r = phi i64 [ %many_r, %many ], [ %one_next, %one_end ]");
      w_.line("%one_next = add i64 %one_r, " + std::to_string(w_.lanes()));
      w_.line("%one_fits = icmp ule i64 %one_next, %rows");
      w_.line("br i1 %one_fits, label %one_tile, label %rest");
      write_tile("one_", "%one_r", 1, "");
      w_.line("br label %one");
    } else {
      // `many` branches to `one` all the same. Its tiles of one vector have left no full vector.
      w_.line("br label %rest");
    }

    w_.line("rest:");
    const std::string r = many > 1 ? "%one_r" : "%many_r";
    w_.line("%left = sub i64 %rows, " + r);
    const std::string mask = mask_of("%left");
    w_.line("%is_left = icmp ult i64 " + r + ", %rows");
    w_.line("br i1 %is_left, label %rest_tile, label %exit");
    write_tile("rest_", r, 1, mask);
    w_.line("br label %exit");
    w_.line("exit:");
    w_.line("ret void");
    return module();
  }

 private:
  // Vectors of one element share cache lines and loop counters; of expensive values, the code would be long.
  size_t vectors_of_tile() const {
    size_t reductions = 0;
    bool is_cheap = true;
    for (uint32_t i = 0; i < program_.code.size(); ++i) {
      reductions += is_reduction(program_.code[i].op) ? 1 : 0;
      is_cheap = is_cheap && schedule_.is_cheap[i];
    }
    return is_cheap && reductions <= 2 ? cost_model::kUnrolledVectors : 1;
  }

  // ---- a tile: blocks named NAME…, from NAMEtile to NAMEend

  void write_tile(const std::string& name, const std::string& r, size_t vectors, const std::string& mask) {
    w_.line(name + "tile:");
    // `of_row_` has its size before the vectors of the tile point into it.
    of_row_.assign(vectors, {});
    std::vector<Vector> tile;
    for (size_t v = 0; v < vectors; ++v) {
      const std::string index = v == 0 ? r : w_.value("add i64 " + r + ", " + std::to_string(v * w_.lanes()));
      tile.push_back({0, "%first", index, mask, &of_row_[v]});
      write_row_values(tile[v], 0);
    }
    for (uint32_t pass = 0; pass < schedule_.passes; ++pass) {
      const std::string p = name + std::to_string(pass);
      w_.line("br label %" + p);
      w_.line(p + ":");
      write_pass(p, pass, tile);
    }
    w_.line("br label %" + name + "end");
    w_.line(name + "end:");
  }

  // Returns the name of a value of the reduction in a vector of the tile.
  static std::string part(const std::string& p, const char* what, uint32_t reduction, size_t vector) {
    return "%" + p + what + std::to_string(reduction) + "_" + std::to_string(vector);
  }

  // ---- a pass over the elements of the tile's rows, in blocks
  //
  //   block:  some elements of a segment; the reductions of those before: all, and the last blocks' own
  //   loop:   an element of each row
  //   sum:    the block's reductions to those of the last blocks; the latter to all, now and then
  //
  //   all = last = start; n = 1                              n counts blocks of all segments
  //   for (s = 0; s < segments; ++s)
  //     for (b = 0; b < elements; b += kBlockOfColumn, ++n)
  //       reduction = start
  //       for each element of the block: reduction = combined(reduction, element); store results
  //       last = combined(last, reduction)
  //       if (n % kBlocksOfSum == 0): all = combined(all, last); last = start
  //   result = combined(all, last)
  //
  // So a sum is a sum of sums of sums: as precise as LibTorch's cascades.

  void write_pass(const std::string& p, uint32_t pass, const std::vector<Vector>& tile) {
    const std::vector<uint32_t> reductions = reductions_of(pass);
    const auto for_each_part = [&](const auto& action) {
      for (const uint32_t reduction : reductions) {
        for (size_t v = 0; v < tile.size(); ++v) {
          action(reduction, v);
        }
      }
    };
    const std::string block = p + "_block";
    w_.line("br label %" + block);
    w_.line(block + ":");
    const std::string from_sum = ", %" + p + "_sum ]";
    w_.line("%" + p + "_s = phi i64 [ 0, %" + p + " ], [ %" + p + "_next_s" + from_sum);
    w_.line("%" + p + "_b = phi i64 [ 0, %" + p + " ], [ %" + p + "_next_b" + from_sum);
    w_.line("%" + p + "_n = phi i64 [ 1, %" + p + " ], [ %" + p + "_next_n" + from_sum);
    for_each_part([&](uint32_t reduction, size_t v) {
      for (const char* what : {"_all", "_last"}) {
        w_.line(part(p, what, reduction, v) + " = phi " + type_of(reduction) + " [ " + start_of(reduction) + ", %" + p +
                " ], [ " + part(p, (std::string("_next") + what).c_str(), reduction, v) + from_sum);
      }
    });
    const std::string left = w_.value("sub i64 %elements, %" + p + "_b");
    // The last block of a segment may be shorter. It has one element at least, so `loop` is tested at its end.
    const std::string is_last = w_.value("icmp ule i64 " + left + ", " + std::to_string(cost_model::kBlockOfColumn));
    const std::string count =
        w_.value("select i1 " + is_last + ", i64 " + left + ", i64 " + std::to_string(cost_model::kBlockOfColumn));
    std::vector<std::string> starts(operands_);
    for_each_moving_operand([&](size_t k) {
      const std::string n = std::to_string(k);
      const std::string of_segments = w_.value("mul i64 %" + p + "_s, %segment_step" + n);
      const std::string of_elements = w_.value("mul i64 %" + p + "_b, %element_step" + n);
      starts[k] =
          w_.value("getelementptr i8, ptr %first" + n + ", i64 " + w_.value("add i64 " + of_segments + ", " + of_elements));
    });
    w_.line("br label %" + p + "_loop");

    w_.line(p + "_loop:");
    const auto phi = [&](const std::string& of, const std::string& type, const std::string& start, const std::string& next) {
      w_.line(of + " = phi " + type + " [ " + start + ", %" + block + " ], [ " + next + ", %" + p + "_loop ]");
    };
    phi("%" + p + "_i", "i64", "0", "%" + p + "_next_i");
    const std::string pointers = "%" + p + "_at";
    for_each_moving_operand([&](size_t k) {
      const std::string n = std::to_string(k);
      phi(pointers + n, "ptr", starts[k], "%" + p + "_next_at" + n);
    });
    for_each_part([&](uint32_t reduction, size_t v) {
      phi(part(p, "_reduction", reduction, v), type_of(reduction), start_of(reduction), part(p, "_more", reduction, v));
    });
    for (size_t v = 0; v < tile.size(); ++v) {
      Vector elements{pass, pointers, tile[v].index, tile[v].mask, tile[v].of_row};
      for (const uint32_t reduction : reductions) {
        define(part(p, "_more", reduction, v), reduction, reduced(elements, reduction, part(p, "_reduction", reduction, v)));
      }
      write_stores(elements);
    }
    for_each_moving_operand([&](size_t k) {
      const std::string n = std::to_string(k);
      w_.line("%" + p + "_next_at" + n + " = getelementptr i8, ptr " + pointers + n + ", i64 %element_step" + n);
    });
    w_.line("%" + p + "_next_i = add i64 %" + p + "_i, 1");
    w_.line("%" + p + "_more = icmp ult i64 %" + p + "_next_i, " + count);
    w_.line("br i1 %" + p + "_more, label %" + p + "_loop, label %" + p + "_sum");

    w_.line(p + "_sum:");
    const std::string full_blocks = w_.value("and i64 %" + p + "_n, " + std::to_string(cost_model::kBlocksOfSum - 1));
    const std::string is_full = w_.value("icmp eq i64 " + full_blocks + ", 0");
    for_each_part([&](uint32_t reduction, size_t v) {
      const std::string last = combined(reduction, part(p, "_last", reduction, v), part(p, "_more", reduction, v));
      const std::string all = combined(reduction, part(p, "_all", reduction, v), last);
      const auto chosen = [&](const char* what, const std::string& if_full, const std::string& otherwise) {
        w_.line(part(p, what, reduction, v) + " = select i1 " + is_full + ", " + type_of(reduction) + " " + if_full + ", " +
                type_of(reduction) + " " + otherwise);
      };
      chosen("_next_all", all, part(p, "_all", reduction, v));
      chosen("_next_last", start_of(reduction), last);
    });
    const std::string next = w_.value("add i64 %" + p + "_b, " + count);
    const std::string next_segment = w_.value("add i64 %" + p + "_s, 1");
    w_.line("%" + p + "_next_n = add i64 %" + p + "_n, 1");
    // One loop runs over the blocks of all segments: after the last block of a segment, b begins again and s moves on.
    w_.line("%" + p + "_next_b = select i1 " + is_last + ", i64 0, i64 " + next);
    w_.line("%" + p + "_next_s = select i1 " + is_last + ", i64 " + next_segment + ", i64 %" + p + "_s");
    w_.line("%" + p + "_blocks = icmp ult i64 %" + p + "_next_s, %segments");
    w_.line("br i1 %" + p + "_blocks, label %" + block + ", label %" + p + "_done");

    w_.line(p + "_done:");
    for_each_part([&](uint32_t reduction, size_t v) {
      of_row_[v][reduction] = combined(reduction, part(p, "_next_all", reduction, v), part(p, "_next_last", reduction, v));
    });
    for (const Vector& each : tile) {
      Vector rows = each;
      write_row_values(rows, pass + 1);
    }
  }

  // Calls `action` with the operands that are not the same for all elements of a row.
  template <typename Action>
  void for_each_moving_operand(const Action& action) const {
    for (size_t k = 0; k < operands_; ++k) {
      // Columns have no buffers (schedule.cpp): what is no input is an output.
      const bool is_input = k < program_.inputs.size();
      const bool is_of_row = is_input ? program_.is_of_row(program_.inputs[k])
                                      : program_.outputs[k - program_.inputs.size()].access == Access::kOne;
      if (!is_of_row) {
        action(k);
      }
    }
  }

  std::vector<Values> of_row_;  // by vector of the tile
};

}  // namespace

std::string column_loops_text(const KernelProgram& program, size_t lanes) { return ColumnLoops(program, lanes).text(); }

}  // namespace sconce
