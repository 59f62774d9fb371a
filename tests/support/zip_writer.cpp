#include "tests/support/zip_writer.h"

#include "load/check/zip_file.h"

#include <array>
#include <cstdint>

namespace sconce::testing {
namespace {

void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
}

// CRC-32 as zip has it (polynomial 0xedb88320), bit by bit: nothing that the code under test uses.
uint32_t checksum(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320U : 0);
    }
  }
  return ~crc;
}

// What the local header and the directory's entry have in common.
std::string common_fields(const std::string& name, const std::string& content) {
  std::string fields;
  put(fields, 20, 2);  // version needed
  put(fields, 0, 2);   // flags
  put(fields, 0, 2);   // stored
  put(fields, 0, 4);   // time and date
  put(fields, checksum(content), 4);
  put(fields, content.size(), 4);
  put(fields, content.size(), 4);
  put(fields, name.size(), 2);
  put(fields, 0, 2);  // no extra field
  return fields;
}

}  // namespace

std::string write_zip(const ZipContents& contents) {
  std::string file;
  std::string directory;
  for (const auto& [name, content] : contents) {
    const std::string fields = common_fields(name, content);
    put(directory, 0x02014b50, 4);
    put(directory, 20, 2);  // version made by
    directory += fields;
    directory.append(10, '\0');  // comment, disk, attributes
    put(directory, file.size(), 4);
    directory += name;
    put(file, 0x04034b50, 4);
    file += fields + name + content;
  }
  const size_t offset = file.size();
  file += directory;
  put(file, 0x06054b50, 4);
  put(file, 0, 4);
  put(file, contents.size(), 2);
  put(file, contents.size(), 2);
  put(file, directory.size(), 4);
  put(file, offset, 4);
  put(file, 0, 2);
  return file;
}

ZipContents read_zip(const std::string& path) {
  const FileBytes file(path);
  const ZipFile zip(file.bytes(), [&](Bytes part) { file.fetch(part); });
  ZipContents contents;
  for (const ZipEntry& entry : zip.entries()) {
    zip.with_content(entry,
                     [&](Bytes bytes) { contents.emplace_back(entry.name, std::string(bytes.begin(), bytes.end())); });
  }
  return contents;
}

}  // namespace sconce::testing
