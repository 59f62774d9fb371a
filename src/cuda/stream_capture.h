// CUDA graphs at the driver's level: captures the work sent to a stream as one executable graph.
//
//   auto capture = StreamCapture::begin(driver, stream);  // from here the stream runs nothing
//   … launches and copies on `stream`, and on streams that wait for it …
//   auto graph = (*capture)->finish();                      // the stream runs again
//   auto launched = (*graph)->launch(any_stream);
//
// A capture that is abandoned or fails leaves no graph, and the stream in its state before `begin`. The context must be
// current in every call. cuda_runtime.cpp handles memory and LibTorch's state.
#pragma once

#include "cuda/driver.h"

#include <memory>

namespace sconce::cuda {

class ExecutableGraph {
 public:
  ~ExecutableGraph();
  ExecutableGraph(const ExecutableGraph&) = delete;
  ExecutableGraph& operator=(const ExecutableGraph&) = delete;

  // Enqueues everything that was captured. The driver does not allow two threads to launch one graph at the same time. Two
  // launches of one graph run one after the other, whatever their streams.
  Expected<void> launch(CUstream stream);
  size_t nodes() const { return nodes_; }

 private:
  friend class StreamCapture;
  ExecutableGraph(Driver& driver, CUgraphExec executable, size_t nodes)
      : driver_(driver), executable_(executable), nodes_(nodes) {}

  Driver& driver_;
  CUgraphExec executable_;
  size_t nodes_;
};

class StreamCapture {
 public:
  // Begins to capture a stream, which must not be the default stream or be captured already. `finish` and the destructor
  // must run on the calling thread. Other threads may allocate memory meanwhile.
  static Expected<std::unique_ptr<StreamCapture>> begin(Driver& driver, CUstream stream);
  // Abandons an unfinished capture.
  ~StreamCapture();
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  // Identifies this capture in the process. Streams forked from the captured one report it, too.
  uint64_t id() const { return id_; }

  // Ends the capture, whatever the outcome. Fails if a call that cannot be captured was made meanwhile
  // (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), or if a forked stream was not joined.
  Expected<std::unique_ptr<ExecutableGraph>> finish();

 private:
  StreamCapture(Driver& driver, CUstream stream) : driver_(driver), stream_(stream) {}

  Driver& driver_;
  CUstream stream_;
  uint64_t id_ = 0;
  bool open_ = true;
};

}  // namespace sconce::cuda
