#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sconce::testing::fuzz_archive_check({data, size});
  return 0;
}
