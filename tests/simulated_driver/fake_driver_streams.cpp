// Streams, events, captures and graphs of the simulated driver.
#include "tests/simulated_driver/fake_driver.h"

#include <algorithm>

namespace sconce::cuda {
namespace {

constexpr int kNodeBits = 24;  // of a node's number in its handle

}  // namespace

FakeDriver::Stream* FakeDriver::find_stream(CUstream stream) {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : &found->second;
}

bool FakeDriver::captures_on_this_thread() const {
  return std::any_of(captures_.begin(), captures_.end(),
                     [](const auto& entry) { return entry.second.thread == std::this_thread::get_id(); });
}

// While a thread captures, a call that may allocate, free or load would break the captured order. The driver refuses the
// call and invalidates the capture, unless the thread is in relaxed mode.
CUresult FakeDriver::forbidden_while_capturing() {
  const auto mode = modes_.find(std::this_thread::get_id());
  if (mode != modes_.end() && mode->second == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_SUCCESS;
  }
  CUresult code = CUDA_SUCCESS;
  for (auto& [id, capture] : captures_) {
    const bool own = capture.thread == std::this_thread::get_id();
    if (capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL || (capture.mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && own)) {
      invalidate(capture);
      code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return code;
}

#define SCONCE_FAKE_CALL(function)                \
  const std::lock_guard<std::mutex> lock(mutex_); \
  CUresult code = enter(function);                \
  if (code != CUDA_SUCCESS) return outcome(function, code).refusal()

// ---- streams ------------------------------------------------------------------------------------------------------

Expected<void> FakeDriver::synchronize_context() {
  SCONCE_FAKE_CALL("synchronize_context");
  code = needs_context();
  // The context is that of the captured streams, too: no thread may wait for it, in any mode.
  for (auto& [id, capture] : captures_) {
    invalidate(capture);
    code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (code == CUDA_SUCCESS) {
    drain_all();
  }
  return outcome("synchronize_context", code);
}

Expected<void> FakeDriver::create_stream(unsigned flags, CUstream* stream) {
  SCONCE_FAKE_CALL("create_stream");
  code = needs_context();
  if (code == CUDA_SUCCESS) {
    code = forbidden_while_capturing();
  }
  if (code == CUDA_SUCCESS) {
    *stream = new_handle<CUstream>();
    streams_[*stream].is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  }
  return outcome("create_stream", code);
}

Expected<void> FakeDriver::destroy_stream(CUstream handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CUresult code = enter("destroy_stream");
  const Stream* stream = find_stream(handle);
  if (handle == nullptr || stream == nullptr || stream->capture != 0) {
    misuse_.emplace_back("a stream is destroyed that is unknown, the default one, or being captured");
    return outcome("destroy_stream", CUDA_ERROR_INVALID_HANDLE);
  }
  drain(handle);
  streams_.erase(handle);
  return outcome("destroy_stream", code);
}

Expected<void> FakeDriver::synchronize_stream(CUstream handle) {
  SCONCE_FAKE_CALL("synchronize_stream");
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) {
    code = CUDA_ERROR_INVALID_HANDLE;
  } else if (stream->capture != 0) {
    invalidate(captures_.at(stream->capture));
    code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  } else {
    drain(handle);
  }
  return outcome("synchronize_stream", code);
}

Expected<void> FakeDriver::stream_wait_event(CUstream handle, CUevent event_handle) {
  SCONCE_FAKE_CALL("stream_wait_event");
  Stream* stream = find_stream(handle);
  const auto found = events_.find(event_handle);
  if (stream == nullptr || found == events_.end()) {
    return outcome("stream_wait_event", CUDA_ERROR_INVALID_HANDLE);
  }
  const Event& event = found->second;
  const auto capture = captures_.find(event.capture);
  if (event.capture == 0) {
    if (stream->capture != 0) {
      // A captured stream cannot wait for work outside the capture.
      invalidate(captures_.at(stream->capture));
      return outcome("stream_wait_event", CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    if (event.recorded != 0) {
      stream->push({.awaited = event.stream, .position = event.queued});
    }
    return {};
  }
  if (capture == captures_.end() || (stream->capture != 0 && stream->capture != event.capture)) {
    return outcome("stream_wait_event", CUDA_ERROR_CAPTURED_EVENT);
  }
  // The stream joins the capture, and waits for the work of the event's stream so far.
  if (stream->capture == 0) {
    stream->capture = event.capture;
    capture->second.position[handle] = 1;
  }
  capture->second.last[handle] = 0;
  size_t& joined = capture->second.joined[event.stream];
  joined = std::max(joined, event.position);
  return {};
}

// ---- events -------------------------------------------------------------------------------------------------------

Expected<void> FakeDriver::create_event(unsigned flags, CUevent* event) {
  SCONCE_FAKE_CALL("create_event");
  code = needs_context();
  if (code == CUDA_SUCCESS) {
    code = forbidden_while_capturing();
  }
  if (code == CUDA_SUCCESS) {
    *event = new_handle<CUevent>();
    events_[*event].is_timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  }
  return outcome("create_event", code);
}

Expected<void> FakeDriver::destroy_event(CUevent event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CUresult code = enter("destroy_event");
  if (events_.erase(event) == 0) {
    misuse_.emplace_back("an unknown event is destroyed");
    return outcome("destroy_event", CUDA_ERROR_INVALID_HANDLE);
  }
  return outcome("destroy_event", code);
}

Expected<void> FakeDriver::record_event(CUevent handle, CUstream stream_handle) {
  SCONCE_FAKE_CALL("record_event");
  Stream* stream = find_stream(stream_handle);
  const auto found = events_.find(handle);
  if (stream == nullptr || found == events_.end()) {
    return outcome("record_event", CUDA_ERROR_INVALID_HANDLE);
  }
  Event& event = found->second;
  event.stream = stream_handle;
  event.capture = stream->capture;
  if (stream->capture != 0) {
    event.position = captures_.at(stream->capture).position[stream_handle];
    return {};
  }
  event.queued = stream->push({.record = handle, .version = ++event.recorded});
  return {};
}

Expected<bool> FakeDriver::query_event(CUevent handle) {
  SCONCE_FAKE_CALL("query_event");
  const auto found = events_.find(handle);
  if (found == events_.end()) {
    code = CUDA_ERROR_INVALID_HANDLE;
  } else if (found->second.capture != 0) {
    code = CUDA_ERROR_CAPTURED_EVENT;
  }
  if (code != CUDA_SUCCESS) {
    return outcome("query_event", code).refusal();
  }
  return found->second.completed >= found->second.recorded;
}

Expected<void> FakeDriver::synchronize_event(CUevent handle) {
  SCONCE_FAKE_CALL("synchronize_event");
  const auto found = events_.find(handle);
  if (found == events_.end()) {
    code = CUDA_ERROR_INVALID_HANDLE;
  } else if (found->second.capture != 0) {
    code = CUDA_ERROR_CAPTURED_EVENT;
  } else if (found->second.completed < found->second.recorded) {
    drain(found->second.stream, found->second.queued);
  }
  return outcome("synchronize_event", code);
}

Expected<void> FakeDriver::elapsed_milliseconds(CUevent start, CUevent end, float* milliseconds) {
  SCONCE_FAKE_CALL("elapsed_milliseconds");
  if (events_.count(start) == 0 || events_.count(end) == 0) {
    return outcome("elapsed_milliseconds", CUDA_ERROR_INVALID_HANDLE);
  }
  if (!events_[start].is_timed || !events_[end].is_timed) {
    return outcome("elapsed_milliseconds", CUDA_ERROR_INVALID_HANDLE);
  }
  *milliseconds = float(events_[end].tick - events_[start].tick);
  return {};
}

// ---- captures -----------------------------------------------------------------------------------------------------

Expected<void> FakeDriver::begin_capture(CUstream handle, CUstreamCaptureMode mode) {
  SCONCE_FAKE_CALL("begin_capture");
  Stream* stream = find_stream(handle);
  if (stream == nullptr) {
    code = CUDA_ERROR_INVALID_HANDLE;
  } else if (handle == nullptr) {
    code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  } else if (stream->capture != 0) {
    code = CUDA_ERROR_ILLEGAL_STATE;
  } else {
    stream->capture = next_capture_++;
    Capture& capture = captures_[stream->capture];
    capture.origin = handle;
    capture.mode = mode;
    capture.thread = std::this_thread::get_id();
  }
  return outcome("begin_capture", code);
}

Expected<void> FakeDriver::end_capture(CUstream handle, CUgraph* graph) {
  const std::lock_guard<std::mutex> lock(mutex_);
  CUresult code = enter("end_capture");
  const Stream* stream = find_stream(handle);
  const auto found = stream == nullptr ? captures_.end() : captures_.find(stream->capture);
  if (found == captures_.end()) {
    misuse_.emplace_back("the capture of a stream is ended that is not captured");
    return outcome("end_capture", CUDA_ERROR_ILLEGAL_STATE);
  }
  Capture& capture = found->second;
  if (capture.origin != handle) {
    return outcome("end_capture", CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  }
  if (capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != std::this_thread::get_id()) {
    return outcome("end_capture", CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }
  *graph = nullptr;
  if (code == CUDA_SUCCESS && capture.invalidated) {
    code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  for (const auto& [forked, position] : capture.position) {
    if (code == CUDA_SUCCESS && forked != handle && capture.joined[forked] < position) {
      code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
  }
  if (code == CUDA_SUCCESS) {
    *graph = new_handle<CUgraph>();
    graphs_[*graph] = std::move(capture.nodes);
  }
  for (auto& [each, state] : streams_) {
    state.capture = state.capture == found->first ? 0 : state.capture;
  }
  captures_.erase(found);
  return outcome("end_capture", code);
}

Expected<void> FakeDriver::capture_info(CUstream handle, CUstreamCaptureStatus* status, uint64_t* id) {
  SCONCE_FAKE_CALL("capture_info");
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) {
    return outcome("capture_info", CUDA_ERROR_INVALID_HANDLE);
  }
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream->capture != 0) {
    const bool invalidated = captures_.at(stream->capture).invalidated;
    *status = invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    *id = stream->capture;
  }
  return {};
}

// A node is known by its capture and its number.
Expected<void> FakeDriver::last_captured(CUstream handle, uint64_t* id, CUgraphNode* node) {
  SCONCE_FAKE_CALL("last_captured");
  Stream* stream = find_stream(handle);
  if (stream == nullptr) {
    return outcome("last_captured", CUDA_ERROR_INVALID_HANDLE);
  }
  *node = nullptr;
  if (stream->capture != 0 && !captures_.at(stream->capture).invalidated) {
    const size_t last = captures_.at(stream->capture).last[handle];
    *id = stream->capture;
    *node = last == 0 ? nullptr : reinterpret_cast<CUgraphNode>((stream->capture << kNodeBits) + last);
  }
  return {};
}

Expected<void> FakeDriver::set_kernel_node(CUgraphNode node, CUfunction function, const LaunchDimensions& dimensions,
                                           void** arguments) {
  SCONCE_FAKE_CALL("set_kernel_node");
  const auto bits = reinterpret_cast<uintptr_t>(node);
  const auto capture = captures_.find(bits >> kNodeBits);
  const size_t number = bits & ((size_t{1} << kNodeBits) - 1);
  if (capture == captures_.end() || !capture->second.kernels.contains(number)) {
    misuse_.emplace_back("a node is changed that is no launch of a capture");
    return outcome("set_kernel_node", CUDA_ERROR_INVALID_VALUE);
  }
  return outcome("set_kernel_node", launch_of(function, dimensions, arguments, &capture->second.nodes[number - 1]));
}

Expected<void> FakeDriver::exchange_capture_mode(CUstreamCaptureMode* mode) {
  const std::lock_guard<std::mutex> lock(mutex_);
  enter("exchange_capture_mode");
  const auto [entry, added] = modes_.emplace(std::this_thread::get_id(), CU_STREAM_CAPTURE_MODE_GLOBAL);
  std::swap(entry->second, *mode);
  return {};
}

// ---- graphs -------------------------------------------------------------------------------------------------------

Expected<void> FakeDriver::graph_node_count(CUgraph graph, size_t* count) {
  SCONCE_FAKE_CALL("graph_node_count");
  const auto found = graphs_.find(graph);
  *count = found == graphs_.end() ? 0 : found->second.size();
  return outcome("graph_node_count", found == graphs_.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

Expected<void> FakeDriver::instantiate_graph(CUgraph graph, unsigned long long, CUgraphExec* executable) {
  SCONCE_FAKE_CALL("instantiate_graph");
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) {
    return outcome("instantiate_graph", CUDA_ERROR_INVALID_VALUE);
  }
  if (code = forbidden_while_capturing(); code != CUDA_SUCCESS) {
    return outcome("instantiate_graph", code);
  }
  *executable = new_handle<CUgraphExec>();
  executables_[*executable] = found->second;
  return {};
}

Expected<void> FakeDriver::launch_graph(CUgraphExec executable, CUstream stream) {
  SCONCE_FAKE_CALL("launch_graph");
  const auto found = executables_.find(executable);
  if (found == executables_.end()) {
    misuse_.emplace_back("a graph is launched that is not instantiated");
    return outcome("launch_graph", CUDA_ERROR_INVALID_VALUE);
  }
  code = enqueue(stream, [nodes = found->second] {
    for (const Work& node : nodes) {
      node();
    }
  });
  return outcome("launch_graph", code);
}

Expected<void> FakeDriver::destroy_graph(CUgraph graph) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CUresult code = enter("destroy_graph");
  if (graphs_.erase(graph) == 0) {
    misuse_.emplace_back("an unknown graph is destroyed");
  }
  return outcome("destroy_graph", code);
}

Expected<void> FakeDriver::destroy_executable_graph(CUgraphExec executable) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CUresult code = enter("destroy_executable_graph");
  if (executables_.erase(executable) == 0) {
    misuse_.emplace_back("an unknown executable graph is destroyed");
  }
  return outcome("destroy_executable_graph", code);
}

#undef SCONCE_FAKE_CALL

}  // namespace sconce::cuda
