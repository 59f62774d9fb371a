#include "cuda/stream_capture.h"

namespace sconce::cuda {
namespace {

// The graph is only a template for the executable graph.
class OwnedGraph {
 public:
  explicit OwnedGraph(Driver& driver) : driver_(driver) {}
  ~OwnedGraph() {
    if (handle != nullptr) {
      const RelaxedMode relaxed(driver_);
      ignore(driver_.destroy_graph(handle));
    }
  }
  OwnedGraph(const OwnedGraph&) = delete;
  OwnedGraph& operator=(const OwnedGraph&) = delete;

  CUgraph handle = nullptr;

 private:
  Driver& driver_;
};

}  // namespace

ExecutableGraph::~ExecutableGraph() {
  const RelaxedMode relaxed(driver_);
  ignore(driver_.destroy_executable_graph(executable_));
}

Expected<void> ExecutableGraph::launch(CUstream stream) { return driver_.launch_graph(executable_, stream); }

Expected<std::unique_ptr<StreamCapture>> StreamCapture::begin(Driver& driver, CUstream stream) {
  // Thread-local mode: calls of this thread that cannot be captured invalidate the capture. Calls of other threads,
  // such as a loader that allocates, do not.
  Expected<void> status = driver.begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  if (!status) {
    return status.refusal();
  }
  std::unique_ptr<StreamCapture> begun(new StreamCapture(driver, stream));
  CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
  status = driver.capture_info(stream, &state, &begun->id_);
  if (!status) {
    return status.refusal();
  }
  return begun;
}

StreamCapture::~StreamCapture() {
  if (open_) {
    OwnedGraph graph(driver_);
    ignore(driver_.end_capture(stream_, &graph.handle));
  }
}

Expected<std::unique_ptr<ExecutableGraph>> StreamCapture::finish() {
  OwnedGraph graph(driver_);
  open_ = false;
  Expected<void> status = driver_.end_capture(stream_, &graph.handle);
  if (!status) {
    return status.refusal();
  }
  size_t nodes = 0;
  status = driver_.graph_node_count(graph.handle, &nodes);
  if (!status) {
    return status.refusal();
  }
  // Instantiated like LibTorch's own graphs: a second launch frees memory that is still allocated (the
  // cudaMallocAsync allocator needs that), and nodes keep the priority of the stream they were captured on.
  CUgraphExec handle = nullptr;
  const RelaxedMode relaxed(driver_);
  status = driver_.instantiate_graph(
      graph.handle, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY,
      &handle);
  if (!status) {
    return status.refusal();
  }
  return std::unique_ptr<ExecutableGraph>(new ExecutableGraph(driver_, handle, nodes));
}

}  // namespace sconce::cuda
