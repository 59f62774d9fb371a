// PagedMemory: memory of tensors that are seldom read. Its pages can leave the process, and come back from a file.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace sconce {

// The system reads the pages that left again when the program touches them. The file is a temporary one without a name: no
// other process can write it, and those that this one forks share it.
class PagedMemory {
 public:
  // Smaller memory has no whole pages worth a mapping.
  static constexpr size_t kMinBytes = size_t{64} << 10;

  // Returns memory whose elements are not initialized. Throws c10::OutOfMemoryError.
  static c10::DataPtr allocate(size_t bytes);

  // Returns the memory that the pointer owns; null if it is of another kind.
  static PagedMemory* of(const c10::DataPtr& pointer);

  // Lets the pages leave. Returns how many bytes of the memory are in a file now: all, or 0 if no file can hold them. A
  // write at the same time may be lost.
  size_t page_out();
  // Brings back all pages, and keeps them from then on. Throws c10::OutOfMemoryError.
  void keep();
  // Returns how many bytes were in a file after the last `page_out`. Since then, some may have been read.
  size_t bytes_in_file() const { return bytes_in_file_; }

  ~PagedMemory();

 private:
  explicit PagedMemory(size_t bytes);
  bool map_temporary();

  const size_t bytes_;
  const size_t length_;  // whole pages
  char* const begin_;
  std::mutex mutex_;        // held while pages leave
  bool is_mapped_ = false;  // the pages are those of a file
  bool is_kept_ = false;
  std::atomic<size_t> bytes_in_file_ = 0;
};

// Gives a storage a copy of its memory that is PagedMemory. Small ones, and those that LibTorch's own allocator for the CPU
// has not made, stay as they are. Throws c10::OutOfMemoryError.
void make_paged(c10::StorageImpl& storage);

// Lets the pages of a storage leave, if it has PagedMemory, on the background thread, which writes them to the file.
void page_out_later(const c10::Storage& storage);

// Like at::empty_like, of PagedMemory. Small tensors, and those of other devices, get ordinary memory.
at::Tensor empty_paged_like(const at::Tensor& like, at::MemoryFormat format = at::MemoryFormat::Preserve);

}  // namespace sconce
