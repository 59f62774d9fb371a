#include "tools/sconce/commands/options_file.h"

#include "base/exception_message.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/read_file.h"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

namespace sconce::cli {

// The parser's message may begin with the line and the column.
nlohmann::json read_options_file(const std::string& path) {
  const std::string text = read_text_file(path);
  try {
    return parse_options(text);
  } catch (const c10::Error& failure) {
    const std::string message = plain_message(failure);
    const bool has_place = !message.empty() && message.front() >= '0' && message.front() <= '9';
    throw UserError(path + (has_place ? ":" : ": ") + message);
  }
}

void set_options(Options& options, const nlohmann::json& fields, OptionFields which, const std::string& path) {
  try {
    set_options(options, fields, which);
  } catch (const c10::Error& failure) {
    throw UserError(path + ": " + plain_message(failure));
  }
}

}  // namespace sconce::cli
