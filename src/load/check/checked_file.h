// CheckedFile: gives LibTorch's reader the bytes of an archive that were checked, whatever another process does to the file
// meanwhile.
#pragma once

#include "load/check/zip_file.h"

#include <caffe2/serialize/read_adapter_interface.h>

#include <map>
#include <string>

namespace sconce {

class CheckedFile final : public caffe2::serialize::ReadAdapterInterface {
 public:
  // Opens the file. Throws MalformedArchive with the system's reason.
  explicit CheckedFile(const std::string& path) : file_(path) {}

  const FileBytes& file() const { return file_; }
  // Leaves the entry, which is stored, to `read`, so that a load needs no second copy of the weights.
  void check_later(const ZipEntry& entry);

  // Returns the first entry that `read` found without its checksum; empty if there was none. LibTorch's reader has failed
  // then.
  const std::string& damaged_entry() const { return damaged_entry_; }

  size_t size() const override { return file_.bytes().size(); }
  size_t read(uint64_t position, void* buffer, size_t bytes, const char* what) const override;

 private:
  FileBytes file_;
  std::map<uint64_t, ZipEntry> later_;  // by position
  mutable std::string damaged_entry_;
};

}  // namespace sconce
