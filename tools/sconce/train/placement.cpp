#include "tools/sconce/train/placement.h"

#include <ATen/Context.h>

namespace sconce::cli {
namespace {

// The finalizer of splitmix64.
uint64_t mixed_bits(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

}  // namespace

void seed_draws(uint64_t seed, uint64_t step, uint64_t call) {
  constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;
  at::manual_seed(mixed_bits(mixed_bits(mixed_bits(seed + kGoldenRatio) + step + kGoldenRatio) + call + kGoldenRatio));
}

}  // namespace sconce::cli
