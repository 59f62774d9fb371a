// Allocations that are counted, and fail when a test says so.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sconce::testing {

// The number of allocations that this thread has made by operator new, less those that it has freed.
int64_t living_allocations();
// The number of allocations that this thread has made by operator new or for tensors.
size_t allocations_made();

// While it lives, the `number`th allocation of this thread by operator new or for a tensor fails, once. What this thread
// frees is overwritten, so that a later use of it shows.
class FailingMemory {
 public:
  explicit FailingMemory(size_t number);
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  // Whether the allocation has failed.
  bool failed() const;
};

}  // namespace sconce::testing
