#include "base/paged_memory.h"

#include "base/compile_queue.h"
#include "base/cpu_allocator.h"
#include "base/environment.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

namespace sconce {
namespace {

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t whole_pages(size_t bytes) { return (bytes + page_size() - 1) / page_size() * page_size(); }

// Replaces pages by those of a file, in one step: other threads may read them meanwhile. Returns false if that is not
// possible; then the pages are as they were.
bool replace_pages(char* pages, size_t bytes, int file) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    return false;
  }
  if (mremap(mapped, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages) == MAP_FAILED) {
    munmap(mapped, bytes);
    return false;
  }
  return true;
}

// Returns whether the directory is on a local disk. Memory would be no gain, and where a page cannot be read, as when a
// network fails, the system kills the process.
bool is_suitable_directory(const std::string& directory) {
  constexpr std::array<uint32_t, 7> kLocal = {
      0xef53,      // ext2 to ext4
      0x58465342,  // XFS
      0x9123683e,  // Btrfs
      0xf2f52010,  // F2FS
      0x2fc12fc1,  // ZFS
      0x794c7630,  // overlayfs
      0x73717368,  // SquashFS
  };
  struct statfs system = {};
  return statfs(directory.c_str(), &system) == 0 &&
         std::find(kLocal.begin(), kLocal.end(), static_cast<uint32_t>(system.f_type)) != kLocal.end();
}

// Returns a new file without a name in the directory; -1 if that is not possible.
int make_temporary_in(const std::string& directory) {
  if (!is_suitable_directory(directory)) {
    return -1;
  }
  const int unnamed = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (unnamed >= 0) {
    return unnamed;
  }
  std::string name = directory + "/sconce-XXXXXX";  // file systems without O_TMPFILE
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) {
    ::unlink(name.c_str());
  }
  return named;
}

// Temporary directories may lie in memory; /var/tmp seldom does.
int make_temporary() {
  std::error_code none;
  for (const std::string& directory :
       {std::filesystem::temp_directory_path(none).string(), std::string("/var/tmp"), environment().kernel_cache}) {
    if (const int file = directory.empty() ? -1 : make_temporary_in(directory); file >= 0) {
      return file;
    }
  }
  return -1;
}

// Returns whether the file has the bytes now.
bool write_all(int file, const char* data, size_t bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < bytes) {
    return false;  // the system would kill the process
  }
  for (size_t done = 0; done < bytes;) {
    const ssize_t written = ::write(file, data + done, bytes - done);
    if (written == 0 || (written < 0 && errno != EINTR)) {
      return false;  // a full disk, or a quota
    }
    done += static_cast<size_t>(std::max<ssize_t>(written, 0));
  }
  return true;
}

char* map_memory(size_t bytes) {
  void* const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK_WITH(OutOfMemoryError, begin != MAP_FAILED, "sconce cannot allocate ", bytes,
                   " bytes for a tensor: ", std::strerror(errno));
  return static_cast<char*>(begin);
}

void destroy(void* memory) { delete static_cast<PagedMemory*>(memory); }

}  // namespace

// After the last one, the heap's free pages go back to the system: freezing and packing leave holes as large as the model.
void page_out_later(const c10::Storage& storage) {
  if (PagedMemory::of(storage.data_ptr()) == nullptr) {
    return;
  }
  static std::atomic<int> waiting = 0;
  const auto page_out = [weak = storage.getWeakStorageImpl()] {
    // A tensor that was dropped meanwhile needs no file.
    const auto still = weak.lock();
    PagedMemory* const paged = still == nullptr ? nullptr : PagedMemory::of(still->data_ptr());
    try {
      if (paged != nullptr) {
        paged->page_out();
      }
    } catch (const std::bad_alloc&) {
      // The pages stay, which costs memory alone.
    }
    if (--waiting == 0) {
      malloc_trim(0);
    }
  };
  ++waiting;
  bool is_submitted = false;
  try {
    is_submitted = CompileQueue::of_process().submit_last(page_out);
  } catch (const std::bad_alloc&) {
    // The pages stay.
  }
  waiting -= is_submitted ? 0 : 1;
}

at::Tensor empty_paged_like(const at::Tensor& like, at::MemoryFormat format) {
  const at::Tensor form = at::empty_like(like, like.options().device(at::kMeta), format);
  const size_t bytes = form.nbytes();
  if (!like.device().is_cpu() || has_allocator_of_user() || bytes < PagedMemory::kMinBytes) {
    return at::empty_like(like, format);
  }
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       PagedMemory::allocate(bytes), c10::GetCPUAllocator(),
                                                       /*resizable=*/true);
  return at::empty({0}, like.options()).set_(c10::Storage(std::move(storage)), 0, form.sizes(), form.strides());
}

void make_paged(c10::StorageImpl& storage) {
  const bool is_of_default_allocator =
      storage.device().is_cpu() && storage.data_ptr().get_deleter() == c10::GetDefaultCPUAllocator()->raw_deleter();
  if (is_of_default_allocator && storage.nbytes() >= PagedMemory::kMinBytes) {
    c10::DataPtr copy = PagedMemory::allocate(storage.nbytes());
    std::memcpy(copy.mutable_get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(copy));
  }
}

PagedMemory::PagedMemory(size_t bytes)
    : bytes_(bytes), length_(whole_pages(std::max<size_t>(bytes, 1))), begin_(map_memory(length_)) {}

PagedMemory::~PagedMemory() { munmap(begin_, length_); }

c10::DataPtr PagedMemory::allocate(size_t bytes) {
  std::unique_ptr<PagedMemory> memory(new PagedMemory(bytes));
  void* const begin = memory->begin_;
  return {begin, memory.release(), &destroy, c10::Device(c10::kCPU)};
}

PagedMemory* PagedMemory::of(const c10::DataPtr& pointer) {
  return pointer.get_deleter() == &destroy ? static_cast<PagedMemory*>(pointer.get_context()) : nullptr;
}

size_t PagedMemory::page_out() {
  const std::lock_guard lock(mutex_);
  if (is_kept_) {
    return 0;
  }
  is_mapped_ = is_mapped_ || map_temporary();
  if (is_mapped_) {
    madvise(begin_, length_, MADV_DONTNEED);  // the file has all writes: the mapping is shared
  }
  bytes_in_file_ = is_mapped_ ? bytes_ : 0;
  return bytes_in_file_;
}

void PagedMemory::keep() {
  const std::lock_guard lock(mutex_);
  if (is_mapped_ && !is_kept_) {
    char* const copy = map_memory(length_);
    std::memcpy(copy, begin_, length_);
    if (mremap(copy, length_, length_, MREMAP_MAYMOVE | MREMAP_FIXED, begin_) == MAP_FAILED) {
      munmap(copy, length_);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "sconce cannot bring back ", bytes_, " bytes of a tensor");
    }
  }
  is_kept_ = true;
  bytes_in_file_ = 0;
}

bool PagedMemory::map_temporary() {
  const int file = make_temporary();
  if (file < 0) {
    return false;
  }
  const bool is_mapped = write_all(file, begin_, length_) && replace_pages(begin_, length_, file);
  ::close(file);  // the mapping keeps it
  return is_mapped;
}

}  // namespace sconce
