// Checks SCONCE_DUMP: without the check, a typo would silently print nothing.
#pragma once

#include <sconce/pass_pipeline.h>

#include <string>
#include <string_view>
#include <vector>

namespace sconce::cli {

// Returns one line, without a newline, for each item of the variable's value that matches nothing.
std::vector<std::string> find_dump_typos(std::string_view value, const PassPipeline& passes);

}  // namespace sconce::cli
