#include "fusion/cuda/grid_writer.h"
#include "fusion/cuda/grids.h"

namespace sconce {
namespace {

class ElementGrid : public GridWriter {
 public:
  ElementGrid(const KernelProgram& program, const GridForm& form) : GridWriter(program, form) {}

  GridProgram write() {
    const Space space = read_space();
    LoopVariable count = space.sizes[0];
    for (uint32_t dim = 1; dim < form().dims; ++dim) {
      count = multiply(count, space.sizes[dim]);
    }
    const LoopVariable of_block = constant(form().threads);
    const LoopVariable thread = add(multiply(index(LoopOp::kBlock, {}), of_block), index(LoopOp::kThread, {}));
    const LoopVariable threads = multiply(index(LoopOp::kBlocks, {}), of_block);
    if (form().vector == 1) {
      write_loop(space, thread, count, threads, 1);
      return take();
    }
    const LoopVariable vector = constant(form().vector);
    // With several dimensions, `vector` divides the size of a row: nothing is left at its end.
    const LoopVariable whole =
        form().dims > 1 ? count : index(LoopOp::kSubtract, {count, index(LoopOp::kRemainder, {count, vector})});
    const LoopVariable is_aligned = element(LoopOp::kIsAligned, at::kBool, {}, form().vector);
    const LoopVariable end = index(LoopOp::kChoose, {is_aligned, whole, constant(0)});
    write_loop(space, multiply(thread, vector), end, multiply(threads, vector), form().vector);
    write_loop(space, add(end, thread), count, threads, 1);
    return take();
  }

 private:
  // `neighbors`: how many elements each turn computes.
  void write_loop(const Space& space, LoopVariable first, LoopVariable last, LoopVariable step, uint32_t neighbors) {
    const LoopVariable at = begin_for(first, last, step, /*is_rest=*/neighbors < form().vector);
    Elements elements{.places = offsets_of(space, form().dims, at), .count = neighbors, .strides = space.strides.back()};
    std::vector<const Variables*> values;
    for (const KernelOutput& output : program().outputs) {
      values.push_back(&values_of(elements, output.value));
    }
    // A kernel may write what it reads.
    for (size_t k = 0; k < values.size(); ++k) {
      store(program().inputs.size() + k, elements, *values[k]);
    }
    end();
  }
};

}  // namespace

GridProgram grid_of_elements(const KernelProgram& program, const GridForm& form) {
  return ElementGrid(program, form).write();
}

}  // namespace sconce
