#include "cuda/torch_bridge.h"

#include "base/shared_library.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <mutex>

namespace sconce::cuda {
namespace {

using Allocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;
static_assert(std::is_same_v<PoolId, c10::MempoolId_t>);

// `c10::cuda::CUDACachingAllocator::allocator`, looked up at run time, because linking libc10_cuda would load CUDA's
// libraries in every process. The allocator's virtual functions need no linking.
constexpr const char* kAllocatorSymbol = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";

// `at::CUDAGeneratorImpl::philox_cuda_state`, looked up for the same reason. `set_offset`, which every generator has, would
// make cuDNN's dropout begin anew.
constexpr const char* kDrawSymbol = "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm";
using Draw = at::PhiloxCudaState (*)(c10::GeneratorImpl*, uint64_t);

// The library with NCCL, and its only symbol (nccl/nccl_exchange.cpp).
constexpr const char* kNcclLibrary = "libsconce_nccl.so";
constexpr const char* kNcclSymbol = "sconce_nccl_exchange";
using MakeNccl = c10d::Backend* (*)(c10d::Store*, int, int, int64_t);

MakeNccl find_nccl() {
  const std::string directory = directory_of_code(reinterpret_cast<const void*>(&make_torch_bridge));
  const auto library = open_library(directory.empty() ? kNcclLibrary : directory + "/" + kNcclLibrary);
  TORCH_CHECK(library, "ranks cannot exchange tensors on GPUs: ", library.refusal().reason,
              "; the library is built where NCCL's header is found, and lies beside libsconce_cuda.so");
  return reinterpret_cast<MakeNccl>(library->symbol(kNcclSymbol));
}

class RealBridge final : public TorchBridge {
 public:
  RealBridge(const std::atomic<Allocator*>& allocator, Draw function)
      : allocator_(allocator), draw_(function), guard_(c10::DeviceType::CUDA) {}

  c10::Stream current_stream(c10::DeviceIndex device) override {
    return guard_.getStream(c10::Device(c10::DeviceType::CUDA, device));
  }
  c10::Stream side_stream(c10::DeviceIndex device) override {
    return guard_.getStreamFromGlobalPool(c10::Device(c10::DeviceType::CUDA, device));
  }
  c10::Stream exchange_stream(c10::Stream stream) override { return guard_.exchangeStream(stream); }
  CUstream handle(c10::Stream stream) override { return static_cast<CUstream>(stream.native_handle()); }
  // LibTorch numbers such streams by their addresses (c10/cuda/CUDAStream.cpp).
  c10::Stream stream_of(CUstream stream, c10::DeviceIndex device) override {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, device),
                       reinterpret_cast<c10::StreamId>(stream));
  }

  PoolId new_pool() override {
    // LibTorch numbers pools from 1 in either half, so the top bit makes sconce's unique.
    static std::atomic<unsigned long long> next{1ULL << 63};
    return {0, next++};
  }
  void begin_allocating(c10::DeviceIndex device, PoolId pool, std::function<bool(CUstream)> serves) override {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);  // before this, the allocator knows no device
    allocator().beginAllocateToPool(device, pool, std::move(serves));
  }
  void end_allocating(c10::DeviceIndex device, PoolId pool) override { allocator().endAllocateToPool(device, pool); }
  void release(c10::DeviceIndex device, PoolId pool) override { allocator().releasePool(device, pool); }

  RandomState draw(c10::DeviceIndex device, uint64_t numbers) override {
    TORCH_CHECK(draw_ != nullptr, "LibTorch's CUDA library has no function ", kDrawSymbol);
    at::Generator generator = generator_of(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    const at::PhiloxCudaState state = draw_(generator.unsafeGetGeneratorImpl(), numbers);
    TORCH_CHECK(!state.captured_, "the generator takes part in a capture of the caller's");
    return {state.seed_.val, state.offset_.val};
  }
  void put_back(c10::DeviceIndex device, const RandomState& state, uint64_t numbers) override {
    at::Generator generator = generator_of(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    if (generator.current_seed() == state.seed && generator.get_offset() == state.offset + numbers) {
      generator.set_offset(state.offset);
    }
  }
  c10::intrusive_ptr<c10d::Backend> make_exchange(c10::intrusive_ptr<c10d::Store> store, int rank, int world,
                                                  std::chrono::milliseconds timeout) override {
    return c10::intrusive_ptr<c10d::Backend>::reclaim(find_nccl()(store.get(), rank, world, timeout.count()));
  }

 private:
  // Read each time: programs may change LibTorch's allocator until CUDA is first used.
  Allocator& allocator() const { return *allocator_.load(); }

  static const at::Generator& generator_of(c10::DeviceIndex device) {
    return at::globalContext().defaultGenerator(c10::Device(c10::DeviceType::CUDA, device));
  }

  const std::atomic<Allocator*>& allocator_;
  const Draw draw_;  // or null
  const c10::impl::VirtualGuardImpl guard_;
};

}  // namespace

Expected<std::unique_ptr<TorchBridge>> make_torch_bridge() {
  const std::string not_loaded = "LibTorch's CUDA half is not loaded";
  const auto library = loaded_library("libc10_cuda.so");
  if (!library) {
    return Refusal::because(not_loaded + " (" + library.refusal().reason + ")");
  }
  const auto* allocator = static_cast<const std::atomic<Allocator*>*>(library->symbol(kAllocatorSymbol));
  if (allocator == nullptr || !c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    return Refusal::because(not_loaded);
  }
  const auto operators = loaded_library("libtorch_cuda.so");
  return std::make_unique<RealBridge>(*allocator,
                                      operators ? reinterpret_cast<Draw>(operators->symbol(kDrawSymbol)) : nullptr);
}

}  // namespace sconce::cuda
