// Prints grid programs as CUDA C++, for the run-time compiler.
#pragma once

#include "base/expected.h"
#include "fusion/cuda/grid_program.h"

#include <span>
#include <string>
#include <vector>

namespace sconce {

// The kernels' names in the text.
inline constexpr const char* kGridKernelName = "sconce_kernel";
inline constexpr const char* kListKernelName = "sconce_kernel_of_list";

// Returns a module with one kernel. Its one parameter is a struct: the addresses of the first elements, inputs before
// outputs; the numbers, eight bytes each; where in memory the kernel finds each of them instead, or null; the words, as wide
// as the form's indices. Refuses programs that call a function
// that there is no text of, and those whose parameter is larger than a kernel may have (4 KiB).
//
// A form with a list has a second kernel. Its parameter is a list of such structs, and of the last block of each: the first
// blocks compute what the first struct says, and so on.
Expected<std::string> cuda_text(const GridProgram& grid);

// Returns the bytes of that parameter. `number_memory` may be empty: null for each number.
std::vector<char> parameter_of(const GridProgram& grid, std::span<void* const> first, std::span<const int64_t> numbers,
                               std::span<const void* const> number_memory, std::span<const int64_t> words);

// Returns the bytes of that struct in memory.
size_t bytes_of_parameter(const GridProgram& grid);
// Returns how many calls a list has at most.
size_t calls_of_list(const GridProgram& grid);
struct ListedCall {
  std::vector<char> parameter;
  uint32_t blocks;
};
// Returns the bytes of the parameter for these calls.
std::vector<char> parameter_of_list(const GridProgram& grid, std::span<const ListedCall> calls);

}  // namespace sconce
