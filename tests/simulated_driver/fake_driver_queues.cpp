// Queues of the simulated driver's streams, and work that the host does in place of the device.
#include "tests/simulated_driver/fake_driver.h"

#include <algorithm>
#include <utility>

namespace sconce::cuda {

// The default stream waits for all blocking ones, which would make it part of their captures. Returns whether there is one.
bool FakeDriver::invalidate_blocking_captures() {
  bool found = false;
  for (const auto& [handle, stream] : streams_) {
    if (stream.capture != 0 && stream.is_blocking) {
      invalidate(captures_.at(stream.capture));
      found = true;
    }
  }
  return found;
}

CUresult FakeDriver::enqueue(CUstream handle, Work work) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->capture == 0) {
    if (handle == nullptr && invalidate_blocking_captures()) {
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (captures_on_this_thread()) {
      misuse_.emplace_back("while this thread captures one stream, it gives work to another that is not captured");
    }
    stream->push({.work = std::move(work)});
    return CUDA_SUCCESS;
  }
  Capture& capture = captures_.at(stream->capture);
  if (capture.invalidated) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  capture.nodes.push_back(std::move(work));
  capture.last[handle] = capture.nodes.size();
  ++capture.position[handle];
  return CUDA_SUCCESS;
}

// A wait is for work that was enqueued before it, so that streams never wait for each other in a circle.
void FakeDriver::drain(CUstream handle, uint64_t until) {
  Stream& stream = streams_.at(handle);
  while (!stream.queue.empty() && stream.begun < until) {
    const Operation operation = std::move(stream.queue.front());
    stream.queue.pop_front();
    ++stream.begun;
    ++clock_;
    if (operation.work) {
      operation.work();
    }
    if (const auto event = events_.find(operation.record); event != events_.end()) {
      event->second.completed = std::max(event->second.completed, operation.version);
      event->second.tick = clock_;
    }
    if (operation.awaited && find_stream(*operation.awaited) != nullptr) {
      drain(*operation.awaited, operation.position);
    }
  }
}

void FakeDriver::drain_all() {
  for (auto& [handle, stream] : streams_) {
    drain(handle);
  }
}

Expected<bool> FakeDriver::begin_host_work(CUstream handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  CUresult code = enter("begin_host_work");
  const Stream* stream = find_stream(handle);
  const bool is_captured = stream != nullptr && stream->capture != 0;
  if (code == CUDA_SUCCESS && is_captured) {
    code = captures_.at(stream->capture).invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  } else if (code == CUDA_SUCCESS) {
    code = enqueue(handle, [] {});
  }
  if (code != CUDA_SUCCESS) {
    return outcome("begin_host_work", code).refusal();
  }
  if (!is_captured) {
    drain(handle);
  }
  return !is_captured;
}

Expected<void> FakeDriver::enqueue_host_work(CUstream stream, std::function<void()> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  CUresult code = enter("enqueue_host_work");
  if (code == CUDA_SUCCESS) {
    code = enqueue(stream, std::move(work));
  }
  return outcome("enqueue_host_work", code);
}

bool FakeDriver::call_after_work(CUstream handle, std::function<void()> action) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream* stream = find_stream(handle);
  if (stream == nullptr || stream->capture != 0) {
    return false;
  }
  stream->push({.work = std::move(action)});
  return true;
}

}  // namespace sconce::cuda
