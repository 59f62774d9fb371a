#include "tests/simulated_gpu/dropout.h"

#include "fusion/cuda/dropout_kernel.h"

#include <ATen/ATen.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

namespace sconce::testing {
namespace on_device {

// What the text of kernels begins with.
struct bfloat16 {
  unsigned short bits;
};
struct float16 {
  unsigned short bits;
};
template <typename T, int N>
struct alignas(N * sizeof(T)) Vector {
  T at[N];
};
inline float to_float(bfloat16 x) { return static_cast<float>(c10::BFloat16(x.bits, c10::BFloat16::from_bits())); }
inline float to_float(float16 x) { return static_cast<float>(c10::Half(x.bits, c10::Half::from_bits())); }
inline bfloat16 to_bfloat16(float x) { return {c10::BFloat16(x).x}; }
inline float16 to_float16(float x) { return {c10::Half(x).x}; }

#define __device__
#define SCONCE_DEVICE_TEXT(...) __VA_ARGS__
#include "fusion/cuda/dropout.inc"
#undef SCONCE_DEVICE_TEXT
#undef __device__

static_assert(sizeof(DropoutCall) == sizeof(DropoutParameter));

template <typename T, int V, typename Index>
void run(const cuda::LaunchDimensions& dimensions, void* const* arguments) {
  DropoutCall call;
  std::memcpy(&call, arguments[0], sizeof call);
  const Index threads = static_cast<Index>(dimensions.grid[0]) * dimensions.block[0];
  for (Index thread = 0; thread < threads; ++thread) {
    dropout<T, V>(call, thread, threads);
  }
}

template <typename T, int V>
cuda::FakeDriver::Kernel kernel_of(bool is_wide) {
  return is_wide ? run<T, V, unsigned long long> : run<T, V, unsigned>;
}
template <typename T>
cuda::FakeDriver::Kernel kernel_of(int64_t vector, bool is_wide) {
  return vector == 1   ? kernel_of<T, 1>(is_wide)
         : vector == 2 ? kernel_of<T, 2>(is_wide)
         : vector == 4 ? kernel_of<T, 4>(is_wide)
                       : kernel_of<T, 8>(is_wide);
}

}  // namespace on_device

namespace {

constexpr int64_t kBlock = 256;

int64_t threads_of(int64_t elements, const DeviceLimits& limits) {
  const int64_t most = int64_t(limits.multiprocessors) * (limits.multiprocessor_threads / kBlock);
  return kBlock * std::min((elements + kBlock - 1) / kBlock, most);
}

// Returns the number in (0, 1] that is drawn for the element at a place in memory.
float number_at(int64_t place, int64_t vector, int64_t threads, const RandomState& state) {
  int64_t thread = place % threads;
  int64_t call = place / threads / 4;
  int64_t component = place / threads % 4;
  if (vector > 1) {
    const int64_t unit = place / vector;
    thread = unit % threads;
    call = unit / threads * std::max<int64_t>(vector / 4, 1) + place % vector / 4;
    component = place % vector % 4;
  }
  at::philox_engine engine(state.seed, static_cast<uint64_t>(thread), state.offset / 4 + static_cast<uint64_t>(call));
  uint32_t bits = 0;
  for (int64_t i = 0; i <= component; ++i) {
    bits = engine();
  }
  return static_cast<float>(bits) * 0x1p-32F + 0x1p-33F;
}

template <typename T>
void drop(const at::Tensor& input, at::Tensor& result, at::Tensor& mask, double p, int64_t vector, int64_t threads,
          const RandomState& state) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto kept = static_cast<Number>(1.0 - p);
  const auto scale = static_cast<Number>(1.0 / kept);
  // In the order of memory, or of the sizes. A tensor of these sizes and strides has its places as elements.
  const at::Tensor places = at::arange(input.numel(), at::kLong);
  const at::Tensor ordered =
      vector > 1 ? at::empty_strided(input.sizes(), input.strides(), at::kLong) : places.view(input.sizes());
  if (vector > 1) {
    ordered.as_strided({input.numel()}, {1}).copy_(places);
  }
  const at::Tensor place_of = ordered.contiguous().view(-1);
  const at::Tensor x = input.contiguous().view(-1);
  at::Tensor y = at::empty_like(x);
  at::Tensor keeps = at::empty_like(x, at::kBool);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const bool keep = number_at(place_of.const_data_ptr<int64_t>()[i], vector, threads, state) < kept;
    y.mutable_data_ptr<T>()[i] =
        static_cast<T>(static_cast<Number>(x.const_data_ptr<T>()[i]) * static_cast<Number>(keep ? 1 : 0) * scale);
    keeps.mutable_data_ptr<bool>()[i] = keep;
  }
  result.copy_(y.view(input.sizes()));
  mask.copy_(keeps.view(input.sizes()));
}

int64_t vector_of(const at::Tensor& input) {
  if (!input.is_non_overlapping_and_dense()) {
    return 1;
  }
  auto vector = static_cast<int64_t>(16 / input.element_size());
  const auto address = reinterpret_cast<uintptr_t>(input.const_data_ptr());
  while (vector > 1 &&
         (address % (static_cast<size_t>(vector) * input.element_size()) != 0 || input.numel() % vector != 0)) {
    vector /= 2;
  }
  return vector;
}

}  // namespace

uint64_t numbers_of_dropout(int64_t elements, const DeviceLimits& limits) {
  return static_cast<uint64_t>(((elements - 1) / (threads_of(elements, limits) * 4) + 1) * 4);
}

std::pair<at::Tensor, at::Tensor> drop_as_on_gpu(const at::Tensor& input, double p, const RandomState& state,
                                                 const DeviceLimits& limits) {
  at::Tensor result = at::empty_like(input);
  at::Tensor mask = at::empty_like(input, at::kBool);
  const int64_t threads = threads_of(input.numel(), limits);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "drop_as_on_gpu",
                                  [&] { drop<scalar_t>(input, result, mask, p, vector_of(input), threads, state); });
  return {result, mask};
}

void fill_as_on_gpu(at::Tensor& tensor, double p, const RandomState& state, const DeviceLimits& limits) {
  const int64_t threads = threads_of(tensor.numel(), limits);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, tensor.scalar_type(), "fill_as_on_gpu", [&] {
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      tensor.mutable_data_ptr<scalar_t>()[i] =
          static_cast<scalar_t>(number_at(i, /*vector=*/1, threads, state) < static_cast<float>(p) ? 1.0F : 0.0F);
    }
  });
}

bool is_fill_that_draws(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (op.schema().name() != "aten::bernoulli_" || op.schema().overload_name() != "float" || !stack.back().isNone()) {
    return false;
  }
  const at::Tensor& target = stack[stack.size() - 3].toTensor();
  return target.is_contiguous() && target.numel() != 0 && c10::isFloatingType(target.scalar_type()) &&
         target.scalar_type() != at::kDouble;
}

bool is_dropout_that_draws(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (op.schema().name() != "aten::native_dropout") {
    return false;
  }
  const c10::IValue& train = stack.back();
  return (train.isNone() || train.toBool()) && stack[stack.size() - 2].toDouble() != 1 &&
         stack[stack.size() - 3].toTensor().numel() != 0;
}

std::optional<cuda::FakeDriver::KernelDefinition> dropout_kernel_of(const std::string& text) {
  for (const bool is_wide : {false, true}) {
    for (const int64_t vector : {1, 2, 4, 8}) {
      const auto is_of = [&](c10::ScalarType dtype) { return text == dropout_text(dtype, vector, is_wide); };
      if (auto kernel = is_of(at::kFloat)      ? on_device::kernel_of<float>(vector, is_wide)
                        : is_of(at::kDouble)   ? on_device::kernel_of<double>(vector, is_wide)
                        : is_of(at::kHalf)     ? on_device::kernel_of<on_device::float16>(vector, is_wide)
                        : is_of(at::kBFloat16) ? on_device::kernel_of<on_device::bfloat16>(vector, is_wide)
                                               : nullptr) {
        return cuda::FakeDriver::KernelDefinition{{sizeof(DropoutParameter)}, std::move(kernel)};
      }
    }
  }
  return std::nullopt;
}

}  // namespace sconce::testing
