#include "tools/sconce/ops_library.h"

#include "ir/shared_library.h"
#include "tools/sconce/errors.h"

#include <filesystem>

namespace sconce::cli {
namespace {

// What the dynamic linker says when a library was built as a Python extension, as torchvision's _C.so is.
bool needs_python(const std::string& message) {
  for (const char* sign : {"libtorch_python", "libpython", "undefined symbol: Py", "undefined symbol: _Py", "THPVariable"}) {
    if (message.find(sign) != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

void open_ops_library(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw UserError(path + ": no such file (--ops-library)");
  }
  // With a slash, so that the path is taken and not the library search path.
  const std::string file = std::filesystem::absolute(path).string();
  const SharedLibrary library = open_library(file, /*global=*/true);
  if (library) {
    return;
  }
  if (needs_python(library.why_not())) {
    throw UserError(
        path + ": this library is a Python extension: it needs Python's libraries, which are not in this process (" +
        library.why_not() + "); build the operators with TORCH_LIBRARY alone, linked with torch_cpu and c10 only");
  }
  throw UserError(path + ": cannot be opened: " + library.why_not());
}

}  // namespace sconce::cli
