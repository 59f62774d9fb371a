// CUDA graphs at the driver's level: records the work sent to a stream as one executable graph.
//
//   std::unique_ptr<StreamRecording> recording;
//   Status status = StreamRecording::begin(driver, stream, &recording);  // from here the stream runs nothing
//   … launches and copies on `stream`, and on streams that wait for it …
//   std::unique_ptr<ExecutableGraph> graph;
//   status = recording->finish(&graph);                                  // the stream runs again
//   status = graph->launch(any_stream);
//
// A recording that is abandoned or fails leaves no graph, and the stream in its state before `begin`. The context must be
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

  // Enqueues everything that was recorded. The driver does not allow two threads to launch one graph at the same time. Two
  // launches of one graph run one after the other, whatever their streams.
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
  // Begins to record a stream, which must not be the default stream or be recorded already. `finish` and the destructor must
  // run on the calling thread. Other threads may allocate memory meanwhile.
  static Status begin(Driver& driver, CUstream stream, std::unique_ptr<StreamRecording>* recording);
  // Abandons an unfinished recording.
  ~StreamRecording();
  StreamRecording(const StreamRecording&) = delete;
  StreamRecording& operator=(const StreamRecording&) = delete;

  // Identifies this recording in the process. Streams forked from the recorded one report it, too.
  uint64_t id() const { return id_; }

  // Ends the recording, whatever the outcome. Fails if a call that cannot be recorded was made meanwhile
  // (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), or if a forked stream was not joined.
  Status finish(std::unique_ptr<ExecutableGraph>* graph);

 private:
  StreamRecording(Driver& driver, CUstream stream) : driver_(driver), stream_(stream) {}

  Driver& driver_;
  CUstream stream_;
  uint64_t id_ = 0;
  bool open_ = true;
};

}  // namespace sconce::cuda
