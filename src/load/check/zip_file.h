// Zip archives, checked before they are read. The format is that of PKWARE's APPNOTE, version 6.3.10.
#pragma once

#include <cstdint>
#include <functional>
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

// A file's bytes. They are read into memory, part by part, and not mapped: a process that cut the file short would end this
// one.
class FileBytes {
 public:
  // Opens the file. Throws MalformedArchive with the system's reason.
  explicit FileBytes(const std::string& path);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  // Returns as many bytes as the file has. Those that were not fetched are zero.
  Bytes bytes() const { return {begin_, size_}; }
  // Reads a part. Throws MalformedArchive if the file is shorter now.
  void fetch(Bytes part) const;
  // Reads from the file, whatever was fetched. Returns how many bytes there were.
  size_t read(uint64_t position, void* buffer, size_t bytes) const;

 private:
  int descriptor_ = -1;
  uint8_t* begin_ = nullptr;
  size_t size_ = 0;
};

struct ZipEntry {
  std::string name;
  Bytes stored;  // as in the file, perhaps compressed
  bool deflated = false;
  uint64_t size = 0;  // of the content
  uint32_t crc = 0;

  bool has_checksum(Bytes content) const;
};

class ZipFile {
 public:
  // Is called before bytes are read. Parts that were read before may be read again.
  using Fetch = std::function<void(Bytes part)>;

  // Reads the directory of `file`, which must outlive this. Throws MalformedArchive unless every entry is inside the file,
  // overlaps no other, is stored or deflated, and has a name that is relative, printable and unique.
  explicit ZipFile(Bytes file, Fetch fetch = [](Bytes) {});

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

  const Fetch fetch_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace sconce
