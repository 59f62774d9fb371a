// SCONCE_DUMP, checked: a typo there would otherwise print nothing and say nothing.
#pragma once

#include <sconce/pass_pipeline.h>

#include <string>
#include <string_view>
#include <vector>

namespace sconce::cli {

// One line, without its end, for each item of the variable's value that chooses nothing.
std::vector<std::string> find_dump_typos(std::string_view value, const PassPipeline& passes);

}  // namespace sconce::cli
