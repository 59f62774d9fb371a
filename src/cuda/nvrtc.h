// NVIDIA's run-time compiler: CUDA C++ text to machine code for one GPU architecture. Needs no GPU and no driver.
#pragma once

#include "base/expected.h"

#include <memory>
#include <string>
#include <vector>

namespace sconce::cuda {

struct Cubin {
  std::string bytes;  // an ELF image for Driver::load_module
  std::string log;    // warnings
};

// Thread-safe: a compilation shares nothing with another.
class Nvrtc {
 public:
  virtual ~Nvrtc() = default;

  // `architecture` is of one chip, "sm_90": the image is not portable to others. `options` are the compiler's own
  // ("--fmad=false"), added to the standard ones (C++17, the CUDA headers that lie beside the library). A refusal has the
  // compiler's error and its whole log.
  virtual Expected<Cubin> compile(const std::string& text, const std::string& architecture,
                                  const std::vector<std::string>& options = {}) const = 0;

  virtual const std::string& version() const = 0;  // "13.0"
  virtual const std::string& path() const = 0;     // of the library
};

struct NvrtcPlaces {
  std::string file;                      // take this library and no other; empty: search
  std::vector<std::string> directories;  // look here first, in this order, then where the dynamic linker looks
  std::string cache = {};                // the directory that keeps machine code; empty: none
};

// The folders where a LibTorch from PyPI or from an archive has its libnvrtc.
std::vector<std::string> nvrtc_directories_of_libtorch(const std::string& libtorch_directory);

// Opens the library. A refusal lists every place that was tried and why it failed.
Expected<std::unique_ptr<Nvrtc>> open_nvrtc(const NvrtcPlaces& places);

}  // namespace sconce::cuda
