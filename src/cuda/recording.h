// CUDA graphs on the driver's level: what a stream was given while it was recorded, as one executable graph.
//
//   std::unique_ptr<StreamRecording> recording;
//   Status status = StreamRecording::begin(driver, stream, &recording);  // from here the stream runs nothing
//   … launches and copies on `stream`, and on streams that wait for it …
//   std::unique_ptr<ExecutableGraph> graph;
//   status = recording->finish(&graph);                                  // the stream runs again
//   status = graph->launch(any_stream);
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
  Status launch(CUstream stream);
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
  static Status begin(Driver& driver, CUstream stream, std::unique_ptr<StreamRecording>* recording);
  // Abandons the recording if it was not finished.
  ~StreamRecording();
  StreamRecording(const StreamRecording&) = delete;
  StreamRecording& operator=(const StreamRecording&) = delete;

  // Names this recording among all of the process; a stream that was forked off reports it too.
  uint64_t id() const { return id_; }

  // Ends the recording, whatever the outcome. Fails when something that cannot be recorded was called meanwhile
  // (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), or a forked stream was not joined again.
  Status finish(std::unique_ptr<ExecutableGraph>* graph);

 private:
  StreamRecording(Driver& driver, CUstream stream) : driver_(driver), stream_(stream) {}

  Driver& driver_;
  CUstream stream_;
  uint64_t id_ = 0;
  bool open_ = true;
};

}  // namespace sconce::cuda
