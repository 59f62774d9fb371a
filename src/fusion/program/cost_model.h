// Constants that decide whether and how nodes are fused, each with its reason. To change one, compare bench/kernels,
// bench/kernel_calls and bench/generic_chains before and after (bench/compare).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sconce::cost_model {

// ---- groups (form_groups)

// The weight of a group; a pointwise operator or a view weighs 1. Bounds the time that LLVM takes for a kernel, which grows
// faster than the kernel, and what is lost where one node makes all of its group run one by one.
constexpr size_t kMaxGroupWeight = 64;
// A reduction has loops of its own: code of the length of about this many pointwise operators.
constexpr size_t kWeightOfReduction = 16;

// ---- kernels (group_kernel)

// Elements up to which a kernel computes what LibTorch computes as fast once its set-up is paid: a copy, which LibTorch
// makes as a piece of memory, and one function of a tensor, which it leaves to MKL's vector library.
constexpr int64_t kMaxElementsAlone = 16'384;
// Lanes of a kernel that writes in place and calls no library function. It waits for memory: an AMD EPYC takes 1.1 times as
// long with vectors of 64 bytes as with vectors of 32 (bench/optimizer_step, sgd).
constexpr size_t kLanesOfStream = 8;
// Elements up to which a kernel reduces columns and writes a result of all elements: tiles of columns write a piece of each
// row, and beyond the caches that takes 1.2 times as long as one operator after the other (bench/reductions).
constexpr int64_t kMaxElementsOfColumns = 4'194'304;
// Elements of a row that is reduced. Lanes sum up independently; beyond this length LibTorch's sums in pairs are more
// precise.
constexpr int64_t kMaxReducedRow = 65'536;

// ---- schedules, in instructions

// The cost of a library function, such as exp or tanh.
constexpr size_t kCostOfLibraryFunction = 16;
// The cost up to which a value is computed again in a later pass over a row, rather than stored in a buffer.
constexpr size_t kMaxCostToRecompute = 8;

// ---- loops

// The cost of a square root or a quotient, in instructions.
constexpr size_t kCostOfRoot = 8;
// The cost from which on a value is computed once for all rows and kept for them, and the rows that this takes.
constexpr size_t kMinCostToShare = 8;
constexpr int64_t kMinRowsToShare = 8;
// Vectors that one iteration of a reduction's inner loop takes, so that additions do not wait for each other.
constexpr size_t kUnrolledVectors = 4;
// Elements of a column that are added up by themselves, and how many such sums are: so sums of n numbers round as if they
// were of kBlockOfColumn + kBlocksOfSum + n / (kBlockOfColumn * kBlocksOfSum), and LibTorch's cascades are not more precise.
constexpr int64_t kBlockOfColumn = 64;
constexpr int64_t kBlocksOfSum = 32;  // a power of 2
// Instructions below which a second thread costs more than it gains.
constexpr int64_t kMinWorkOfThread = 200'000;

}  // namespace sconce::cost_model
