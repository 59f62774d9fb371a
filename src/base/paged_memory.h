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

// A file from which tensors were read, open while they need it.
class SourceFile {
 public:
  // Returns null if the file cannot be opened, or lies in a file system whose reads may fail later: one of the network, or
  // of a program.
  static std::shared_ptr<const SourceFile> open(const std::string& path);
  ~SourceFile();
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  explicit SourceFile(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
};

// The system reads the pages that left again when the program touches them. Pages that were written since they came from a
// file stay.
class PagedMemory {
 public:
  // Smaller memory has no whole pages worth a mapping.
  static constexpr size_t kLeastBytes = size_t{64} << 10;

  // Returns memory whose elements are not initialized. Its pages leave for a temporary file without a name, which this
  // process shares with those that it forks. Throws c10::OutOfMemoryError.
  static c10::DataPtr allocate(size_t bytes);
  // Returns a copy of `bytes` bytes, which the file has from `offset` on. Pages that equal the file's leave, and come back
  // from there: whoever replaces the file must rename another to its name, and not write over it. `offset`: a multiple
  // of 64.
  static c10::DataPtr copy(const void* data, size_t bytes, std::shared_ptr<const SourceFile> file, uint64_t offset);

  // Returns the memory that the pointer owns; null if it is of another kind.
  static PagedMemory* of(const c10::DataPtr& pointer);

  // Lets the pages leave. Returns how many bytes of the memory are in a file now; 0 if no file can hold them. A write at the
  // same time may be lost.
  size_t page_out();
  // Brings back all pages, and keeps them from then on. Throws c10::OutOfMemoryError.
  void keep();
  bool is_of_file() const { return source_ != nullptr; }
  size_t bytes() const { return bytes_; }
  // Returns how many bytes were in a file after the last `page_out`. Since then, some may have been read.
  size_t bytes_in_file() const { return bytes_in_file_; }

  PagedMemory(const PagedMemory&) = delete;
  PagedMemory& operator=(const PagedMemory&) = delete;
  ~PagedMemory();

 private:
  PagedMemory(size_t bytes, std::shared_ptr<const SourceFile> source, uint64_t offset);
  static c10::DataPtr pointer_to(std::unique_ptr<PagedMemory> memory);
  char* data() const { return begin_ + lead_; }
  size_t map_source();
  size_t map_temporary();
  bool write_temporary();

  const size_t bytes_;
  const std::shared_ptr<const SourceFile> source_;  // null: a temporary file
  const uint64_t offset_;                           // of the elements in `source_`
  const size_t lead_;                               // bytes before the elements in the first page, as in the file
  const size_t length_;                             // whole pages
  char* const begin_;
  std::mutex mutex_;        // held while pages leave
  bool is_mapped_ = false;  // some pages have come from a file since
  bool is_kept_ = false;
  std::atomic<size_t> bytes_in_file_ = 0;
};

// Lets the pages of a storage leave, if it has PagedMemory, on the background thread: they are compared with a file, or
// written to one.
enum class PagesOf : uint8_t { kAll, kFiles };  // kFiles: not what a temporary file would take
void page_out_later(const c10::Storage& storage, PagesOf pages);

// Like at::empty_like, of PagedMemory. Small tensors, and those of other devices, get ordinary memory.
at::Tensor empty_paged_like(const at::Tensor& like, at::MemoryFormat format = at::MemoryFormat::Preserve);

}  // namespace sconce
