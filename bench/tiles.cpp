// Products and convolutions with packed weights, by sconce's tiles, and by LibTorch's operators and what packs weights
// otherwise: MKL, oneDNN (weights reordered) and XNNPACK.
//
// Counters are GFLOP/s, of the best call: `tiles`, `eager` (LibTorch's operator; of a convolution the faster of both memory
// formats), `mkl` (packed), `onednn` (reordered), `xnnpack`. `ratio` is tiles / the best of the others. Bars: the geometric
// mean of the ratios 1.0, none below 0.85. All take turns on LibTorch's number of threads (OMP_NUM_THREADS); XNNPACK has a
// pool of its own, which spins. `products_of_all` and `convolutions_of_all` have the means over what ran before them, and
// `peak` what a tile does whose operands stay in the first level of the cache. SCONCE_BENCH_SMOKE: one round.
#include "bench/measuring.h"

#include "kernels/packed/image_rows.h"
#include "kernels/packed/tiled_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>
#include <pthreadpool.h>
#include <xnnpack.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

extern "C" {  // MKL's, in libtorch_cpu
size_t cblas_sgemm_pack_get_size(int identifier, int m, int n, int k);
void cblas_sgemm_pack(int layout, int identifier, int transposed, int m, int n, int k, float alpha, const float* from,
                      int leading, float* to);
void cblas_sgemm_compute(int layout, int transposed_a, int transposed_b, int m, int n, int k, const float* a, int leading_a,
                         const float* b, int leading_b, float beta, float* c, int leading_c);
}

namespace {

using sconce::ConvolutionForm;
using sconce::bench::is_smoke;
using Clock = std::chrono::steady_clock;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

pthreadpool_t xnn_pool() {
  static const pthreadpool_t pool =
      at::get_num_threads() > 1 ? pthreadpool_create(static_cast<size_t>(at::get_num_threads())) : nullptr;
  return pool;
}

// Who computes, and how.
using Callers = std::vector<std::pair<std::string, std::function<void()>>>;

std::map<std::string, std::vector<double>> ratios_by_kind;

// Lets the callers take turns, and sets the counters.
void compare(benchmark::State& state, const std::string& kind, double operations, const Callers& callers) {
  const int rounds = is_smoke() ? 1 : 8;
  std::map<std::string, double> best;
  for (auto _ : state) {
    for (int round = 0; round < rounds; ++round) {
      for (const auto& [name, call] : callers) {
        call();
        const int calls =
            is_smoke() ? 1 : static_cast<int>(std::clamp(operations == 0 ? 1 : 1.5e8 / operations, 2.0, 100.0));
        for (int i = 0; i < calls; ++i) {
          const auto begin = Clock::now();
          call();
          const double rate = operations / 1e9 / std::chrono::duration<double>(Clock::now() - begin).count();
          best[name] = std::max(best[name], rate);
        }
      }
    }
  }
  double other = 0;
  for (const auto& [name, rate] : best) {
    state.counters[name] = rate;
    other = name == "tiles" ? other : std::max(other, rate);
  }
  state.counters["ratio"] = best["tiles"] / other;
  ratios_by_kind[kind].push_back(best["tiles"] / other);
}

void product(benchmark::State& state, int64_t m, int64_t n, int64_t k) {
  const c10::InferenceMode guard;
  const at::Tensor x = at::randn({m, k});
  const at::Tensor weight = at::randn({n, k});
  const at::Tensor bias = at::randn({n});
  const at::Tensor out = at::empty({m, n});
  const auto* input = x.const_data_ptr<float>();
  auto* result = out.mutable_data_ptr<float>();

  const sconce::Panels panels(sconce::tile_kernels(), 1, n, 1, 1, k);
  const at::Tensor packed = at::empty({panels.elements()});
  panels.pack({.data = weight.const_data_ptr<float>(),
               .bias = bias.const_data_ptr<float>(),
               .column_distance = k,
               .channel_distance = 1},
              packed.mutable_data_ptr<float>());
  const sconce::TiledProduct tiles(panels, {0}, k);
  const auto find = [&](int64_t first, int64_t last, const float** rows) {
    for (int64_t row = first; row < last; ++row) {
      *rows++ = input + row * k;
    }
  };

  const auto as_int = [](int64_t size) { return static_cast<int>(size); };
  constexpr int kRowMajor = 101;
  constexpr int kNormal = 111;
  constexpr int kTransposed = 112;
  constexpr int kPacked = 151;
  constexpr int kRight = 162;
  const at::Tensor mkl = at::empty(
      {static_cast<int64_t>(cblas_sgemm_pack_get_size(kRight, as_int(m), as_int(n), as_int(k)) / sizeof(float)) + 1});
  cblas_sgemm_pack(kRowMajor, kRight, kTransposed, as_int(m), as_int(n), as_int(k), 1, weight.const_data_ptr<float>(),
                   as_int(k), mkl.mutable_data_ptr<float>());

  const at::Tensor padded = at::zeros({m * k + 64});  // XNNPACK reads past the end
  padded.narrow(0, 0, m * k).copy_(x.flatten());
  xnn_operator_t xnn = nullptr;
  xnn_create_fully_connected_nc_f32(k, n, k, n, weight.const_data_ptr<float>(), bias.const_data_ptr<float>(), -kInfinity,
                                    kInfinity, 0, nullptr, nullptr, &xnn);
  xnn_reshape_fully_connected_nc_f32(xnn, m, xnn_pool());

  compare(state, "products", 2.0 * static_cast<double>(m * n * k),
          {{"tiles",
            [&] { tiles.run(packed.const_data_ptr<float>(), {.count = m, .elements = k, .find = find}, result, nullptr); }},
           {"eager", [&] { at::linear(x, weight, bias); }},
           {"mkl",
            [&] {
              cblas_sgemm_compute(kRowMajor, kNormal, kPacked, as_int(m), as_int(n), as_int(k), input, as_int(k),
                                  mkl.const_data_ptr<float>(), as_int(n), 0, result, as_int(n));
            }},
           {"xnnpack", [&] {
              xnn_setup_fully_connected_nc_f32(xnn, padded.const_data_ptr<float>(), result);
              xnn_run_operator(xnn, xnn_pool());
            }}});
  xnn_delete_operator(xnn);
}

// A square image of `size`, padded by half of a square kernel of `kernel`.
void convolution(benchmark::State& state, int64_t size, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                 int64_t groups) {
  const c10::InferenceMode guard;
  const int64_t padding = kernel / 2;
  const auto last = at::MemoryFormat::ChannelsLast;
  const at::Tensor image = at::randn({1, in, size, size});
  const at::Tensor weight = at::randn({out, in / groups, kernel, kernel});
  const at::Tensor bias = at::randn({out});
  const at::Tensor image_last = image.contiguous(last);
  const at::Tensor weight_last = weight.contiguous(last);
  const std::vector<int64_t> strides = {stride, stride};
  const std::vector<int64_t> paddings = {padding, padding};
  const std::vector<int64_t> ones = {1, 1};

  const ConvolutionForm form{.images = 1,
                             .image = {size, size},
                             .channels_in = in,
                             .channels_out = out,
                             .groups = groups,
                             .kernel = {kernel, kernel},
                             .stride = {stride, stride},
                             .padding = {padding, padding},
                             .dilation = {1, 1}};
  const at::Tensor result = at::empty({1, form.size_out(0), form.size_out(1), out});
  const sconce::ImageRows rows(form);
  const sconce::Panels panels(sconce::tile_kernels(), groups, out / groups, kernel, kernel, in / groups);
  const at::Tensor packed = at::empty({panels.elements()});
  panels.pack({.data = weight_last.const_data_ptr<float>(),
               .bias = bias.const_data_ptr<float>(),
               .column_distance = weight_last.stride(0),
               .group_distance = weight_last.size(0) / form.groups * weight_last.stride(0),
               .row_distance = weight_last.stride(2),
               .pixel_distance = weight_last.stride(3),
               .channel_distance = 1},
              packed.mutable_data_ptr<float>());
  const sconce::TiledProduct tiles(panels, rows.offsets(), rows.depth());
  const auto find = [&](int64_t first, int64_t end, const float** found) {
    rows.find(image_last.const_data_ptr<float>(), first, end, found);
  };

  const at::Tensor reordered = at::mkldnn_reorder_conv2d_weight(weight.to_mkldnn(), paddings, strides, ones, groups,
                                                                c10::IntArrayRef{1, in, size, size});
  const auto onednn = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_convolution_pointwise", "");

  const at::Tensor padded = at::zeros({size * size * in + 64});  // XNNPACK reads past the end
  padded.narrow(0, 0, size * size * in).copy_(image.permute({0, 2, 3, 1}).flatten());
  const at::Tensor xnn_weight = weight.permute({0, 2, 3, 1}).contiguous();
  const auto narrow = [](int64_t number) { return static_cast<uint32_t>(number); };
  xnn_operator_t xnn = nullptr;
  xnn_create_convolution2d_nhwc_f32(narrow(padding), narrow(padding), narrow(padding), narrow(padding), narrow(kernel),
                                    narrow(kernel), narrow(stride), narrow(stride), 1, 1, narrow(groups), in / groups,
                                    out / groups, in, out, xnn_weight.const_data_ptr<float>(), bias.const_data_ptr<float>(),
                                    -kInfinity, kInfinity, 0, nullptr, nullptr, &xnn);
  size_t bytes = 0;
  size_t alignment = 0;
  size_t height = 0;
  size_t width = 0;
  xnn_reshape_convolution2d_nhwc_f32(xnn, 1, size, size, &bytes, &alignment, &height, &width, xnn_pool());
  const at::Tensor workspace = at::empty({static_cast<int64_t>(bytes) + 1}, at::kByte);

  compare(state, "convolutions", 2.0 * static_cast<double>(form.multiplications()),
          {{"tiles",
            [&] {
              tiles.run(packed.const_data_ptr<float>(),
                        {.count = rows.count(), .unit = rows.unit(), .elements = rows.elements(), .find = find},
                        result.mutable_data_ptr<float>(), nullptr);
            }},
           {"eager", [&] { at::conv2d(image, weight, bias, strides, paddings, ones, groups); }},
           {"eager", [&] { at::conv2d(image_last, weight_last, bias, strides, paddings, ones, groups); }},
           {"onednn",
            [&] {
              torch::jit::Stack stack = {
                  image_last,   reordered, bias,
                  paddings,     strides,   ones,
                  groups,       "none",    c10::impl::GenericList(c10::OptionalType::create(c10::NumberType::get())),
                  c10::IValue()};
              onednn.callBoxed(stack);
            }},
           {"xnnpack", [&] {
              xnn_setup_convolution2d_nhwc_f32(xnn, workspace.mutable_data_ptr(), padded.const_data_ptr<float>(),
                                               result.mutable_data_ptr<float>());
              xnn_run_operator(xnn, xnn_pool());
            }}});
  xnn_delete_operator(xnn);
}

void mean_of(benchmark::State& state, const std::string& kind) {
  double sum = 0;
  double least = kInfinity;
  for (auto _ : state) {
    for (const double ratio : ratios_by_kind[kind]) {
      sum += std::log(ratio);
      least = std::min(least, ratio);
    }
  }
  state.counters["geometric_mean"] = std::exp(sum / std::max<double>(1, static_cast<double>(ratios_by_kind[kind].size())));
  state.counters["least"] = least;
}

void peak(benchmark::State& state) {
  const sconce::TileKernels& kernels = sconce::tile_kernels();
  constexpr int64_t kDepth = 128;
  const int64_t columns = kernels.fastest_vectors * kernels.lanes;
  const int64_t rows = kernels.rows[kernels.fastest_vectors - 1];
  const at::Tensor left = at::ones({rows, kDepth});
  const at::Tensor panel = at::ones({kDepth, columns});
  const at::Tensor out = at::zeros({rows, columns});
  std::vector<const float*> pointers;
  for (int64_t row = 0; row < rows; ++row) {
    pointers.push_back(left.const_data_ptr<float>() + row * kDepth);
  }
  const int64_t offset = 0;
  const sconce::Tile tile{.rows = pointers.data(),
                          .offsets = &offset,
                          .runs = 1,
                          .depth = kDepth,
                          .panel = panel.const_data_ptr<float>(),
                          .out = out.mutable_data_ptr<float>(),
                          .out_distance = columns,
                          .last = static_cast<int>(kernels.lanes),
                          .ahead = panel.const_data_ptr<float>()};
  double best = 0;
  for (auto _ : state) {
    constexpr int kCalls = 1000;
    for (int round = 0; round < (is_smoke() ? 1 : 50); ++round) {
      const auto begin = Clock::now();
      for (int i = 0; i < kCalls; ++i) {
        kernels.compute[kernels.fastest_vectors - 1][rows - 1](tile);
      }
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      best = std::max(best, 2e-9 * kCalls * static_cast<double>(rows * columns * kDepth) / seconds);
    }
  }
  state.counters["tile_in_cache"] = best;
}

const bool are_registered = [] {
  xnn_initialize(nullptr);
  const auto add = [](const std::string& name, const std::function<void(benchmark::State&)>& run) {
    benchmark::RegisterBenchmark(name.c_str(), run)->Iterations(1)->Unit(benchmark::kMillisecond);
  };
  add("peak", peak);
  // Linear layers of ResNet, MobileNet, BERT, GPT-2, ViT, Swin, MLP-Mixer, recurrent layers and small programs.
  using Sizes = std::vector<std::array<int64_t, 3>>;
  for (const auto& [m, n, k] :
       Sizes{{1, 1000, 2048},  {1, 4096, 1024},  {1, 512, 512},    {2, 512, 512},    {4, 512, 512},
             {4, 1000, 1280},  {8, 1024, 1024},  {16, 64, 64},     {20, 80, 80},     {32, 768, 768},
             {32, 2304, 768},  {32, 3072, 768},  {32, 768, 3072},  {32, 50257, 768}, {64, 10, 512},
             {128, 768, 768},  {128, 3072, 768}, {128, 768, 3072}, {197, 768, 768},  {197, 3072, 768},
             {196, 1536, 384}, {784, 192, 192},  {3136, 288, 96},  {3136, 96, 96},   {512, 512, 512}}) {
    add("product/" + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k),
        [m, n, k](benchmark::State& state) { product(state, m, n, k); });
  }
  add("products_of_all", [](benchmark::State& state) { mean_of(state, "products"); });
  // {size, channels in, channels out, kernel, stride, groups}: ResNet, MobileNet, EfficientNet, ConvNeXt, Inception, U-Net.
  using Convolutions = std::vector<std::array<int64_t, 6>>;
  for (const auto& each :
       Convolutions{{224, 3, 64, 7, 2, 1},    {224, 3, 32, 3, 2, 1},   {112, 16, 16, 3, 1, 1},   {112, 16, 64, 1, 1, 1},
                    {112, 64, 24, 1, 1, 1},   {112, 32, 16, 1, 1, 1},  {56, 24, 72, 1, 1, 1},    {56, 64, 64, 3, 1, 1},
                    {56, 64, 128, 3, 2, 1},   {28, 128, 128, 3, 1, 1}, {28, 128, 256, 3, 2, 1},  {14, 256, 256, 3, 1, 1},
                    {14, 256, 512, 3, 2, 1},  {7, 512, 512, 3, 1, 1},  {16, 64, 64, 3, 1, 1},    {8, 128, 128, 3, 1, 1},
                    {4, 256, 256, 3, 1, 1},   {2, 512, 512, 3, 1, 1},  {56, 64, 256, 1, 1, 1},   {56, 256, 64, 1, 1, 1},
                    {56, 256, 512, 1, 2, 1},  {28, 512, 128, 1, 1, 1}, {28, 128, 512, 1, 1, 1},  {14, 1024, 256, 1, 1, 1},
                    {14, 256, 1024, 1, 1, 1}, {7, 2048, 512, 1, 1, 1}, {7, 512, 2048, 1, 1, 1},  {28, 40, 120, 1, 1, 1},
                    {14, 80, 480, 1, 1, 1},   {14, 112, 672, 1, 1, 1}, {7, 960, 160, 1, 1, 1},   {7, 160, 960, 1, 1, 1},
                    {1, 960, 240, 1, 1, 1},   {35, 64, 96, 3, 1, 1},   {17, 192, 192, 7, 1, 1},  {28, 192, 32, 5, 1, 1},
                    {64, 32, 32, 3, 1, 1},    {128, 8, 8, 3, 1, 1},    {56, 128, 128, 3, 1, 32}, {14, 512, 512, 3, 1, 32}}) {
    const auto& [size, in, out, kernel, stride, groups] = each;
    add("convolution/" + std::to_string(size) + "/" + std::to_string(in) + "to" + std::to_string(out) + "/" +
            std::to_string(kernel) + "x" + std::to_string(kernel) + (stride > 1 ? "/stride" + std::to_string(stride) : "") +
            (groups > 1 ? "/groups" + std::to_string(groups) : ""),
        [each](benchmark::State& state) { convolution(state, each[0], each[1], each[2], each[3], each[4], each[5]); });
  }
  add("convolutions_of_all", [](benchmark::State& state) { mean_of(state, "convolutions"); });
  return true;
}();

}  // namespace
