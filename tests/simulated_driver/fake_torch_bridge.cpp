#include "tests/simulated_driver/fake_torch_bridge.h"

#include "base/assert.h"
#include "tests/simulated_driver/fake_exchange.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/util/Exception.h>

namespace sconce::cuda {
namespace {

c10::Stream stream_with_id(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, 0), id);
}

at::Generator generator_of(c10::DeviceIndex device) {
  return at::globalContext().defaultGenerator(c10::Device(c10::DeviceType::CUDA, device));
}

}  // namespace

FakeTorchBridge::FakeTorchBridge(FakeDriver& driver, size_t side_streams) : driver_(driver), side_streams_(side_streams) {
  ignore(driver_.init());
  const ContextScope current(driver_, reinterpret_cast<CUcontext>(uintptr_t(1)));
  for (CUstream& stream : side_streams_) {
    const Expected<void> status = driver_.create_stream(CU_STREAM_NON_BLOCKING, &stream);
    SCONCE_ASSERT(status, status.refusal().reason);
  }
}

FakeTorchBridge::~FakeTorchBridge() {
  for (const CUstream stream : side_streams_) {
    ignore(driver_.destroy_stream(stream));
  }
}

std::optional<PoolId> FakeTorchBridge::pool_serving(CUstream stream) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [pool, serves] : allocating_) {
    if (serves(stream)) {
      return pool;
    }
  }
  return std::nullopt;
}

bool FakeTorchBridge::has_shares(PoolId pool) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return shares_.count(pool) != 0;
}

std::string FakeTorchBridge::leaks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  if (!allocating_.empty()) {
    text += std::to_string(allocating_.size()) + " pools still allocating; ";
  }
  if (!shares_.empty()) {
    text += std::to_string(shares_.size()) + " pools with shares; ";
  }
  for (const auto& [thread, stream] : current_) {
    text += stream.id() != 0 ? "a thread with a changed current stream; " : "";
  }
  return text;
}

c10::Stream FakeTorchBridge::current_stream(c10::DeviceIndex) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return current_.emplace(std::this_thread::get_id(), stream_with_id(0)).first->second;
}

c10::Stream FakeTorchBridge::side_stream(c10::DeviceIndex) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stream_with_id(c10::StreamId(next_side_stream_++ % side_streams_.size() + 1));
}

c10::Stream FakeTorchBridge::exchange_stream(c10::Stream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(current_.emplace(std::this_thread::get_id(), stream_with_id(0)).first->second, stream);
}

CUstream FakeTorchBridge::handle(c10::Stream stream) {
  const auto id = size_t(stream.id());
  return id == 0 ? nullptr : id <= side_streams_.size() ? side_streams_[id - 1] : reinterpret_cast<CUstream>(stream.id());
}

c10::Stream FakeTorchBridge::stream_of(CUstream stream, c10::DeviceIndex) {
  return stream_with_id(reinterpret_cast<c10::StreamId>(stream));
}

PoolId FakeTorchBridge::new_pool() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {0, next_pool_++};
}

void FakeTorchBridge::begin_allocating(c10::DeviceIndex, PoolId pool, std::function<bool(CUstream)> serves) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(shares_.count(pool) != 0 || begun_.insert(pool).second,
              "beginAllocateToPool: use_count > 0 INTERNAL ASSERT FAILED");
  TORCH_CHECK(allocating_.emplace(pool, std::move(serves)).second, "beginAllocateToPool: already recording to mempool_id");
  ++shares_[pool];
}

void FakeTorchBridge::end_allocating(c10::DeviceIndex, PoolId pool) {
  const std::lock_guard<std::mutex> lock(mutex_);
  SCONCE_ASSERT(allocating_.erase(pool) == 1, "the pool is not allocating");
}

void FakeTorchBridge::release(c10::DeviceIndex, PoolId pool) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = shares_.find(pool);
  SCONCE_ASSERT(found != shares_.end(), "the pool has no share to release");
  if (--found->second == 0) {
    shares_.erase(found);
  }
}

RandomState FakeTorchBridge::draw(c10::DeviceIndex device, uint64_t numbers) {
  at::Generator generator = generator_of(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const RandomState state{generator.current_seed(), generator.get_offset()};
  generator.set_offset(state.offset + numbers);
  return state;
}

void FakeTorchBridge::put_back(c10::DeviceIndex device, const RandomState& state, uint64_t numbers) {
  at::Generator generator = generator_of(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (generator.current_seed() == state.seed && generator.get_offset() == state.offset + numbers) {
    generator.set_offset(state.offset);
  }
}

c10::intrusive_ptr<c10d::Backend> FakeTorchBridge::make_exchange(c10::intrusive_ptr<c10d::Store> store, int rank, int world,
                                                                 std::chrono::milliseconds timeout) {
  return c10::make_intrusive<FakeExchange>(driver_, *this, std::move(store), rank, world, timeout);
}

}  // namespace sconce::cuda
