// Finding and opening the shared libraries that sconce loads when they are needed: its own back ends and NVIDIA's.
// Without LibTorch's headers: code that must run where LibTorch is not installed includes this.
#pragma once

#include "base/expected.h"

#include <string>

namespace sconce {

// An open library. Never closed: code and type information of a back end must outlive everything that was made with it.
class SharedLibrary {
 public:
  // The symbol's address; null when the library has no such symbol.
  void* symbol(const char* name) const;
  // Where the library that defines `symbol_name` lies on disk; empty when it has no such symbol.
  std::string path_of(const char* symbol_name) const;
  // Lets the pages of code and constants leave the process. They come back from the file when they are touched; any thread
  // may run the library meanwhile.
  void page_out() const;

 private:
  friend Expected<SharedLibrary> open_library(const std::string& name, bool global);
  friend Expected<SharedLibrary> loaded_library(const std::string& name);
  explicit SharedLibrary(void* handle) : handle_(handle) {}

  void* handle_;
};

// Opens a path, or a name that the dynamic linker looks up. All symbols are bound at once, so that a missing one is a
// refusal here and not a crash later: the dynamic linker's words, which begin with the file's name. `global`: later
// libraries may bind to its symbols.
Expected<SharedLibrary> open_library(const std::string& name, bool global = false);

// Returns the library if the process has it already.
Expected<SharedLibrary> loaded_library(const std::string& name);

// The folder of the library or program that holds this address, for finding what lies beside it; empty when unknown.
std::string directory_of_code(const void* address);

}  // namespace sconce
