#include "load/check/zip_file.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sconce {
namespace {

// Not inlined: it is called in many places and runs at most once.
[[noreturn, gnu::noinline]] void malformed(std::string_view what, std::string_view problem = {}) {
  throw MalformedArchive(std::string(what).append(problem));
}

std::string system_reason(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

// Reads numbers of the format, little endian. Throws if they are outside the bytes.
class Reader {
 public:
  Reader(Bytes bytes, uint64_t position, const char* what) : bytes_(bytes), position_(position), what_(what) {}

  template <typename Number>
  Number number() {
    Number value = 0;
    const Bytes read = take(sizeof value);
    for (size_t i = 0; i < sizeof value; ++i) {
      value = static_cast<Number>(value | static_cast<Number>(read[i]) << (8 * i));
    }
    return value;
  }
  void expect_signature(uint32_t signature) {
    if (number<uint32_t>() != signature) {
      malformed(what_, " does not begin as it should");
    }
  }
  Bytes take(uint64_t count) {
    if (position_ > bytes_.size() || count > bytes_.size() - position_) {
      malformed(what_, " lies outside of the file");
    }
    const Bytes taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  void skip(uint64_t count) { take(count); }
  uint64_t position() const { return position_; }
  bool at_end() const { return position_ >= bytes_.size(); }

 private:
  Bytes bytes_;
  uint64_t position_;
  const char* what_;
};

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kEndOfDirectory = 0x06054b50;
constexpr uint32_t kEndOfDirectory64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr size_t kEndSize = 22;
constexpr size_t kEndSize64 = 56;
constexpr size_t kLocatorSize = 20;
constexpr size_t kMaxComment = 0xffff;
constexpr size_t kLocalHeaderSize = 30;
constexpr uint32_t kIn64 = 0xffffffff;  // the value is in the extra field
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
constexpr uint64_t kBestCompression = 1032;  // deflate expands a byte to at most so many

struct Directory {
  uint64_t entries = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
};

// Returns a part of the file, as far as the file goes.
Bytes part_of(Bytes file, uint64_t position, uint64_t count) {
  position = std::min<uint64_t>(position, file.size());
  return file.subspan(position, std::min<uint64_t>(count, file.size() - position));
}

// The end record is the last record, followed by a comment of at most 64 KiB.
uint64_t find_end(Bytes file) {
  const uint64_t last = file.size() < kEndSize ? 0 : file.size() - kEndSize + 1;
  for (uint64_t i = last; i > 0 && last - i <= kMaxComment; --i) {
    if (Reader(file, i - 1, "the end of the directory").number<uint32_t>() == kEndOfDirectory) {
      return i - 1;
    }
  }
  malformed("the directory at its end is missing");
}

Directory read_directory_place(Bytes file, const ZipFile::Fetch& fetch) {
  fetch(file.last(std::min(file.size(), kLocatorSize + kEndSize + kMaxComment)));
  const uint64_t end = find_end(file);
  Reader record(file, end + 8, "the end of the directory");
  Directory directory;
  record.skip(2);
  directory.entries = record.number<uint16_t>();
  directory.size = record.number<uint32_t>();
  directory.offset = record.number<uint32_t>();
  const bool has_locator =
      end >= kLocatorSize && Reader(file, end - kLocatorSize, "the 64-bit locator").number<uint32_t>() == kLocator64;
  if (has_locator) {
    const uint64_t place = Reader(file, end - kLocatorSize + 8, "the 64-bit locator").number<uint64_t>();
    fetch(part_of(file, place, kEndSize64));
    Reader record64(file, place, "the 64-bit end of the directory");
    record64.expect_signature(kEndOfDirectory64);
    record64.skip(28);
    directory.entries = record64.number<uint64_t>();
    directory.size = record64.number<uint64_t>();
    directory.offset = record64.number<uint64_t>();
  }
  if (directory.offset > end || directory.size > end - directory.offset) {
    malformed("the directory lies outside of the file");
  }
  return directory;
}

// Reads the 64-bit values in the extra field, in their fixed order.
void read_extra64(Bytes extra, uint64_t& size, uint64_t& stored_size, uint64_t& offset) {
  Reader fields(extra, 0, "an entry's extra field");
  while (!fields.at_end()) {
    const auto id = fields.number<uint16_t>();
    const auto length = fields.number<uint16_t>();
    const Bytes field = fields.take(length);
    if (id == 1) {
      Reader values(field, 0, "an entry's 64-bit field");
      for (uint64_t* value : {&size, &stored_size, &offset}) {
        if (*value == kIn64) {
          *value = values.number<uint64_t>();
        }
      }
    }
  }
}

void check_name(std::string_view name) {
  const auto is_control = [](char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == '\x7f'; };
  if (name.empty() || name.front() == '/' || std::any_of(name.begin(), name.end(), is_control)) {
    malformed("an entry has an impossible name");
  }
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (name.substr(begin, end - begin) == "..") {
      malformed("the entry '" + std::string(name) + "' points outside of the archive");
    }
    begin = end + 1;
  }
}

// The entry's bytes follow a second header, which must have the same name.
Bytes locate(Bytes entries, const ZipFile::Fetch& fetch, const ZipEntry& entry, uint64_t header_offset,
             uint64_t stored_size) {
  fetch(part_of(entries, header_offset, kLocalHeaderSize));
  Reader header(entries, header_offset, "the header of an entry");
  header.expect_signature(kLocalHeader);
  header.skip(22);
  const auto name_length = header.number<uint16_t>();
  const auto extra_length = header.number<uint16_t>();
  fetch(part_of(entries, header.position(), uint64_t{name_length} + extra_length));
  const Bytes name = header.take(name_length);
  const auto is_same = [](uint8_t byte, char letter) { return byte == static_cast<uint8_t>(letter); };  // also beyond ASCII
  if (!std::equal(name.begin(), name.end(), entry.name.begin(), entry.name.end(), is_same)) {
    malformed("the entry '" + entry.name + "' is not where the directory says");
  }
  header.skip(extra_length);
  return header.take(stored_size);
}

}  // namespace

FileBytes::FileBytes(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) {
    malformed(system_reason("cannot be opened"));
  }
  const auto fail = [this](const std::string& reason) {
    ::close(descriptor_);
    malformed(reason);
  };
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    fail(system_reason("cannot be read"));
  } else if (!S_ISREG(status.st_mode)) {
    fail("is no regular file; copy what it gives into one");
  } else if (status.st_size == 0) {
    fail("the file is empty");
  }
  size_ = static_cast<size_t>(status.st_size);
  void* const memory =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fail(system_reason("cannot be read"));
  }
  begin_ = static_cast<uint8_t*>(memory);
}

FileBytes::~FileBytes() {
  ::munmap(begin_, size_);
  ::close(descriptor_);
}

void FileBytes::fetch(Bytes part) const {
  const auto position = static_cast<size_t>(part.data() - begin_);
  errno = 0;
  if (read(position, begin_ + position, part.size()) != part.size()) {
    malformed(errno != 0 ? system_reason("it cannot be read") : "it became shorter while it was read");
  }
}

size_t FileBytes::read(uint64_t position, void* buffer, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t read =
        ::pread(descriptor_, static_cast<char*>(buffer) + done, bytes - done, static_cast<off_t>(position + done));
    if (read == 0 || (read < 0 && errno != EINTR)) {
      break;
    }
    done += static_cast<size_t>(std::max<ssize_t>(read, 0));
  }
  return done;
}

ZipFile::ZipFile(Bytes file, Fetch fetch) : fetch_(std::move(fetch)) {
  const Directory directory = read_directory_place(file, fetch_);
  const Bytes records = file.subspan(directory.offset, directory.size);
  fetch_(records);
  Reader record(records, 0, "an entry of the directory");
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // ranges of the file that entries occupy
  for (uint64_t i = 0; i < directory.entries; ++i) {
    ZipEntry entry;
    record.expect_signature(kDirectoryEntry);
    record.skip(4);
    const auto flags = record.number<uint16_t>();
    const auto method = record.number<uint16_t>();
    record.skip(4);
    entry.crc = record.number<uint32_t>();
    uint64_t stored_size = record.number<uint32_t>();
    entry.size = record.number<uint32_t>();
    const auto name_length = record.number<uint16_t>();
    const auto extra_length = record.number<uint16_t>();
    const auto comment_length = record.number<uint16_t>();
    record.skip(8);
    uint64_t header_offset = record.number<uint32_t>();
    const Bytes name = record.take(name_length);
    entry.name.assign(name.begin(), name.end());
    read_extra64(record.take(extra_length), entry.size, stored_size, header_offset);
    record.skip(comment_length);
    check_name(entry.name);
    entry.deflated = method == kDeflated;
    if ((flags & 1) != 0 || (method != kStored && method != kDeflated)) {
      malformed("the entry '" + entry.name + "' is encrypted or packed in a way that LibTorch does not read");
    }
    const bool size_is_possible = entry.deflated ? entry.size / kBestCompression <= stored_size : entry.size == stored_size;
    if (!size_is_possible) {
      malformed("the entry '" + entry.name + "' cannot have the size that the directory says");
    }
    entry.stored = locate(file.first(directory.offset), fetch_, entry, header_offset, stored_size);
    ranges.emplace_back(header_offset, static_cast<uint64_t>(entry.stored.data() - file.data()) + stored_size);
    entries_.push_back(std::move(entry));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      malformed("two entries share bytes of the file");
    }
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!by_name_.emplace(entries_[i].name, i).second) {
      malformed("there are two entries '" + entries_[i].name + "'");
    }
  }
}

bool ZipEntry::has_checksum(Bytes content) const { return libdeflate_crc32(0, content.data(), content.size()) == crc; }

const ZipEntry* ZipFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

Bytes ZipFile::content(const ZipEntry& entry, std::unique_ptr<uint8_t[]>& inflated) const {
  Bytes content = entry.stored;
  fetch_(content);
  if (entry.deflated) {
    struct Free {
      void operator()(libdeflate_decompressor* decompressor) const { libdeflate_free_decompressor(decompressor); }
    };
    const std::unique_ptr<libdeflate_decompressor, Free> decompressor(libdeflate_alloc_decompressor());
    inflated = std::make_unique_for_overwrite<uint8_t[]>(entry.size);
    const auto outcome = libdeflate_deflate_decompress(decompressor.get(), entry.stored.data(), entry.stored.size(),
                                                       inflated.get(), entry.size, nullptr);
    if (outcome != LIBDEFLATE_SUCCESS) {
      malformed("the entry '" + entry.name + "' cannot be decompressed");
    }
    content = {inflated.get(), entry.size};
  }
  if (!entry.has_checksum(content)) {
    malformed("the entry '" + entry.name + "' does not have its checksum: bytes of it were changed");
  }
  return content;
}

}  // namespace sconce
