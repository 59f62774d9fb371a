#include "fusion/llvm/object_cache.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/SHA256.h>
#include <llvm/Support/xxhash.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace sconce {
namespace {

namespace fs = std::filesystem;

// Begins each file; counts up when the layout changes.
constexpr llvm::StringRef kMagic = "sconce kernel 1\n";

void append_number(std::string& text, uint64_t number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// Takes a number from the front.
bool take_number(llvm::StringRef& text, uint64_t& number) {
  if (text.size() < sizeof number) {
    return false;
  }
  std::memcpy(&number, text.data(), sizeof number);
  text = text.drop_front(sizeof number);
  return true;
}

}  // namespace

std::string ObjectCache::path_of(const std::string& key) const {
  const auto hash = llvm::SHA256::hash(llvm::ArrayRef(reinterpret_cast<const uint8_t*>(key.data()), key.size()));
  return directory_ + "/" + llvm::toHex(llvm::ArrayRef(hash.data(), 16), /*LowerCase=*/true) + ".o";
}

bool ObjectCache::is_private() const {
  struct stat status = {};
  return ::stat(directory_.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

//   magic │ checksum of the rest │ length of the key │ key │ object
std::unique_ptr<llvm::MemoryBuffer> ObjectCache::find(const std::string& key) const {
  if (!is_private()) {
    return nullptr;
  }
  const std::string path = path_of(key);
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file) {
    return nullptr;
  }
  llvm::StringRef rest = (*file)->getBuffer();
  uint64_t checksum = 0;
  uint64_t length = 0;
  if (!rest.consume_front(kMagic) || !take_number(rest, checksum) || llvm::xxh3_64bits(rest) != checksum ||
      !take_number(rest, length) || rest.size() < length || rest.take_front(length) != key) {
    return nullptr;
  }
  std::error_code ignored;  // the time only decides what is removed first
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return llvm::MemoryBuffer::getMemBufferCopy(rest.drop_front(length), "kernel");
}

void ObjectCache::keep(const std::string& key, llvm::MemoryBufferRef object) const {
  static std::atomic<uint64_t> writes{0};
  std::error_code failure;
  fs::create_directories(fs::path(directory_).parent_path(), failure);
  if (failure) {
    return;
  }
  ::mkdir(directory_.c_str(), S_IRWXU);  // is_private tells whether there is one now
  if (!is_private()) {
    return;
  }
  std::string content;
  append_number(content, key.size());
  content += key;
  content += object.getBuffer();
  std::string head = kMagic.str();
  append_number(head, llvm::xxh3_64bits(content));
  const uint64_t number = writes++;
  const std::string path = path_of(key);
  const std::string draft = path + "." + std::to_string(::getpid()) + "." + std::to_string(number);
  {
    std::ofstream out(draft, std::ios::binary);
    out << head << content;
    out.close();
    if (!out) {
      fs::remove(draft, failure);
      return;
    }
  }
  fs::rename(draft, path, failure);
  if (failure) {
    fs::remove(draft, failure);
  }
  constexpr uint64_t kWritesBetweenChecks = 32;
  if (number % kWritesBetweenChecks == 0) {
    remove_oldest();
  }
}

void ObjectCache::remove_oldest() const {
  struct File {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  uint64_t bytes = 0;
  std::error_code failure;
  for (fs::directory_iterator at(directory_, failure), end; !failure && at != end; at.increment(failure)) {
    std::error_code vanished;  // another process may remove it, too
    const uint64_t size = at->file_size(vanished);
    const auto used = at->last_write_time(vanished);
    if (!vanished) {
      files.push_back({used, size, at->path()});
      bytes += size;
    }
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (bytes <= kMostBytes) {
      return;
    }
    fs::remove(file.path, failure);
    bytes -= file.bytes;
  }
}

}  // namespace sconce
