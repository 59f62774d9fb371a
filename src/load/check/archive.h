// Checks on a file before LibTorch's loader sees it, which trusts much of what stands in it.
#pragma once

#include "load/check/zip_file.h"

#include <string>

namespace sconce {

struct CheckedArchive {
  bool has_meta_tensors = false;  // on the meta device: with sizes and without data
};

// Throws c10::Error with one clear line when the path cannot be read or does not hold a TorchScript archive. The message
// begins with the path and says what the file is instead, where that can be told, and what is malformed in it: the version,
// the zip directory, sizes and checksums of entries, their names, the pickles and the extents of the tensors in them.
CheckedArchive check_archive(const std::string& path);

// The same for a file written by torch.save.
void check_arguments_archive(const std::string& path);

// What is checked of either, on bytes. Throws MalformedArchive.
void check_archive_bytes(Bytes file);

}  // namespace sconce
