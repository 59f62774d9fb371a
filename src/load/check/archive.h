// Checks a file before LibTorch's loader reads it, because the loader trusts much of its input.
#pragma once

#include "load/check/checked_file.h"

#include <memory>
#include <string>

namespace sconce {

struct CheckedArchive {
  bool has_meta_tensors = false;      // tensors on the meta device have sizes and no data
  std::shared_ptr<CheckedFile> file;  // for LibTorch's reader
};

// Checks a TorchScript archive: the version, the zip directory, names, sizes and checksums of entries, the pickles, and the
// extents of tensors. Throws c10::Error with one line, which begins with the path and says what is malformed. If the file is
// of another recognizable kind, the line names that kind.
CheckedArchive check_archive(const std::string& path);

// The same for a file written by torch.save.
CheckedArchive check_arguments_archive(const std::string& path);

// The checks that both share, on bytes. Throws MalformedArchive.
void check_archive_bytes(Bytes file);

}  // namespace sconce
