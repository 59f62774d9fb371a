#include "ir/shared_library.h"

#include <dlfcn.h>

namespace sconce {
namespace {

std::string last_linker_error(const std::string& name) {
  const char* text = dlerror();
  return text != nullptr ? text : name + ": cannot be opened";
}

std::string path_of_code(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : std::string();
}

}  // namespace

void* SharedLibrary::symbol(const char* name) const { return handle_ == nullptr ? nullptr : dlsym(handle_, name); }

std::string SharedLibrary::path_of(const char* symbol_name) const {
  const void* address = symbol(symbol_name);
  return address == nullptr ? std::string() : path_of_code(address);
}

SharedLibrary open_library(const std::string& name, bool global) {
  SharedLibrary library;
  library.handle_ = dlopen(name.c_str(), RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (!library) {
    library.why_not_ = last_linker_error(name);
  }
  return library;
}

SharedLibrary loaded_library(const std::string& name) {
  SharedLibrary library;
  library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!library) {
    library.why_not_ = name + ": not loaded";
  }
  return library;
}

std::string directory_of_code(const void* address) {
  const std::string path = path_of_code(address);
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

}  // namespace sconce
