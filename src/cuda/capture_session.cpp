#include "cuda/capture_session.h"

#include "base/assert.h"
#include "cuda/stream_capture.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <optional>

namespace sconce::cuda {
namespace {

Refusal in_words(const std::string& what, const Refusal& refusal) {
  return Refusal::because(what + " (" + refusal.reason + ")");
}

class StreamScope {
 public:
  StreamScope(TorchBridge& bridge, c10::Stream stream) : bridge_(bridge), before_(bridge.exchange_stream(stream)) {}
  ~StreamScope() { bridge_.exchange_stream(before_); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  TorchBridge& bridge_;
  const c10::Stream before_;
};

// A share in a pool. As long as one exists, the pool's memory is not used for other allocations.
class PoolShare {
 public:
  PoolShare(TorchBridge& bridge, std::shared_ptr<CudaPool> pool) : bridge_(bridge), pool_(std::move(pool)) {}
  ~PoolShare() { bridge_.release(pool_->device(), pool_->id()); }
  PoolShare(const PoolShare&) = delete;
  PoolShare& operator=(const PoolShare&) = delete;

 private:
  TorchBridge& bridge_;
  const std::shared_ptr<CudaPool> pool_;
};

// The pool serves all streams of the capture, including those that an operator forks.
class AllocatingScope {
 public:
  AllocatingScope(Driver& driver, TorchBridge& bridge, const CudaPool& pool)
      : bridge_(bridge), device_(pool.device()), pool_(pool.id()) {
    bridge_.begin_allocating(device_, pool_, [&driver, capture = capture_](CUstream stream) {
      CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
      uint64_t id = 0;
      return driver.capture_info(stream, &status, &id) && status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id == capture->load();
    });
  }
  ~AllocatingScope() { bridge_.end_allocating(device_, pool_); }
  AllocatingScope(const AllocatingScope&) = delete;
  AllocatingScope& operator=(const AllocatingScope&) = delete;

  void serve(const StreamCapture& capture) { capture_->store(capture.id()); }

 private:
  TorchBridge& bridge_;
  const c10::DeviceIndex device_;
  const PoolId pool_;
  // Called by other threads that allocate. The id is known only after the capture has begun; no capture has the id 0.
  const std::shared_ptr<std::atomic<uint64_t>> capture_ = std::make_shared<std::atomic<uint64_t>>(0);
};

class CudaCapture final : public Capture {
 public:
  CudaCapture(Driver& driver, TorchBridge& bridge, CUcontext context, std::unique_ptr<PoolShare> share,
              std::unique_ptr<ExecutableGraph> graph)
      : driver_(driver), bridge_(bridge), context_(context), share_(std::move(share)), graph_(std::move(graph)) {}
  ~CudaCapture() override {
    const ContextScope current(driver_, context_);
    graph_.reset();
  }

  void replay(c10::Stream stream) override {
    const ContextScope current(driver_, context_);
    TORCH_CHECK(current.status(), "a captured CUDA graph cannot be replayed (", current.status().refusal().reason, ")");
    const Expected<void> status = graph_->launch(bridge_.handle(stream));
    TORCH_CHECK(status, "a captured CUDA graph cannot be replayed (", status.refusal().reason, ")");
  }
  size_t nodes() const override { return graph_->nodes(); }

 private:
  Driver& driver_;
  TorchBridge& bridge_;
  const CUcontext context_;
  const std::unique_ptr<PoolShare> share_;  // outlives the graph, which uses the pool's memory
  std::unique_ptr<ExecutableGraph> graph_;
};

class CudaSession final : public CaptureSession {
 public:
  CudaSession(Driver& driver, TorchBridge& bridge, CUcontext context)
      : driver_(driver), bridge_(bridge), context_(context) {}
  ~CudaSession() override { undo(); }

  Expected<void> begin(c10::Stream stream, std::shared_ptr<CudaPool> pool) {
    const ContextScope current(driver_, context_);
    if (!current.status()) {
      return current.status();
    }
    stream_.emplace(bridge_, stream);
    allocating_.emplace(driver_, bridge_, *pool);
    share_ = std::make_unique<PoolShare>(bridge_, std::move(pool));
    auto begun = StreamCapture::begin(driver_, bridge_.handle(stream));
    if (!begun) {
      return begun.refusal();
    }
    capture_ = std::move(*begun);
    allocating_->serve(*capture_);
    return {};
  }

  Expected<std::unique_ptr<Capture>> finish() override {
    SCONCE_ASSERT(capture_ != nullptr, "a capture is finished once");
    auto graph = [&] {
      const ContextScope current(driver_, context_);
      auto finished = capture_->finish();
      capture_.reset();
      return finished;
    }();
    std::unique_ptr<PoolShare> share = std::move(share_);
    undo();
    if (!graph) {
      return in_words("the work cannot be captured as a CUDA graph", graph.refusal());
    }
    return std::make_unique<CudaCapture>(driver_, bridge_, context_, std::move(share), std::move(*graph));
  }

 private:
  void undo() {
    const ContextScope current(driver_, context_);
    capture_.reset();
    allocating_.reset();
    share_.reset();
    stream_.reset();
  }

  Driver& driver_;
  TorchBridge& bridge_;
  const CUcontext context_;
  std::optional<StreamScope> stream_;
  std::optional<AllocatingScope> allocating_;
  std::unique_ptr<PoolShare> share_;
  std::unique_ptr<StreamCapture> capture_;
};

}  // namespace

Expected<std::unique_ptr<CaptureSession>> begin_session(Driver& driver, TorchBridge& bridge, CUcontext context,
                                                        c10::Stream stream, std::shared_ptr<CapturePool> pool) {
  auto cuda_pool = std::dynamic_pointer_cast<CudaPool>(std::move(pool));
  SCONCE_ASSERT(cuda_pool != nullptr && cuda_pool->device() == stream.device_index(),
                "a capture's pool is of the device of its stream");
  if (bridge.handle(stream) == nullptr) {
    return Refusal::because("the default stream cannot be captured; use a side stream");
  }
  auto session = std::make_unique<CudaSession>(driver, bridge, context);
  const Expected<void> status = session->begin(stream, std::move(cuda_pool));
  if (!status) {
    return in_words("the capture of a CUDA graph cannot begin", status.refusal());
  }
  return session;
}

}  // namespace sconce::cuda
