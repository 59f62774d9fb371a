#include "fusion/cuda/grid_writer.h"
#include "fusion/cuda/grids.h"

namespace sconce {
namespace {

class ElementGrid : public GridWriter {
 public:
  using GridWriter::GridWriter;

  GridProgram write() {
    const Space space = read_space();
    GridVariable count = space.sizes[0];
    for (uint32_t dim = 1; dim < form().dims; ++dim) {
      count = multiply(count, space.sizes[dim]);
    }
    const GridVariable vector = constant(form().vector);
    const GridVariable of_block = constant(static_cast<int64_t>(form().threads) * form().vector);
    const GridVariable first =
        add(multiply(index(GridOp::kBlock, {}), of_block), multiply(index(GridOp::kThread, {}), vector));
    const GridVariable step = multiply(index(GridOp::kBlocks, {}), of_block);
    const GridVariable at = begin_for(first, count, step);
    Elements elements{
        .offsets = offsets_of(space, form().dims, at), .count = form().vector, .strides = space.strides.back()};
    std::vector<const Variables*> values;
    for (const KernelOutput& output : program().outputs) {
      values.push_back(&values_of(elements, output.value));
    }
    // A kernel may write what it reads.
    for (size_t k = 0; k < values.size(); ++k) {
      store(program().inputs.size() + k, elements, *values[k]);
    }
    end();
    return take();
  }
};

}  // namespace

GridProgram grid_of_elements(const KernelProgram& program, const GridForm& form) {
  return ElementGrid(program, form).write();
}

}  // namespace sconce
