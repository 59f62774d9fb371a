#include "base/shared_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>

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

// Returns whether the file ends before the end of its program headers' segments. The dynamic linker maps such a file,
// and the process ends when it reads there. A file that is not an ELF file of this machine is left to the linker to
// reject.
bool is_cut_short(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = file ? static_cast<uint64_t>(file.tellg()) : 0;
  const auto read_at = [&](uint64_t offset, auto& into) {
    file.seekg(static_cast<std::streamoff>(offset));
    return static_cast<bool>(file.read(reinterpret_cast<char*>(&into), sizeof(into)));
  };
  Elf64_Ehdr header{};
  if (!file || !read_at(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64) {
    return false;
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(header.e_phoff + i * sizeof(segment), segment)) {
      return true;
    }
    if (segment.p_type == PT_LOAD && (segment.p_offset > size || segment.p_filesz > size - segment.p_offset)) {
      return true;
    }
  }
  return false;
}

// Called for each library of the process. Pages that the library or the linker may write are left alone: they are not the
// file's any longer.
int page_out_library(dl_phdr_info* library, size_t /*bytes*/, void* base) {
  if (library->dlpi_addr != reinterpret_cast<ElfW(Addr)>(base)) {
    return 0;
  }
  const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
  for (const ElfW(Phdr) & segment : std::span(library->dlpi_phdr, library->dlpi_phnum)) {
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_W) == 0) {
      const ElfW(Addr) begin = (library->dlpi_addr + segment.p_vaddr + page - 1) / page * page;
      const ElfW(Addr) end = (library->dlpi_addr + segment.p_vaddr + segment.p_filesz) / page * page;
      if (begin < end) {
        madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
      }
    }
  }
  return 1;
}

}  // namespace

void SharedLibrary::page_out() const {
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0) {
    dl_iterate_phdr(&page_out_library, reinterpret_cast<void*>(map->l_addr));
  }
}

void* SharedLibrary::symbol(const char* name) const { return dlsym(handle_, name); }

std::string SharedLibrary::path_of(const char* symbol_name) const {
  const void* address = symbol(symbol_name);
  return address == nullptr ? std::string() : path_of_code(address);
}

Expected<SharedLibrary> open_library(const std::string& name, bool global) {
  if (name.find('/') != std::string::npos && is_cut_short(name)) {
    return Refusal::because(name + ": the file is cut short");
  }
  void* handle = dlopen(name.c_str(), RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (handle == nullptr) {
    return Refusal::because(last_linker_error(name));
  }
  return SharedLibrary(handle);
}

Expected<SharedLibrary> loaded_library(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) {
    return Refusal::because(name + ": not loaded");
  }
  return SharedLibrary(handle);
}

std::string directory_of_code(const void* address) {
  const std::string path = path_of_code(address);
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

}  // namespace sconce
