#include "load/check/checked_file.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace sconce {

void CheckedFile::check_later(const ZipEntry& entry) {
  later_.emplace(static_cast<uint64_t>(entry.stored.data() - file_.bytes().data()), entry);
}

size_t CheckedFile::read(uint64_t position, void* buffer, size_t count, const char* /*what*/) const {
  const uint64_t begin = std::min<uint64_t>(position, size());
  count = std::min<size_t>(count, size() - begin);
  const auto next = later_.lower_bound(begin + count);
  const auto entry = next == later_.begin() ? later_.end() : std::prev(next);
  if (entry == later_.end() || entry->first + entry->second.size <= begin) {
    std::memcpy(buffer, file_.bytes().data() + begin, count);
    return count;
  }
  const size_t read = file_.read(begin, buffer, count);
  // LibTorch reads a stored entry at once, but looks for the directory in all that comes last.
  const bool is_whole = begin == entry->first && count == entry->second.size;
  if (is_whole && (read != count || !entry->second.has_checksum({static_cast<const uint8_t*>(buffer), count}))) {
    damaged_entry_ = entry->second.name;
    return 0;
  }
  return read;
}

}  // namespace sconce
