// ObjectCache: object files of kernels, kept on disk from process to process.
#pragma once

#include <llvm/Support/MemoryBuffer.h>

#include <cstdint>
#include <memory>
#include <string>

namespace sconce {

// One file per kernel, named by a hash of its key. A file holds the key and a checksum; one that is damaged, or of another
// key, counts as missing and is written anew. Files are written under another name and renamed, so that processes that share
// the directory never read half a file. Thread-safe.
//
// Code is only read from a directory that belongs to the user and that nobody else may write.
class ObjectCache {
 public:
  // The most bytes in the directory. Beyond them, the files that were not used for longest are removed.
  static constexpr uint64_t kMostBytes = 64 << 20;

  explicit ObjectCache(std::string directory) : directory_(std::move(directory)) {}

  // Returns null if there is no such object.
  std::unique_ptr<llvm::MemoryBuffer> find(const std::string& key) const;
  // Keeps the object. Does nothing if the disk is full or the directory cannot be written: then it is compiled again.
  void keep(const std::string& key, llvm::MemoryBufferRef object) const;

 private:
  std::string path_of(const std::string& key) const;
  bool is_private() const;
  void remove_oldest() const;

  const std::string directory_;
};

}  // namespace sconce
