// Where LibTorch's engine and sconce's backward meet.
#pragma once

namespace sconce {

class BackwardPrograms;

// Sets the programs that run the backwards of this thread; null: LibTorch's engine runs them. Returns those before. The
// first call that sets some puts an engine of ours before LibTorch's, for the whole process.
BackwardPrograms* set_backward_programs(BackwardPrograms* programs);

}  // namespace sconce
