// Zip archives, checked before anybody trusts them. The format: PKWARE's APPNOTE, version 6.3.10.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sconce {

using Bytes = std::span<const uint8_t>;

// What is wrong with an archive, in a few words that can stand behind a path.
class MalformedArchive : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A file's bytes, mapped.
class MappedFile {
 public:
  // Throws MalformedArchive with the system's reason.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  Bytes bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

struct ZipEntry {
  std::string name;
  Bytes stored;  // as they are in the file
  bool deflated = false;
  uint64_t size = 0;  // of the content
  uint32_t crc = 0;
};

class ZipFile {
 public:
  // Reads the directory of `file`, which must outlive this. Throws MalformedArchive unless every entry lies in the file, by
  // itself, is stored or deflated, and has a name that is relative, printable and unique.
  explicit ZipFile(Bytes file);

  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;  // null when absent

  // Calls `use` with the content, which lives as long as the call. Throws MalformedArchive when it does not have the size
  // or the checksum that the directory says.
  template <typename Use>
  void with_content(const ZipEntry& entry, const Use& use) const {
    std::unique_ptr<uint8_t[]> inflated;
    use(content(entry, inflated));
  }

 private:
  Bytes content(const ZipEntry& entry, std::unique_ptr<uint8_t[]>& inflated) const;

  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace sconce
