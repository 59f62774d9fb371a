#include "tests/executor/failing_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace {

thread_local bool watched = false;
thread_local size_t allocations_left = 0;
thread_local int64_t living = 0;

}  // namespace

namespace sconce::testing {

int64_t living_allocations() { return living; }

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
  if (allocations_left > 0 && --allocations_left == 0) {
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
