#include "fusion/cpu/llvm_text.h"

#include "fusion/cpu/row_loops.h"

namespace sconce {

std::string llvm_text(const KernelProgram& program, size_t lanes) {
  return program.order == LoopOrder::kColumns ? column_loops_text(program, lanes) : row_loops_text(program, lanes);
}

}  // namespace sconce
