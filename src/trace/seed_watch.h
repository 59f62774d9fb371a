// SeedWatch: whether code seeds LibTorch's generator, also with the seed that it has.
#pragma once

#include <cstdint>

namespace sconce {

// While one lives, the seed of the CPU's generator is another number, in the same state. Random numbers are those that the
// generator would have drawn; code that asks for the seed gets the other number. Several may live at a time, on several
// threads: a seed by any of them counts for all.
class SeedWatch {
 public:
  SeedWatch();
  ~SeedWatch();
  SeedWatch(const SeedWatch&) = delete;
  SeedWatch& operator=(const SeedWatch&) = delete;

  bool was_seeded() const;

 private:
  uint64_t seedings_before_;
};

}  // namespace sconce
