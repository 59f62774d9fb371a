// Machine code of kernels, kept on disk from process to process.
#pragma once

#include "base/file_cache.h"
#include "cuda/nvrtc.h"

#include <string>
#include <vector>

namespace sconce::cuda {

// Returns the machine code from the cache, or compiles the text and keeps it there. Code of another compiler, chip or
// options has another key. What cannot be compiled is not kept.
Expected<std::string> compile_or_find(const Nvrtc& nvrtc, const FileCache& cache, const std::string& text,
                                      const std::string& architecture, const std::vector<std::string>& options);

}  // namespace sconce::cuda
