// FileCache: what was compiled, kept on disk from process to process. Includes no LibTorch: the CPU code generator has a
// copy of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sconce {

// One file for each key, named by a hash of it. A file holds the key and a checksum; one that is damaged, or of another key,
// counts as missing and is written anew. Files are written under another name and renamed, so that processes that share the
// directory never read half a file. Thread-safe.
//
// Code is only read from a directory that belongs to the user and that no other user may write.
class FileCache {
 public:
  // The most bytes in the directory, of all kinds. Beyond them, the files that were not used for longest are removed.
  static constexpr uint64_t kMaxBytes = 64 << 20;

  // `suffix` tells kinds of files apart: ".o". Without a directory, nothing is kept.
  FileCache(std::string directory, std::string suffix) : directory_(std::move(directory)), suffix_(std::move(suffix)) {}

  // Returns nothing if there is no such content.
  std::optional<std::string> find(const std::string& key) const;
  // Keeps the content. Does nothing if the disk is full or the directory cannot be written: then it is compiled again.
  void keep(const std::string& key, std::string_view content) const;
  // Returns why nothing that is compiled from now on can be kept; empty if it can.
  std::string why_not_kept() const;

 private:
  std::string path_of(const std::string& key) const;
  bool is_private() const;
  void remove_oldest() const;

  const std::string directory_;
  const std::string suffix_;
};

}  // namespace sconce
