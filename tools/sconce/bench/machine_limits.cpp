#include "tools/sconce/bench/machine_limits.h"

#include "base/environment.h"
#include "base/file_cache.h"
#include "base/processor_name.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sconce::cli {
namespace {

// Accumulators of one loop: enough to hide the latency of a multiplication and addition (4 cycles) at two or three of them
// a cycle.
constexpr size_t kChains = 12;
constexpr double kSecondsOfAPoint = 0.02;
constexpr int kTurns = 2;
constexpr std::array<double, 7> kSizes = {32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};

// Stops the compiler from leaving out what nothing reads.
template <typename T>
void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// A loop of `rounds` rounds of multiplications and additions. Returns how many operations it did.
using Arithmetic = double (*)(size_t rounds);
// Reads all of the memory `rounds` times.
using Reading = void (*)(const float* memory, size_t count, size_t rounds);

#if defined(__x86_64__)

// Arrays of vectors cannot be std::arrays: a template argument drops the vector's attributes. The inner loops are unrolled,
// or the sums would lie in memory; they differ, or the compiler would compute one of them.
#define SCONCE_FMA_LOOP(name, isa, vector, set, fma, lanes)                          \
  __attribute__((target(isa))) double name(size_t rounds) {                          \
    const vector factor = set(0.5);                                                  \
    vector sums[kChains];                                                            \
    _Pragma("GCC unroll 12") for (size_t chain = 0; chain < kChains; ++chain) {      \
      sums[chain] = set(static_cast<int>(chain));                                    \
    }                                                                                \
    for (size_t round = 0; round < rounds; ++round) {                                \
      _Pragma("GCC unroll 12") for (size_t chain = 0; chain < kChains; ++chain) {    \
        sums[chain] = fma(sums[chain], factor, factor);                              \
      }                                                                              \
    }                                                                                \
    keep(sums);                                                                      \
    return static_cast<double>(rounds) * static_cast<double>(2 * kChains * (lanes)); \
  }

SCONCE_FMA_LOOP(float_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, 16)
SCONCE_FMA_LOOP(double_avx512, "avx512f", __m512d, _mm512_set1_pd, _mm512_fmadd_pd, 8)
SCONCE_FMA_LOOP(float_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, 8)
SCONCE_FMA_LOOP(double_avx2, "avx2,fma", __m256d, _mm256_set1_pd, _mm256_fmadd_pd, 4)

#define SCONCE_READ_LOOP(name, isa, vector, zero, load, both, lanes)                         \
  __attribute__((target(isa))) void name(const float* memory, size_t count, size_t rounds) { \
    vector sums[8] = {zero(), zero(), zero(), zero(), zero(), zero(), zero(), zero()};       \
    for (size_t round = 0; round < rounds; ++round) {                                        \
      for (size_t i = 0; i + 8 * (lanes) <= count; i += 8 * (lanes)) {                       \
        _Pragma("GCC unroll 8") for (size_t part = 0; part < 8; ++part) {                    \
          sums[part] = both(sums[part], load(memory + i + part * (lanes)));                  \
        }                                                                                    \
      }                                                                                      \
      keep(sums);                                                                            \
    }                                                                                        \
  }

SCONCE_READ_LOOP(read_avx512, "avx512f", __m512, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_add_ps, 16)
SCONCE_READ_LOOP(read_avx2, "avx2", __m256, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_add_ps, 8)

#endif

// For processors without these instructions: as the compiler makes it.
template <typename T>
double plain_arithmetic(size_t rounds) {
  constexpr size_t kLanes = 8;
  std::array<T, kChains * kLanes> sums;
  std::iota(sums.begin(), sums.end(), T(0));
  for (size_t round = 0; round < rounds; ++round) {
    for (T& sum : sums) {
      sum = sum * T(0.5) + T(0.5);
    }
    keep(sums);
  }
  return static_cast<double>(2 * rounds * sums.size());
}

void plain_reading(const float* memory, size_t count, size_t rounds) {
  for (size_t round = 0; round < rounds; ++round) {
    std::array<float, 16> sums{};
    for (size_t i = 0; i + 16 <= count; i += 16) {
      for (size_t lane = 0; lane < 16; ++lane) {
        sums[lane] += memory[i + lane];
      }
    }
    keep(sums);
  }
}

struct Loops {
  Arithmetic of_float = plain_arithmetic<float>;
  Arithmetic of_double = plain_arithmetic<double>;
  Reading reading = plain_reading;
};

Loops loops_of_this_processor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    return {float_avx512, double_avx512, read_avx512};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {float_avx2, double_avx2, read_avx2};
  }
#endif
  return {};
}

// Runs `work(thread, rounds)` on all threads at the same time, and returns what it does a second, all threads together.
// `work` returns how much it did.
double rate_of(int threads, const std::function<double(int thread, size_t rounds)>& work) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  size_t rounds = 1;
  for (double seconds = 0; seconds < kSecondsOfAPoint / 4; rounds *= 2) {
    const auto begin = Clock::now();
    work(0, rounds);
    seconds = seconds_since(begin);
  }
  rounds *= 2;
  std::atomic<double> rate = 0;
  std::barrier start(threads);
  std::vector<std::thread> others;
  const auto run = [&](int thread) {
    start.arrive_and_wait();
    const auto begin = Clock::now();
    const double done = work(thread, rounds);
    rate += done / seconds_since(begin);
  };
  for (int thread = 1; thread < threads; ++thread) {
    others.emplace_back(run, thread);
  }
  run(0);
  std::ranges::for_each(others, &std::thread::join);
  return rate;
}

MachineLimits measure(int threads) {
  const Loops loops = loops_of_this_processor();
  MachineLimits limits{.threads = threads};
  for (const double bytes : kSizes) {
    limits.bandwidths.push_back({bytes, 0});
  }
  const auto count = static_cast<size_t>(kSizes.back()) / sizeof(float);
  const std::vector<float> memory(count, 1.0F);
  for (int turn = 0; turn < kTurns; ++turn) {
    limits.float_flops =
        std::max(limits.float_flops, rate_of(threads, [&](int, size_t rounds) { return loops.of_float(rounds); }));
    limits.double_flops =
        std::max(limits.double_flops, rate_of(threads, [&](int, size_t rounds) { return loops.of_double(rounds); }));
    for (MachineLimits::Bandwidth& point : limits.bandwidths) {
      const size_t share = static_cast<size_t>(point.bytes) / sizeof(float) / static_cast<size_t>(threads);
      const double rate = rate_of(threads, [&](int thread, size_t rounds) {
        loops.reading(memory.data() + static_cast<size_t>(thread) * share, share, rounds);
        return static_cast<double>(rounds * share * sizeof(float));
      });
      point.bytes_per_second = std::max(point.bytes_per_second, rate);
    }
  }
  return limits;
}

// Less memory is read at least as fast as more.
void raise_bandwidths(MachineLimits& limits) {
  double most = 0;
  for (auto point = limits.bandwidths.rbegin(); point != limits.bandwidths.rend(); ++point) {
    most = point->bytes_per_second = std::max(most, point->bytes_per_second);
  }
}

std::optional<MachineLimits> read(const std::string& text, int threads) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("bandwidths") || json["bandwidths"].size() != kSizes.size()) {
    return std::nullopt;
  }
  MachineLimits limits{.threads = threads, .float_flops = json["float32_flops"], .double_flops = json["float64_flops"]};
  for (const Json& point : json["bandwidths"]) {
    limits.bandwidths.push_back({point["bytes"], point["bytes_per_second"]});
  }
  return limits;
}

MachineLimits better_of(const MachineLimits& one, const MachineLimits& other) {
  MachineLimits best = one;
  best.float_flops = std::max(one.float_flops, other.float_flops);
  best.double_flops = std::max(one.double_flops, other.double_flops);
  for (size_t i = 0; i < best.bandwidths.size(); ++i) {
    best.bandwidths[i].bytes_per_second = std::max(one.bandwidths[i].bytes_per_second, other.bandwidths[i].bytes_per_second);
  }
  return best;
}

}  // namespace

double MachineLimits::bandwidth(double bytes) const {
  const auto above = std::ranges::find_if(bandwidths, [&](const Bandwidth& point) { return point.bytes >= bytes; });
  if (above == bandwidths.begin() || above == bandwidths.end()) {
    return above == bandwidths.end() ? bandwidths.back().bytes_per_second : above->bytes_per_second;
  }
  const Bandwidth& below = *(above - 1);
  const double share = std::log(bytes / below.bytes) / std::log(above->bytes / below.bytes);
  return below.bytes_per_second + share * (above->bytes_per_second - below.bytes_per_second);
}

std::optional<double> MachineLimits::seconds_of(const StepWork& work, double constant_bytes) const {
  const double other_bytes = work.bytes - work.constant_bytes;
  const double traffic = (work.constant_bytes > 0 ? work.constant_bytes / bandwidth(constant_bytes) : 0) +
                         (other_bytes > 0 ? other_bytes / bandwidth(other_bytes) : 0);
  if (work.flops > 0 && c10::isReducedFloatingType(work.dtype)) {
    return std::nullopt;
  }
  const bool is_double = work.dtype == c10::ScalarType::Double || work.dtype == c10::ScalarType::ComplexDouble;
  const bool is_float = work.dtype == c10::ScalarType::Float || work.dtype == c10::ScalarType::ComplexFloat;
  return std::max(traffic, is_double ? work.flops / double_flops : is_float ? work.flops / float_flops : 0);
}

MachineLimits limits_of_this_machine(int threads) {
  const FileCache cache(environment().kernel_cache, ".limits");
  const std::string key = "limits of a machine, 1\nthreads " + std::to_string(threads) + "\n" + processor_name();
  MachineLimits limits = measure(threads);
  const auto text = cache.find(key);
  if (const auto kept = text ? read(*text, threads) : std::nullopt) {
    limits = better_of(*kept, limits);
  }
  raise_bandwidths(limits);
  cache.keep(key, to_json(limits).dump());
  return limits;
}

Json to_json(const MachineLimits& limits) {
  Json bandwidths = Json::array();
  for (const MachineLimits::Bandwidth& point : limits.bandwidths) {
    bandwidths.push_back(Json{{"bytes", point.bytes}, {"bytes_per_second", point.bytes_per_second}});
  }
  return Json{{"threads", limits.threads},
              {"float32_flops", limits.float_flops},
              {"float64_flops", limits.double_flops},
              {"bandwidths", std::move(bandwidths)}};
}

}  // namespace sconce::cli
