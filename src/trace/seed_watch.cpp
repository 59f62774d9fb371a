#include "trace/seed_watch.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace sconce {
namespace {

constexpr uint64_t kWatched = 0x5ec0'7ce5'eed5'0bad;  // no program's own seed is this

struct Watches {
  std::mutex mutex;
  size_t living = 0;
  uint64_t seed = 0;      // what the generator has without us
  uint64_t seedings = 0;  // that were seen

  static Watches& get() {
    static auto& watches = *new Watches;
    return watches;
  }
};

at::CPUGeneratorImpl& generator() {
  return *at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
}

// Sets the number alone, and keeps the state.
void set_seed(uint64_t seed) {
  at::CPUGeneratorImpl& impl = generator();
  at::mt19937 engine = impl.engine();
  at::mt19937_data_pod data = engine.data();
  data.seed_ = seed;
  engine.set_data(data);
  impl.set_engine(engine);
}

// Requires the mutexes of the watches and of the generator.
void look(Watches& watches) {
  const uint64_t seed = generator().current_seed();
  if (seed != kWatched) {
    ++watches.seedings;
    watches.seed = seed;
    set_seed(kWatched);
  }
}

}  // namespace

SeedWatch::SeedWatch() {
  Watches& watches = Watches::get();
  const std::scoped_lock lock(watches.mutex, generator().mutex_);
  look(watches);
  ++watches.living;
  seedings_before_ = watches.seedings;
}

SeedWatch::~SeedWatch() {
  Watches& watches = Watches::get();
  const std::scoped_lock lock(watches.mutex, generator().mutex_);
  look(watches);
  if (--watches.living == 0) {
    set_seed(watches.seed);
  }
}

bool SeedWatch::was_seeded() const {
  Watches& watches = Watches::get();
  const std::scoped_lock lock(watches.mutex, generator().mutex_);
  look(watches);
  return watches.seedings != seedings_before_;
}

}  // namespace sconce
