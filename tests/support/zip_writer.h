// Writes zip archives, so that tests can damage what is inside and leave the rest right.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {

using ZipContents = std::vector<std::pair<std::string, std::string>>;  // names and contents

// The bytes of an archive with these entries, all of them stored.
std::string write_zip(const ZipContents& contents);

// The entries of a file that is right.
ZipContents read_zip(const std::string& path);

}  // namespace sconce::testing
