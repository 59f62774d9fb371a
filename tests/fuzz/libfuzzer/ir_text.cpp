#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sconce::testing::fuzz_ir_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
