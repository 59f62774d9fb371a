#pragma once

#include <string>

namespace sconce {

// Returns the processor's name as the system has it, "Intel(R) Xeon(R) Gold 6348 CPU @ 2.60GHz"; "unknown" if it has none.
std::string processor_name();

}  // namespace sconce
