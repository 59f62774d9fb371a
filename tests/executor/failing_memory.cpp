#include "tests/executor/failing_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace {

thread_local bool watched = false;
thread_local size_t allocations_left = 0;
thread_local int64_t living = 0;
thread_local size_t made = 0;

// Counts the allocation. Returns whether it is to fail.
bool count_allocation() {
  ++made;
  return allocations_left > 0 && --allocations_left == 0;
}

// LibTorch's allocator of tensors, watched.
class WatchedAllocator final : public c10::Allocator {
 public:
  WatchedAllocator() : real_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, /*priority=*/1); }

  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK(!count_allocation(), "no memory for a tensor of ", bytes, " bytes");
    return real_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return real_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { real_->copy_data(to, from, bytes); }

 private:
  c10::Allocator* const real_;
};
WatchedAllocator watched_allocator;

}  // namespace

namespace sconce::testing {

int64_t living_allocations() { return living; }
size_t allocations_made() { return made; }

FailingMemory::FailingMemory(size_t number) {
  allocations_left = number;
  watched = true;
}
FailingMemory::~FailingMemory() {
  watched = false;
  allocations_left = 0;
}
bool FailingMemory::failed() const { return allocations_left == 0; }

}  // namespace sconce::testing

// Not inlined: the compiler would take malloc and operator delete for a pair that does not match.
[[gnu::noinline]] void* operator new(size_t size) {
  if (count_allocation()) {
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) {
    ++living;
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](size_t size) { return operator new(size); }
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void* operator new[](size_t size, const std::nothrow_t& nothrow) noexcept {
  return operator new(size, nothrow);
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (watched && memory != nullptr) {
    std::memset(memory, 0xdd, malloc_usable_size(memory));
  }
  living -= memory != nullptr ? 1 : 0;
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { operator delete(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { operator delete(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }
[[gnu::noinline]] void operator delete[](void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }
