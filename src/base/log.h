// Reporting to the program; see <sconce/log.h>.
#pragma once

#include <sconce/log.h>

#include <string>

namespace sconce {

// Returns whether anybody reads lines of this level. Checks one word.
bool is_logged(LogLevel level);
void log(LogLevel level, const std::string& line);
// The same, but only the first time in the process that there is such a line.
void log_once(LogLevel level, const std::string& line);

}  // namespace sconce
