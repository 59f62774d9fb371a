// Convolutions of volumes (aten::conv3d): a product of what the kernel covers for each voxel of the result, and the weights.
#include "kernels/float32_precision.h"
#include "kernels/kernel_table.h"
#include "kernels/loops/forks.h"
#include "kernels/loops/transpose.h"
#include "kernels/packed/packed_weights.h"
#include "kernels/packed/tiled_product.h"
#include "plan/large_blocks.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace sconce {
namespace {

// Depth, height and width.
using Sizes = std::array<int64_t, 3>;

struct VolumeForm {
  int64_t volumes = 0;
  int64_t channels_in = 0;
  int64_t channels_out = 0;
  Sizes in = {};
  Sizes kernel = {};
  Sizes stride = {};
  Sizes padding = {};
  Sizes dilation = {};
  Sizes out = {};

  int64_t voxels_in() const { return in[0] * in[1] * in[2]; }
  int64_t of_slice() const { return out[1] * out[2]; }  // voxels of the result in one slice
  int64_t voxels_out() const { return out[0] * of_slice(); }
  int64_t of_kernel() const { return kernel[0] * kernel[1] * kernel[2]; }
  bool has_padding() const {
    return std::ranges::any_of(padding, [](int64_t each) { return each > 0; });
  }
};

// Reads three numbers; one stands for all. Returns false for numbers that LibTorch rejects.
bool read_numbers(const c10::IValue& value, int64_t least, Sizes& numbers) {
  if (!value.isIntList()) {
    return false;
  }
  const auto given = value.toIntVector();
  if (given.size() != 1 && given.size() != 3) {
    return false;
  }
  for (size_t dim = 0; dim < 3; ++dim) {
    numbers[dim] = given[given.size() == 1 ? 0 : dim];
  }
  return std::ranges::all_of(numbers, [least](int64_t number) { return number >= least; });
}

bool is_volumes(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.dim() == 5 && tensor.numel() > 0 && tensor.is_contiguous() &&
         tensor.suggest_memory_format() == at::MemoryFormat::Contiguous;
}

// Slices of the volume are copied with their channels last and zeros around them. As many of them are multiplied together as
// a copy may hold (kMaxCopied).
class VolumeConvolution final : private PackedOperator {
 public:
  // The operator's arguments.
  enum Argument : size_t { kInput, kWeight, kBias, kStride, kPadding, kDilation, kGroups };

  void set_form(const VolumeForm& form) {
    form_ = form;
    const auto copied = [&](size_t dim) {
      return (form.out[dim] - 1) * form.stride[dim] + form.dilation[dim] * (form.kernel[dim] - 1) + 1;
    };
    copied_height_ = copied(1);
    copied_width_ = copied(2);
    of_copied_slice_ = copied_height_ * copied_width_ * form.channels_in;
    const bool runs_are_rows = form.dilation[2] == 1;
    std::vector<int64_t> offsets;
    for (int64_t z = 0; z < form.kernel[0]; ++z) {
      for (int64_t y = 0; y < form.kernel[1]; ++y) {
        for (int64_t x = 0; x < (runs_are_rows ? 1 : form.kernel[2]); ++x) {
          offsets.push_back(z * form.dilation[0] * of_copied_slice_ +
                            (y * form.dilation[1] * copied_width_ + x * form.dilation[2]) * form.channels_in);
        }
      }
    }
    product_ = TiledProduct(
        Panels(tile_kernels(), 1, form.channels_out, form.kernel[0] * form.kernel[1], form.kernel[2], form.channels_in),
        std::move(offsets), (runs_are_rows ? form.kernel[2] : 1) * form.channels_in);
    set_multiplications(form.volumes * form.voxels_out() * form.channels_out * form.channels_in * form.of_kernel());
    PackedOperator::set_form({5, form.channels_in, form.channels_out, form.kernel[0], form.kernel[1], form.kernel[2],
                              form.has_padding() ? 1 : 0});
  }

  bool is_ready(const KernelArguments& arguments) { return find(arguments, kWeight, kBias); }

  void run(const float* input, float* out) const {
    // Enough volumes are shared by threads. Then a part of one is in the cache from its copy to its result.
    const bool shares_volumes = form_.volumes >= at::get_num_threads();
    at::parallel_for(0, form_.volumes, shares_volumes ? 1 : form_.volumes, [&](int64_t begin, int64_t end) {
      run_volumes(input, begin, end, end - begin < form_.volumes ? kMaxCopiedByThread : kMaxCopied, out);
    });
  }

 private:
  void run_volumes(const float* input, int64_t begin, int64_t end, int64_t copied, float* out) const {
    const int64_t slices = std::clamp<int64_t>(copied / (form_.stride[0] * of_copied_slice_), 1, form_.out[0]);
    const c10::DataPtr copy = allocate_large(bytes_of(slices_read(slices) * of_copied_slice_));
    const c10::DataPtr product = allocate_large(bytes_of(slices * form_.of_slice() * form_.channels_out));
    for (int64_t volume = begin; volume < end; ++volume) {
      for (int64_t first = 0; first < form_.out[0]; first += slices) {
        const int64_t last = std::min(first + slices, form_.out[0]);
        copy_slices(input + volume * form_.channels_in * form_.voxels_in(), first, last, static_cast<float*>(copy.get()));
        multiply(static_cast<const float*>(copy.get()), last - first, static_cast<float*>(product.get()));
        store_slices(static_cast<const float*>(product.get()), first, last,
                     out + volume * form_.channels_out * form_.voxels_out());
      }
    }
  }

  // Elements of a copy. It stays in the second level of the cache, or the third.
  static constexpr int64_t kMaxCopied = 1 << 20;
  static constexpr int64_t kMaxCopiedByThread = 1 << 17;

  static size_t bytes_of(int64_t elements) { return static_cast<size_t>(elements) * sizeof(float); }

  bool make(PackedWeights& packed, WeightTensors tensors) override {
    const WeightElements elements = elements_of(tensors);
    packed_ = packed.fill_once(tensors, product_.panels().elements(), [&](float* to) {
      product_.panels().pack({.data = elements.weight,
                              .bias = elements.bias,
                              .column_distance = form_.channels_in * form_.of_kernel(),
                              .row_distance = form_.kernel[2],
                              .pixel_distance = 1,
                              .channel_distance = form_.of_kernel()},
                             to);
    });
    return !form_.has_padding() || packed.are_finite();  // zeros around a volume are multiplied
  }
  void drop() override { packed_ = nullptr; }

  // Slices of the volume that some slices of the result read.
  int64_t slices_read(int64_t slices) const {
    return (slices - 1) * form_.stride[0] + form_.dilation[0] * (form_.kernel[0] - 1) + 1;
  }

  // Copies what slices `first` up to `last` of the result read.
  void copy_slices(const float* volume, int64_t first, int64_t last, float* to) const {
    const int64_t row = copied_width_ * form_.channels_in;
    const int64_t begin = first * form_.stride[0] - form_.padding[0];
    fork_by_elements(slices_read(last - first) * copied_height_, row, [&](int64_t from, int64_t end) {
      for (int64_t i = from; i < end; ++i) {
        copy_row(volume, begin + i / copied_height_, i % copied_height_ - form_.padding[1], to + i * row);
      }
    });
  }

  // Copies a row of voxels, which may lie outside of the volume.
  void copy_row(const float* volume, int64_t z, int64_t y, float* to) const {
    const int64_t channels = form_.channels_in;
    const bool is_within = z >= 0 && z < form_.in[0] && y >= 0 && y < form_.in[1];
    const int64_t first = -form_.padding[2];  // of the volume's columns
    const int64_t begin = is_within ? std::min(form_.padding[2], copied_width_) : copied_width_;
    const int64_t end = is_within ? std::clamp(form_.in[2] - first, begin, copied_width_) : copied_width_;
    std::fill_n(to, begin * channels, 0.0F);
    if (begin < end) {
      transpose(volume + (z * form_.in[1] + y) * form_.in[2] + first + begin, form_.voxels_in(), channels, end - begin,
                to + begin * channels, channels);
    }
    std::fill_n(to + end * channels, (copied_width_ - end) * channels, 0.0F);
  }

  void multiply(const float* copy, int64_t slices, float* to) const {
    const auto find = [&](int64_t first, int64_t last, const float** rows) {
      for (int64_t voxel = first; voxel < last; ++voxel) {
        const int64_t z = voxel / form_.of_slice();
        const int64_t y = voxel % form_.of_slice() / form_.out[2];
        const int64_t x = voxel % form_.out[2];
        *rows++ = copy + z * form_.stride[0] * of_copied_slice_ +
                  (y * form_.stride[1] * copied_width_ + x * form_.stride[2]) * form_.channels_in;
      }
    };
    product_.run(packed_, {.count = slices * form_.of_slice(), .elements = form_.channels_in, .find = find}, to,
                 /*bounds=*/nullptr);
  }

  // Writes the product's rows, one for each voxel, as slices of each channel.
  void store_slices(const float* product, int64_t first, int64_t last, float* out) const {
    constexpr int64_t kBlock = 64;  // voxels
    const int64_t channels = form_.channels_out;
    const int64_t voxels = (last - first) * form_.of_slice();
    fork_by_elements((voxels + kBlock - 1) / kBlock, kBlock * channels, [&](int64_t begin, int64_t end) {
      const int64_t from = begin * kBlock;
      const int64_t count = std::min(end * kBlock, voxels) - from;
      transpose(product + from * channels, channels, count, channels, out + first * form_.of_slice() + from,
                form_.voxels_out());
    });
  }

  VolumeForm form_;
  int64_t copied_height_ = 0;
  int64_t copied_width_ = 0;
  int64_t of_copied_slice_ = 0;  // elements
  TiledProduct product_;
  const float* packed_ = nullptr;
};

class VolumeConvolutionKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& input = arguments.tensor(VolumeConvolution::kInput);
    const at::Tensor& weight = arguments.tensor(VolumeConvolution::kWeight);
    if (arguments.is_exact() || !arguments.packs_weights() || !is_volumes(input) || !is_volumes(weight) ||
        arguments.value(VolumeConvolution::kGroups).toInt() != 1 || input.size(1) != weight.size(1) ||
        !at::globalContext().userEnabledMkldnn() || !computes_in_float32(at::Float32Op::CONV)) {
      return false;
    }
    VolumeForm form = {.volumes = input.size(0), .channels_in = input.size(1), .channels_out = weight.size(0)};
    if (!read_numbers(arguments.value(VolumeConvolution::kStride), 1, form.stride) ||
        !read_numbers(arguments.value(VolumeConvolution::kPadding), 0, form.padding) ||
        !read_numbers(arguments.value(VolumeConvolution::kDilation), 1, form.dilation)) {
      return false;
    }
    for (size_t dim = 0; dim < 3; ++dim) {
      form.in[dim] = input.size(static_cast<int64_t>(dim) + 2);
      form.kernel[dim] = weight.size(static_cast<int64_t>(dim) + 2);
      const int64_t steps = form.in[dim] + 2 * form.padding[dim] - form.dilation[dim] * (form.kernel[dim] - 1) - 1;
      if (steps < 0) {
        return false;
      }
      form.out[dim] = steps / form.stride[dim] + 1;
    }
    if (arguments.is_tensor(VolumeConvolution::kBias) &&
        !(arguments.tensor(VolumeConvolution::kBias).scalar_type() == at::kFloat &&
          arguments.tensor(VolumeConvolution::kBias).is_contiguous() &&
          arguments.tensor(VolumeConvolution::kBias).sizes() == c10::IntArrayRef{form.channels_out})) {
      return false;
    }
    // A panel of one vector makes tiles wait for the elements of rows. For one volume LibTorch takes slower loops.
    if (form.volumes > 1 && form.channels_out <= tile_kernels().lanes) {
      return false;
    }
    convolution_->set_form(form);
    results[0].place({form.volumes, form.channels_out, form.out[0], form.out[1], form.out[2]}, {}, at::kFloat);
    return true;
  }

  bool may_have_to_wait() const override { return true; }
  bool can_run(const KernelArguments& arguments) const override { return convolution_->is_ready(arguments); }
  void run(const KernelArguments& arguments, KernelResults results) override {
    convolution_->run(static_cast<const float*>(arguments.data(VolumeConvolution::kInput)),
                      static_cast<float*>(results[0].data));
  }

 private:
  const std::unique_ptr<VolumeConvolution> convolution_ = std::make_unique<VolumeConvolution>();
};

}  // namespace

void add_volume_kernels(KernelTable& table) { table[{"aten::conv3d", ""}] = {.make = make_kernel<VolumeConvolutionKernel>}; }

}  // namespace sconce
