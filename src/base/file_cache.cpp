#include "base/file_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace sconce {
namespace {

namespace fs = std::filesystem;

// Begins each file; counts up when the layout changes.
constexpr std::string_view kMagic = "sconce kernel 2\n";

// FNV-1a: one changed byte always changes it.
uint64_t hash_of(std::string_view text, uint64_t hash = 0xCBF29CE484222325U) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  return hash;
}

void append_number(std::string& text, uint64_t number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// Takes a number from the front.
bool take_number(std::string_view& text, uint64_t& number) {
  if (text.size() < sizeof number) {
    return false;
  }
  std::memcpy(&number, text.data(), sizeof number);
  text.remove_prefix(sizeof number);
  return true;
}

}  // namespace

std::string FileCache::path_of(const std::string& key) const {
  std::array<char, 33> name{};
  const uint64_t first = hash_of(key);
  std::snprintf(name.data(), name.size(), "%016llx%016llx", static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(hash_of(key, ~first)));
  return directory_ + "/" + name.data() + suffix_;
}

bool FileCache::is_private() const {
  struct stat status = {};
  return ::stat(directory_.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         (status.st_uid == ::geteuid() || status.st_uid == 0) && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string FileCache::why_not_kept() const {
  if (directory_.empty()) {
    return "no directory is named";
  }
  if (::access(directory_.c_str(), F_OK) != 0) {
    return "the directory cannot be made";
  }
  return !is_private()                             ? "others own the directory, or may write it"
         : ::access(directory_.c_str(), W_OK) != 0 ? "the directory cannot be written"
                                                   : "";
}

//   magic │ checksum of the rest │ length of the key │ key │ content
std::optional<std::string> FileCache::find(const std::string& key) const {
  if (!is_private()) {
    return std::nullopt;
  }
  const std::string path = path_of(key);
  std::ifstream in(path, std::ios::binary);
  std::ostringstream read;
  if (!in || !(read << in.rdbuf())) {
    return std::nullopt;
  }
  const std::string file = std::move(read).str();
  std::string_view rest = file;
  uint64_t checksum = 0;
  uint64_t length = 0;
  if (!rest.starts_with(kMagic)) {
    return std::nullopt;
  }
  rest.remove_prefix(kMagic.size());
  if (!take_number(rest, checksum) || hash_of(rest) != checksum || !take_number(rest, length) || rest.size() < length ||
      rest.substr(0, length) != key) {
    return std::nullopt;
  }
  std::error_code ignored;  // the time only decides what is removed first
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return std::string(rest.substr(length));
}

void FileCache::keep(const std::string& key, std::string_view content) const {
  if (directory_.empty()) {
    return;
  }
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
  std::string rest;
  append_number(rest, key.size());
  rest += key;
  rest += content;
  std::string head(kMagic);
  append_number(head, hash_of(rest));
  const uint64_t number = writes++;
  const std::string path = path_of(key);
  // A process that has several copies of this code has several counters, but then also several suffixes.
  const std::string draft = path + "." + std::to_string(::getpid()) + "." + std::to_string(number);
  {
    std::ofstream out(draft, std::ios::binary);
    out << head << rest;
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

void FileCache::remove_oldest() const {
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
    if (bytes <= kMaxBytes) {
      return;
    }
    fs::remove(file.path, failure);
    bytes -= file.bytes;
  }
}

}  // namespace sconce
