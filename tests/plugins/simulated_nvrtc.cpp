// NVRTC's interface for the simulated GPU: machine code is the program's text, in the form of an image that the simulated
// driver loads (tests/simulated_driver/fake_driver.h).
#include <cstring>
#include <memory>
#include <string>

namespace {

struct Program {
  std::string text;
  std::string image;
  std::string log;
};

enum Result { kSuccess = 0, kInvalidOption = 5 };
constexpr size_t kHeaderBytes = 64;

Result give_size(const std::string& bytes, size_t* size) {
  *size = bytes.size();
  return kSuccess;
}

Result give(const std::string& bytes, char* to) {
  std::memcpy(to, bytes.data(), bytes.size());
  return kSuccess;
}

}  // namespace

extern "C" {

Result nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return kSuccess;
}

const char* nvrtcGetErrorString(Result result) { return result == kSuccess ? "success" : "invalid option"; }

Result nvrtcCreateProgram(Program** program, const char* text, const char* /*name*/, int /*headers*/,
                          const char* const* /*header_texts*/, const char* const* /*header_names*/) {
  *program = new Program{text, {}, {}};
  return kSuccess;
}

Result nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}

// Requires the architecture of the simulated GPU, and products that are rounded before they are added.
Result nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  bool for_simulated_gpu = false;
  bool rounds_products = false;
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i];
    for_simulated_gpu = for_simulated_gpu || option == "--gpu-architecture=sm_90";
    rounds_products = rounds_products || option == "--fmad=false";
  }
  if (!for_simulated_gpu || !rounds_products) {
    program->log = "the simulated GPU is an sm_90 and needs --fmad=false";
    return kInvalidOption;
  }
  program->image.assign(kHeaderBytes, '\0');
  program->image.replace(0, 4,
                         "\x7f"
                         "ELF");
  program->image += program->text;
  return kSuccess;
}

Result nvrtcGetCUBINSize(Program* program, size_t* size) { return give_size(program->image, size); }
Result nvrtcGetCUBIN(Program* program, char* to) { return give(program->image, to); }
Result nvrtcGetProgramLogSize(Program* program, size_t* size) { return give_size(program->log, size); }
Result nvrtcGetProgramLog(Program* program, char* to) { return give(program->log, to); }

}  // extern "C"
