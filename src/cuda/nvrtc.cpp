#include "cuda/nvrtc.h"

#include "base/shared_library.h"

#include <cuda.h>
#include <nvrtc.h>

#include <filesystem>

namespace sconce::cuda {
namespace {

// The library's name contains CUDA's major version. Code of one major version does not load in another's driver.
const std::string kFileName = "libnvrtc.so." + std::to_string(CUDA_VERSION / 1000);

// clang-format off
#define SCONCE_NVRTC_FUNCTIONS(X)                                                                            \
  X(nvrtcVersion) X(nvrtcGetErrorString) X(nvrtcCreateProgram) X(nvrtcDestroyProgram) X(nvrtcCompileProgram) \
  X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN) X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog)
// clang-format on

struct NvrtcFunctions {
#define SCONCE_FIELD(name) decltype(&::name) name = nullptr;
  SCONCE_NVRTC_FUNCTIONS(SCONCE_FIELD)
#undef SCONCE_FIELD
};

// The headers (cuda_fp16.h, …) of a wheel or toolkit are in `include` beside the library's folder.
std::string include_directory_beside(const std::string& library_path) {
  const std::filesystem::path include = std::filesystem::path(library_path).parent_path().parent_path() / "include";
  std::error_code ignored;
  return std::filesystem::exists(include / "cuda_fp16.h", ignored) ? include.string() : std::string();
}

class LoadedNvrtc final : public Nvrtc {
 public:
  LoadedNvrtc(const NvrtcFunctions& functions, std::string path)
      : f_(functions), path_(std::move(path)), include_(include_directory_beside(path_)) {
    int major = 0;
    int minor = 0;
    f_.nvrtcVersion(&major, &minor);
    version_ = std::to_string(major) + "." + std::to_string(minor);
  }

  const std::string& version() const override { return version_; }
  const std::string& path() const override { return path_; }

  Expected<Cubin> compile(const std::string& text, const std::string& architecture,
                          const std::vector<std::string>& options) const override {
    const Program program(f_, text);
    if (program.created != NVRTC_SUCCESS) {
      return Refusal::because(error("nvrtcCreateProgram", program.created));
    }
    std::vector<std::string> arguments = {"--gpu-architecture=" + architecture, "--std=c++17",
                                          "--device-as-default-execution-space"};
    if (!include_.empty()) {
      arguments.push_back("--include-path=" + include_);
    }
    arguments.insert(arguments.end(), options.begin(), options.end());
    std::vector<const char*> pointers;
    for (const std::string& argument : arguments) {
      pointers.push_back(argument.c_str());
    }
    const nvrtcResult compiled = f_.nvrtcCompileProgram(program.handle, int(pointers.size()), pointers.data());
    std::string log = text_of(program.handle, f_.nvrtcGetProgramLogSize, f_.nvrtcGetProgramLog);
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) {
      log.pop_back();
    }
    if (compiled != NVRTC_SUCCESS) {
      return Refusal::because(error("compiling for " + architecture, compiled) + (log.empty() ? "" : "\n" + log));
    }
    std::string bytes = text_of(program.handle, f_.nvrtcGetCUBINSize, f_.nvrtcGetCUBIN);
    if (bytes.empty()) {
      return Refusal::because("NVRTC " + version_ + " gave no machine code for " + architecture +
                              "; is it a chip (sm_90) and not a virtual architecture (compute_90)?");
    }
    return Cubin{std::move(bytes), std::move(log)};
  }

 private:
  struct Program {
    Program(const NvrtcFunctions& functions, const std::string& text) : f(functions) {
      created = f.nvrtcCreateProgram(&handle, text.c_str(), "kernel.cu", 0, nullptr, nullptr);
    }
    ~Program() {
      if (handle != nullptr) {
        f.nvrtcDestroyProgram(&handle);
      }
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    const NvrtcFunctions& f;
    nvrtcProgram handle = nullptr;
    nvrtcResult created;
  };

  // Calls one of the interface's pairs "size, then bytes". Empty if there is nothing.
  template <typename GetSize, typename Get>
  static std::string text_of(nvrtcProgram program, GetSize get_size, Get get) {
    size_t size = 0;
    if (get_size(program, &size) != NVRTC_SUCCESS || size == 0) {
      return {};
    }
    std::string bytes(size, '\0');
    return get(program, bytes.data()) == NVRTC_SUCCESS ? bytes : std::string();
  }

  std::string error(const std::string& what, nvrtcResult code) const {
    return "NVRTC " + version_ + ", " + what + ": " + f_.nvrtcGetErrorString(code);
  }

  const NvrtcFunctions f_;
  std::string path_;
  std::string include_;
  std::string version_;
};

Expected<std::unique_ptr<Nvrtc>> load_nvrtc(const SharedLibrary& library) {
  NvrtcFunctions functions;
  const char* missing = nullptr;
#define SCONCE_LOAD(name)                                                             \
  functions.name = reinterpret_cast<decltype(functions.name)>(library.symbol(#name)); \
  if (functions.name == nullptr) missing = #name;
  SCONCE_NVRTC_FUNCTIONS(SCONCE_LOAD)
#undef SCONCE_LOAD
  if (missing != nullptr) {
    return Refusal::because("the NVRTC library that was found is not one of CUDA " + std::to_string(CUDA_VERSION / 1000) +
                            ": it lacks " + missing);
  }
  return std::make_unique<LoadedNvrtc>(functions, library.path_of("nvrtcVersion"));
}

}  // namespace

std::vector<std::string> nvrtc_directories_of_libtorch(const std::string& libtorch_directory) {
  if (libtorch_directory.empty()) {
    return {};
  }
  const std::string wheel = "nvidia/cu" + std::to_string(CUDA_VERSION / 1000) + "/lib";
  return {libtorch_directory + "/../../" + wheel, libtorch_directory};
}

Expected<std::unique_ptr<Nvrtc>> open_nvrtc(const NvrtcPlaces& places) {
  std::vector<std::string> names;
  if (!places.file.empty()) {
    names = {places.file};
  } else {
    for (const std::string& directory : places.directories) {
      names.push_back(directory + "/" + kFileName);
    }
    names.push_back(kFileName);
  }
  std::string tried;
  for (const std::string& name : names) {
    const auto library = open_library(name);
    if (library) {
      return load_nvrtc(*library);
    }
    tried += "\n  " + library.refusal().reason;
  }
  return Refusal::because("no " + kFileName +
                          ", which compiles CUDA kernels, was found (install the package nvidia-cuda-nvrtc, or "
                          "name the file in SCONCE_NVRTC):" +
                          tried);
}

}  // namespace sconce::cuda
