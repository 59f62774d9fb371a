// PagedMemory: memory of tensors that are seldom read. Its pages can leave the process, and come back from a file.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace sconce {

// Closes a file at the end of its life.
class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

// Returns the file, from which tensors are read; null if it cannot be opened, or lies in a file system whose reads may fail
// later: one of the network, or of a program.
std::shared_ptr<const OpenFile> open_source(const std::string& path);

// The system reads the pages that left again when the program touches them. Pages that were written since they came from a
// file stay.
class PagedMemory {
 public:
  // Smaller memory has no whole pages worth a mapping.
  static constexpr size_t kMinBytes = size_t{64} << 10;

  // Returns memory whose elements are not initialized. Its pages leave for a temporary file without a name, which this
  // process shares with those that it forks. Throws c10::OutOfMemoryError.
  static c10::DataPtr allocate(size_t bytes);
  // Returns a copy of `bytes` bytes, which the file has from `offset` on. Pages that equal the file's leave, and come back
  // from the file. While the memory lives, the file must not be written over; another may be renamed to its name.
  // `offset`: a multiple of 64.
  static c10::DataPtr copy(const void* data, size_t bytes, std::shared_ptr<const OpenFile> file, uint64_t offset);

  // Returns the memory that the pointer owns; null if it is of another kind.
  static PagedMemory* of(const c10::DataPtr& pointer);

  // Lets the pages leave. Returns how many bytes of the memory are in a file now; 0 if no file can hold them. A write at the
  // same time may be lost.
  size_t page_out();
  // Brings back all pages, and keeps them from then on. Throws c10::OutOfMemoryError.
  void keep();
  bool is_of_file() const { return source_ != nullptr; }
  // Returns how many bytes were in a file after the last `page_out`. Since then, some may have been read.
  size_t bytes_in_file() const { return bytes_in_file_; }

  ~PagedMemory();

 private:
  PagedMemory(size_t bytes, std::shared_ptr<const OpenFile> source, uint64_t offset);
  static c10::DataPtr pointer_to(std::unique_ptr<PagedMemory> memory);
  char* data() const { return begin_ + lead_; }
  size_t map_source();
  size_t map_temporary();
  bool write_temporary();

  const size_t bytes_;
  const std::shared_ptr<const OpenFile> source_;  // null: a temporary file
  const uint64_t offset_;                         // of the elements in `source_`
  const size_t lead_;                             // bytes before the elements in the first page, as in the file
  const size_t length_;                           // whole pages
  char* const begin_;
  std::mutex mutex_;        // held while pages leave
  bool is_mapped_ = false;  // some pages have come from a file since
  bool is_kept_ = false;
  std::atomic<size_t> bytes_in_file_ = 0;
};

// Which pages leave: all, or only those that need no temporary file.
enum class PagesOf : uint8_t { kAll, kFiles };

// Lets the pages of a storage leave, if it has PagedMemory, on the background thread: they are compared with a file, or
// written to one.
void page_out_later(const c10::Storage& storage, PagesOf pages);

// Like at::empty_like, of PagedMemory. Small tensors, and those of other devices, get ordinary memory.
at::Tensor empty_paged_like(const at::Tensor& like, at::MemoryFormat format = at::MemoryFormat::Preserve);

}  // namespace sconce
