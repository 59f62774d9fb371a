#include <sconce/pass_plugin.h>

#include "base/exception_message.h"
#include "base/shared_library.h"

#include <c10/util/Exception.h>

#include <filesystem>

namespace sconce {

// Rule R14: the library's version string is read before any C++ type is shared with it.
PassPipeline& PassPipeline::load_plugin(const std::string& path) {
  std::error_code ignored;
  TORCH_CHECK(std::filesystem::exists(path, ignored), path, ": no such file");
  // A path with a slash, so that the library search path is not used.
  const std::string file = std::filesystem::absolute(path).string();
  const SharedLibrary library = open_library(file).value_or_throw(path + ": cannot be opened");
  using EntryPoint = const PassPlugin* (*)();
  const auto entry = reinterpret_cast<EntryPoint>(library.symbol("sconce_pass_plugin"));
  TORCH_CHECK(entry != nullptr, path, ": is no library of passes: it has no SCONCE_PASS_PLUGIN (<sconce/pass_plugin.h>)");
  const PassPlugin* plugin = entry();
  const std::string theirs = plugin->abi;
  TORCH_CHECK(theirs == SCONCE_PASS_PLUGIN_ABI, path, ": was built for ", theirs, "; this is ", SCONCE_PASS_PLUGIN_ABI,
              "; build it again with the headers of this one");
  const size_t before = custom_.size();
  try {
    plugin->add_passes(*this);
  } catch (...) {
    custom_.resize(before);
    TORCH_CHECK(false, path, ": cannot add its passes: it throws: ", message_of(std::current_exception()));
  }
  for (size_t i = before; i < custom_.size(); ++i) {
    custom_[i].library = file;
  }
  return *this;
}

}  // namespace sconce
