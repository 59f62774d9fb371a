// Zip archives, checked before they are read. The format is that of PKWARE's APPNOTE, version 6.3.10.
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

// Thrown for a malformed archive. The message is a phrase that can follow the file's path.
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
  Bytes stored;  // as in the file, perhaps compressed
  bool deflated = false;
  uint64_t size = 0;  // of the content
  uint32_t crc = 0;
};

class ZipFile {
 public:
  // Reads the directory of `file`, which must outlive this. Throws MalformedArchive unless every entry is inside the file,
  // overlaps no other, is stored or deflated, and has a name that is relative, printable and unique.
  explicit ZipFile(Bytes file);

  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;  // null if absent

  // Calls `use` with the content, which is valid during the call. Throws MalformedArchive if its size or checksum differs
  // from the directory's.
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
