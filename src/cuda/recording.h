// CUDA graphs on the driver's level: what a stream was given while it was recorded, as one executable graph.
//
//   auto recording = StreamRecording::begin(driver, stream);  // from here the stream runs nothing
//   … launches and copies on `stream`, and on streams that wait for it …
//   auto graph = (*recording)->finish();                      // the stream runs again
//   auto launched = (*graph)->launch(any_stream);
//
// A recording that is not finished, or fails to, leaves no graph behind and the stream as it was before `begin`.
// The context must be current in every call. Memory and LibTorch's state are cuda_runtime.cpp's concern.
#pragma once

#include "cuda/driver.h"

#include <memory>

namespace sconce::cuda {

class ExecutableGraph {
 public:
  ~ExecutableGraph();
  ExecutableGraph(const ExecutableGraph&) = delete;
  ExecutableGraph& operator=(const ExecutableGraph&) = delete;

  // Enqueues everything that was recorded. Not from two threads at once, as the driver demands; two launches of one
  // graph run one after the other, whatever their streams.
  Expected<void> launch(CUstream stream);
  size_t nodes() const { return nodes_; }

 private:
  friend class StreamRecording;
  ExecutableGraph(Driver& driver, CUgraphExec executable, size_t nodes)
      : driver_(driver), executable_(executable), nodes_(nodes) {}

  Driver& driver_;
  CUgraphExec executable_;
  size_t nodes_;
};

class StreamRecording {
 public:
  // `stream` must not be the default stream and not be recorded already. Belongs to the calling thread: `finish` and
  // the destructor must run on it. Other threads may go on to allocate memory.
  static Expected<std::unique_ptr<StreamRecording>> begin(Driver& driver, CUstream stream);
  // Abandons the recording if it was not finished.
  ~StreamRecording();
  StreamRecording(const StreamRecording&) = delete;
  StreamRecording& operator=(const StreamRecording&) = delete;

  // Names this recording among all of the process; a stream that was forked off reports it too.
  uint64_t id() const { return id_; }

  // Ends the recording, whatever the outcome. Fails when something that cannot be recorded was called meanwhile
  // (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), or a forked stream was not joined again.
  Expected<std::unique_ptr<ExecutableGraph>> finish();

 private:
  StreamRecording(Driver& driver, CUstream stream) : driver_(driver), stream_(stream) {}

  Driver& driver_;
  CUstream stream_;
  uint64_t id_ = 0;
  bool open_ = true;
};

}  // namespace sconce::cuda
