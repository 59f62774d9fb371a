// The version of LibTorch in the process.
#pragma once

#include <string>

namespace sconce {

// Returns it, such as "2.11.0".
const std::string& libtorch_version();
// Throws c10::Error unless it is the one whose headers sconce was compiled with: classes may be laid out otherwise.
void expect_libtorch_of_build();

}  // namespace sconce
