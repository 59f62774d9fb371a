// NVIDIA's run-time compiler: CUDA C++ text to machine code for one GPU architecture. Needs no GPU and no driver.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace sconce::cuda {

struct Cubin {
  std::string bytes;    // an ELF image for Driver::load_module; empty when the text did not compile
  std::string why_not;  // then: the compiler's error and its whole log
  std::string log;      // warnings, when it did compile

  bool ok() const { return why_not.empty(); }
};

// Thread-safe: a compilation shares nothing with another.
class Nvrtc {
 public:
  virtual ~Nvrtc() = default;

  // `architecture` is of one chip, "sm_90": the image is not portable to others. `options` are the compiler's own
  // ("--fmad=false"), added to the standard ones (C++17, the CUDA headers that lie beside the library).
  virtual Cubin compile(const std::string& text, const std::string& architecture,
                        const std::vector<std::string>& options = {}) const = 0;

  virtual const std::string& version() const = 0;  // "13.0"
  virtual const std::string& path() const = 0;     // of the library
};

struct NvrtcPlaces {
  std::string file;                      // take this library and no other; empty: search
  std::vector<std::string> directories;  // look here first, in this order, then where the dynamic linker looks
};

// The folders where a LibTorch from PyPI or from an archive has its libnvrtc.
std::vector<std::string> nvrtc_directories_of_libtorch(const std::string& libtorch_directory);

// Opens the library. Null when there is none, with every place that was tried and why it failed.
std::unique_ptr<Nvrtc> open_nvrtc(const NvrtcPlaces& places, std::string* why_not);

}  // namespace sconce::cuda
