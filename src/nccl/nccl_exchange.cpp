// libsconce_nccl: NCCL between GPUs, as LibTorch has it. A library of its own, because it links LibTorch's CUDA library,
// which no other library of sconce does.
#define USE_C10D_NCCL 1
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <chrono>
#include <cstdint>

// The only symbol that libsconce_cuda looks up here (cuda/torch_bridge.cpp). The caller owns the result.
extern "C" __attribute__((visibility("default"))) c10d::Backend* sconce_nccl_exchange(c10d::Store* store, int rank,
                                                                                      int world, int64_t timeout_ms) {
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(timeout_ms);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::intrusive_ptr<c10d::Store>::reclaim_copy(store), rank, world,
                                                     options)
      .release();
}
