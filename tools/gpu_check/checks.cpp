#include "tools/gpu_check/checks.h"

#include "cuda/stream_capture.h"

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

namespace sconce::gpu_check {
namespace {

using nlohmann::json;

constexpr uint32_t kThreads = 256;

const char* const kAxpyText = R"(
extern "C" __global__ void axpy(float a, const float* x, const float* y, float* out, unsigned long long n) {
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[i] = a * x[i] + y[i];
}
)";

void require(bool condition, const std::string& what) {
  if (!condition) {
    throw std::runtime_error(what);
  }
}

std::vector<float> random_floats(size_t size) {
  std::mt19937 generator(std::random_device{}());  // new values each time, so that a stale result cannot pass
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(size);
  for (float& value : values) {
    value = uniform(generator);
  }
  return values;
}

// out = a * x + y on a stream, and the expected result.
class Axpy {
 public:
  Axpy(Gpu& gpu, size_t size)
      : gpu_(gpu), function_(gpu.kernel(kAxpyText, "axpy")), x_(gpu, size), y_(gpu, size), out_(gpu, size) {}

  void fill() {
    x_host_ = random_floats(x_.size());
    y_host_ = random_floats(x_.size());
    x_.write(x_host_);
    y_.write(y_host_);
    poison();
  }
  void poison() { out_.write(std::vector<float>(out_.size(), std::numeric_limits<float>::quiet_NaN())); }

  void launch(float a, uint32_t blocks) {
    CUdeviceptr x = x_.pointer();
    CUdeviceptr y = y_.pointer();
    CUdeviceptr out = out_.pointer();
    unsigned long long n = x_.size();
    void* arguments[] = {&a, &x, &y, &out, &n};
    cuda::LaunchDimensions dimensions;
    dimensions.grid[0] = blocks;
    dimensions.block[0] = kThreads;
    need(gpu_.driver().launch_kernel(function_, dimensions, gpu_.stream(), arguments));
  }

  // Returns the largest error against double-precision arithmetic. Throws if it is more than rounding.
  double largest_error(float a) const {
    const std::vector<float> result = out_.read();
    double largest = 0;
    for (size_t i = 0; i < result.size(); ++i) {
      const double error = std::abs(double(result[i]) - (double(a) * x_host_[i] + y_host_[i]));
      require(error <= 1e-6, "element " + std::to_string(i) + " is off by " + std::to_string(error));  // false for NaN
      largest = std::max(largest, error);
    }
    return largest;
  }
  bool is_poisoned() const { return std::isnan(out_.read().front()); }

 private:
  Gpu& gpu_;
  CUfunction function_;
  Floats x_;
  Floats y_;
  Floats out_;
  std::vector<float> x_host_;
  std::vector<float> y_host_;
};

json check_kernel(Gpu& gpu) {
  Axpy axpy(gpu, 1'000'003);  // a size that is not a multiple of any block size
  axpy.fill();
  axpy.launch(1.7F, 512);
  return {{"largest_error", axpy.largest_error(1.7F)}};
}

json check_recording(Gpu& gpu) {
  Axpy axpy(gpu, 10'007);
  std::unique_ptr<cuda::ExecutableGraph> graph;
  axpy.fill();
  {
    const auto recording = value_of(cuda::StreamCapture::begin(gpu.driver(), gpu.stream()));
    axpy.launch(-3.0F, 16);
    axpy.launch(2.5F, 16);
    graph = value_of(recording->finish());
  }
  require(axpy.is_poisoned(), "a kernel ran while it was recorded");
  require(graph->nodes() == 2, "two launches were recorded as " + std::to_string(graph->nodes()) + " nodes");
  double largest = 0;
  for (int replay = 0; replay < 3; ++replay) {
    axpy.fill();  // new values at the old addresses
    need(graph->launch(gpu.stream()));
    largest = std::max(largest, axpy.largest_error(2.5F));
  }
  return {{"nodes", graph->nodes()}, {"largest_error", largest}};
}

// Checks for leftovers: a stream that still records, or a persistent error.
json check_failed_recording(Gpu& gpu) {
  Axpy axpy(gpu, 10'007);
  axpy.fill();
  {
    const auto abandoned = value_of(cuda::StreamCapture::begin(gpu.driver(), gpu.stream()));
    axpy.launch(1.0F, 16);
  }
  axpy.launch(1.5F, 16);
  axpy.largest_error(1.5F);

  std::string refusal;
  {
    const auto spoiled = value_of(cuda::StreamCapture::begin(gpu.driver(), gpu.stream()));
    require(!gpu.driver().synchronize_stream(gpu.stream()), "a recording stream can be waited for");
    const auto graph = spoiled->finish();
    require(!graph, "a spoiled recording gives a graph");
    refusal = graph.refusal().reason;
  }
  axpy.poison();
  axpy.launch(-0.5F, 16);
  axpy.largest_error(-0.5F);
  return {{"refusal", refusal}};
}

json measure_launches(Gpu& gpu) {
  constexpr int kKernels = 100;
  Axpy axpy(gpu, 1024);
  axpy.fill();
  const auto launch_all = [&axpy] {
    for (int i = 0; i < kKernels; ++i) {
      axpy.launch(1.0F, 4);
    }
  };
  std::unique_ptr<cuda::ExecutableGraph> graph;
  {
    const auto recording = value_of(cuda::StreamCapture::begin(gpu.driver(), gpu.stream()));
    launch_all();
    graph = value_of(recording->finish());
  }
  const double launched = median_milliseconds(gpu, 101, launch_all);
  const double replayed = median_milliseconds(gpu, 101, [&] { need(graph->launch(gpu.stream())); });
  return {{"kernels", kKernels},
          {"launched_us_per_kernel", launched * 1e3 / kKernels},
          {"replayed_us_per_kernel", replayed * 1e3 / kKernels},
          {"ratio", replayed > 0 ? launched / replayed : 0}};
}

// Measures bytes read and written per second. Buffers are several times larger than any GPU's cache, and values are
// random, because zeros may be transferred faster.
json measure_bandwidth(Gpu& gpu) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  need(gpu.driver().memory_info(&free_bytes, &total_bytes));
  const size_t size = std::min<size_t>(size_t(256) << 20, free_bytes / 8 / sizeof(float));
  const double bytes = double(size) * sizeof(float);
  Axpy axpy(gpu, size);
  axpy.fill();
  const double kernel = median_milliseconds(gpu, 21, [&] { axpy.launch(1.0F, 4096); });
  axpy.largest_error(1.0F);
  Floats from(gpu, size);
  Floats to(gpu, size);
  from.write(random_floats(size));
  const double copy = median_milliseconds(
      gpu, 21, [&] { need(gpu.driver().copy_on_device(to.pointer(), from.pointer(), size * sizeof(float), gpu.stream())); });
  return {
      {"megabytes", bytes / 1e6}, {"copy_gb_per_s", 2 * bytes / copy / 1e6}, {"axpy_gb_per_s", 3 * bytes / kernel / 1e6}};
}

constexpr Check kChecks[] = {
    {"kernel", check_kernel, "a kernel compiled by NVRTC gives what the CPU gives"},
    {"recording", check_recording, "a CUDA graph runs nothing while recorded, and the new values when replayed"},
    {"failed_recording", check_failed_recording, "abandoned and spoiled recordings leave the stream usable"},
    {"launch_time", measure_launches, "time of 100 small kernels, launched and replayed"},
    {"bandwidth", measure_bandwidth, "memory bandwidth of a copy and of a kernel"},
};

}  // namespace

std::span<const Check> checks() { return kChecks; }

void define_check_kernels(cuda::FakeDriver& driver) {
  driver.define_kernel("axpy", {sizeof(float), 8, 8, 8, 8}, [](const cuda::LaunchDimensions&, void* const* arguments) {
    const float a = *static_cast<float*>(arguments[0]);
    const auto* x = *static_cast<const float**>(arguments[1]);
    const auto* y = *static_cast<const float**>(arguments[2]);
    auto* out = *static_cast<float**>(arguments[3]);
    const auto n = *static_cast<unsigned long long*>(arguments[4]);
    for (unsigned long long i = 0; i < n; ++i) {
      out[i] = a * x[i] + y[i];
    }
  });
}

}  // namespace sconce::gpu_check
