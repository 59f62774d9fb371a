#include "tests/simulated_gpu/printed_kernels.h"

#include "fusion/cuda/cuda_text.h"

#include <c10/util/Exception.h>

#include <dlfcn.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <vector>

namespace sconce::testing {
namespace {

constexpr size_t kSharedBytes = size_t{228} * 1024;
constexpr size_t kThreadsOfWarp = 32;
constexpr uint32_t kBlocksRun = 2;  // they take turns. Of a list: all, because calls have blocks of their own

// What CUDA gives to a text, for one thread at a time.
constexpr const char* kBeforeText = R"(
#include <math.h>
#include <string.h>
#include <stdint.h>
#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__
struct Place { unsigned x, y, z; };
extern "C" {
Place threadIdx, blockIdx, blockDim, gridDim;
void (*wait_for_block)();
unsigned long long (*exchange)(unsigned long long bits, int mask);
__attribute__((aligned(16))) char shared[228 * 1024];
}
static inline void __syncthreads() { wait_for_block(); }
template <typename To, typename From> static inline To bits_as(From from) {
  To to{};
  memcpy(&to, &from, sizeof from < sizeof to ? sizeof from : sizeof to);
  return to;
}
template <typename T> static inline T __shfl_xor_sync(unsigned, T value, int mask) {
  return bits_as<T>(exchange(bits_as<unsigned long long>(value), mask));
}
static inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
static inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
static inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
template <typename I, typename F> static inline I towards_zero(F x, F below, F from, I least, I most) {
  return x <= below ? least : x >= from ? most : static_cast<I>(x);
}
static inline int __float2int_rz(float x) { return towards_zero(x, -0x1p31f, 0x1p31f, INT32_MIN, INT32_MAX); }
static inline int __double2int_rz(double x) { return towards_zero(x, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX); }
static inline long long __float2ll_rz(float x) {
  return towards_zero<long long, float>(x, -0x1p63f, 0x1p63f, INT64_MIN, INT64_MAX);
}
static inline long long __double2ll_rz(double x) {
  return towards_zero<long long, double>(x, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
static inline float half_as_float(unsigned short bits) { return bits_as<_Float16>(bits); }
static inline unsigned short float_as_half(float x) { return bits_as<unsigned short>(static_cast<_Float16>(x)); }
static inline unsigned short float_as_bfloat16(float x) {
  const unsigned bits = __float_as_uint(x);
  return static_cast<unsigned short>(x != x ? 0x7FFFu : (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
)";
constexpr const char* kAfterText = R"(
template <typename Argument> static void call(void (*kernel)(Argument), const void* argument) {
  kernel(*static_cast<const Argument*>(argument));
}
extern "C" void run_thread(const void* argument) { call(KERNEL, argument); }
)";

// The lines of PTX, and what stands for them.
constexpr std::array<std::array<const char*, 2>, 3> kReplaced = {{
    {R"(asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));)", "result = half_as_float(x.bits);"},
    {R"(asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));)", "result.bits = float_as_half(x);"},
    {R"(asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));)", "result.bits = float_as_bfloat16(x);"},
}};

std::string on_host(std::string text) {
  for (const auto& [from, to] : kReplaced) {
    if (const size_t at = text.find(from); at != text.npos) {
      text.replace(at, std::strlen(from), to);
    }
  }
  return kBeforeText + text + kAfterText;
}

struct Place {
  unsigned x, y, z;
};

// A text that is compiled and loaded, for good.
struct HostCode {
  bool have_meetings;  // threads wait for each other
  void (*run_thread)(const void* argument);
  Place* thread;
  Place* block;
  Place* threads;
  Place* blocks;
  void (**wait_for_block)();
  unsigned long long (**exchange)(unsigned long long bits, int mask);
  char* shared;
};

std::string contents_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

HostCode compile(const std::string& text, const std::string& kernel) {
  std::string directory = (std::filesystem::temp_directory_path() / "sconce-printed-XXXXXX").string();
  TORCH_CHECK(mkdtemp(directory.data()) != nullptr, "no directory for the code of a kernel");
  const std::filesystem::path base = std::filesystem::path(directory) / "kernel";
  std::ofstream(base.string() + ".cpp") << on_host(text);
  const std::string command = std::string(SCONCE_TEST_COMPILER) + " -DKERNEL=" + kernel +
                              " -std=c++20 -O1 -w -ffp-contract=off -shared -fPIC '" + base.string() + ".cpp' -o '" +
                              base.string() + ".so' 2> '" + base.string() + ".log'";
  const bool is_compiled = std::system(command.c_str()) == 0;
  const std::string log = contents_of(base.string() + ".log");
  void* const library = is_compiled ? dlopen((base.string() + ".so").c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  const std::string why_not = is_compiled && library == nullptr ? dlerror() : log;
  std::filesystem::remove_all(directory);
  TORCH_CHECK(library != nullptr, "the text of a kernel does not compile for the CPU: ", why_not, "\n", text);
  const auto find = [library]<typename T>(T*& place, const char* name) {
    place = reinterpret_cast<T*>(dlsym(library, name));
  };
  HostCode code{.have_meetings = text.find("__syncthreads()") != text.npos || text.find("__shfl_xor_sync(") != text.npos};
  find(code.run_thread, "run_thread");
  find(code.thread, "threadIdx");
  find(code.block, "blockIdx");
  find(code.threads, "blockDim");
  find(code.blocks, "gridDim");
  find(code.wait_for_block, "wait_for_block");
  find(code.exchange, "exchange");
  find(code.shared, "shared");
  return code;
}

// A block at work. One at a time: kernels run under the lock of the driver.
class Block {
 public:
  Block(const HostCode& code, uint32_t threads, const void* argument) : code_(code), argument_(argument), fibers_(threads) {
    for (Fiber& fiber : fibers_) {
      fiber.stack = std::make_unique<char[]>(kStackBytes);
    }
  }

  void run(const Place& block, size_t shared_bytes) {
    *code_.block = block;
    *code_.wait_for_block = [] { now_->pause(State::kAtBarrier); };
    *code_.exchange = [](unsigned long long bits, int mask) { return now_->shuffle(bits, mask); };
    std::memset(code_.shared, 0xFF, shared_bytes);
    for (Fiber& fiber : fibers_) {
      getcontext(&fiber.context);
      fiber.context.uc_stack = {.ss_sp = fiber.stack.get(), .ss_flags = 0, .ss_size = kStackBytes};
      fiber.context.uc_link = &scheduler_;
      makecontext(&fiber.context, &Block::enter, 0);
      fiber.state = State::kReady;
    }
    now_ = this;
    while (count(State::kEnded, 0, fibers_.size()) != fibers_.size()) {
      for (current_ = 0; current_ < fibers_.size(); ++current_) {
        if (fibers_[current_].state == State::kReady) {
          *code_.thread = {static_cast<unsigned>(current_), 0, 0};
          swapcontext(&scheduler_, &fibers_[current_].context);
        }
      }
      release();
    }
  }

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kAtShuffle, kEnded };
  static constexpr size_t kStackBytes = size_t{64} * 1024;
  struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    State state = State::kReady;
    unsigned long long bits = 0;  // that it brings to a shuffle
  };

  static void enter() {
    Block& block = *now_;
    const size_t self = block.current_;
    block.code_.run_thread(block.argument_);
    block.fibers_[self].state = State::kEnded;
  }
  void pause(State state) {
    Fiber& fiber = fibers_[current_];
    fiber.state = state;
    swapcontext(&fiber.context, &scheduler_);
  }
  unsigned long long shuffle(unsigned long long bits, int mask) {
    const size_t self = current_;
    fibers_[self].bits = bits;
    pause(State::kAtShuffle);  // until all have brought theirs
    const size_t lane = self % kThreadsOfWarp;
    const unsigned long long found = fibers_[self - lane + (lane ^ static_cast<size_t>(mask))].bits;
    pause(State::kAtShuffle);  // until all have taken theirs
    return found;
  }

  size_t count(State state, size_t begin, size_t end) const {
    return static_cast<size_t>(std::count_if(fibers_.begin() + static_cast<std::ptrdiff_t>(begin),
                                             fibers_.begin() + static_cast<std::ptrdiff_t>(end),
                                             [state](const Fiber& fiber) { return fiber.state == state; }));
  }
  void make_ready(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      fibers_[i].state = State::kReady;
    }
  }
  // Lets threads go on that have met.
  void release() {
    bool has_released = false;
    for (size_t warp = 0; warp < fibers_.size(); warp += kThreadsOfWarp) {
      const size_t end = std::min(warp + kThreadsOfWarp, fibers_.size());
      const size_t waiting = count(State::kAtShuffle, warp, end);
      TORCH_CHECK(waiting == 0 || waiting == end - warp, "a shuffle that only some threads of a warp reach");
      if (waiting != 0) {
        make_ready(warp, end);
        has_released = true;
      }
    }
    const size_t at_barrier = count(State::kAtBarrier, 0, fibers_.size());
    if (!has_released && at_barrier != 0) {
      TORCH_CHECK(at_barrier == fibers_.size(), "a barrier that only some threads of a block reach");
      make_ready(0, fibers_.size());
    }
  }

  static inline Block* now_ = nullptr;
  const HostCode& code_;
  const void* const argument_;
  std::vector<Fiber> fibers_;
  size_t current_ = 0;
  ucontext_t scheduler_{};
};

void run(const HostCode& code, const cuda::LaunchDimensions& dimensions, uint32_t most_blocks, const void* argument) {
  TORCH_CHECK(dimensions.shared_bytes <= kSharedBytes, "a block has too much shared memory");
  const uint32_t blocks = std::min(dimensions.grid[0], most_blocks);
  *code.blocks = {blocks, 1, 1};
  *code.threads = {dimensions.block[0], 1, 1};
  if (!code.have_meetings) {
    for (uint32_t i = 0; i < blocks * dimensions.block[0]; ++i) {
      *code.block = {i / dimensions.block[0], 0, 0};
      *code.thread = {i % dimensions.block[0], 0, 0};
      code.run_thread(argument);
    }
    return;
  }
  Block block(code, dimensions.block[0], argument);
  for (uint32_t i = 0; i < blocks; ++i) {
    block.run({i, 0, 0}, dimensions.shared_bytes);
  }
}

}  // namespace

cuda::FakeDriver::KernelDefinition printed_kernel(const std::string& text, const std::string& name, size_t parameter_bytes) {
  static std::mutex mutex;
  static std::map<std::string, HostCode> codes;
  const std::lock_guard<std::mutex> lock(mutex);
  auto found = codes.find(name + text);
  if (found == codes.end()) {
    found = codes.emplace(name + text, compile(text, name)).first;
  }
  const uint32_t most_blocks = name == kListKernelName ? UINT32_MAX : kBlocksRun;
  return {{parameter_bytes},
          [&code = found->second, most_blocks](const cuda::LaunchDimensions& dimensions, void* const* arguments) {
            run(code, dimensions, most_blocks, arguments[0]);
          }};
}

}  // namespace sconce::testing
