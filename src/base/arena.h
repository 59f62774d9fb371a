// Arena: objects of one type that stay where they are and are destroyed together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace sconce {

// Objects lie side by side in chunks, so that a walk in order of creation reads memory in order.
template <typename T>
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (Chunk& chunk : chunks_) {
      std::destroy_n(chunk.objects, chunk.size);
      ::operator delete(chunk.objects, std::align_val_t{alignof(T)});
    }
  }

  template <typename... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    if (chunks_.empty() || chunks_.back().size == chunks_.back().capacity) {
      add_chunk();
    }
    Chunk& chunk = chunks_.back();
    T* const object = std::construct_at(chunk.objects + chunk.size, std::forward<Arguments>(arguments)...);
    ++chunk.size;
    return *object;
  }

 private:
  struct Chunk {
    T* objects = nullptr;
    size_t size = 0;
    size_t capacity = 0;
  };

  void add_chunk() {
    constexpr size_t kFirst = 16;
    constexpr size_t kLargest = 1024;
    const size_t capacity = chunks_.empty() ? kFirst : std::clamp(2 * chunks_.back().capacity, kFirst, kLargest);
    Chunk& chunk = chunks_.emplace_back();
    chunk.objects = static_cast<T*>(::operator new(capacity * sizeof(T), std::align_val_t{alignof(T)}));
    chunk.capacity = capacity;
  }

  std::vector<Chunk> chunks_;
};

}  // namespace sconce
