// Pools that average all pixels of a channel.
#include "kernels/kernel_table.h"
#include "kernels/loops/direct_loops.h"

#include <vector>

namespace sconce {
namespace {

// adaptive_avg_pool2d(input, output_size), to one pixel
class AverageOfPixels final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& input = arguments.tensor(0);
    const DirectKernels* kernels = direct_kernels();
    if (kernels == nullptr || arguments.is_exact() || input.dim() != 4 || input.scalar_type() != at::kFloat ||
        input.numel() == 0 || !arguments.value(1).isIntList() ||
        arguments.value(1).toIntVector() != std::vector<int64_t>{1, 1}) {
      return false;
    }
    const bool is_last = input.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
    images_ = input.size(0);
    channels_ = input.size(1);
    rows_ = channels_;
    columns_ = input.size(2) * input.size(3);
    mean_ = kernels->mean_of_rows;
    if (is_last) {
      std::swap(rows_, columns_);
      mean_ = kernels->mean_of_columns;
    }
    if (!input.is_contiguous(input.suggest_memory_format()) || (is_last && channels_ < kernels->lanes)) {
      return false;
    }
    const std::vector<int64_t> sizes = {images_, channels_, 1, 1};
    results[0].place(sizes, is_last ? c10::get_channels_last_strides_2d(sizes) : std::vector<int64_t>(), at::kFloat);
    return true;
  }
  bool prepare_again(const KernelArguments& arguments, KernelResults results) override {
    return prepare(arguments, results);
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    const auto* input = static_cast<const float*>(arguments.data(0));
    auto* out = static_cast<float*>(results[0].data);
    for (int64_t image = 0; image < images_; ++image) {
      mean_(input + image * rows_ * columns_, rows_, columns_, out + image * channels_);
    }
  }

 private:
  int64_t images_ = 0;
  int64_t channels_ = 0;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  void (*mean_)(const float* matrix, int64_t rows, int64_t columns, float* out) = nullptr;
};

}  // namespace

void add_pool_kernels(KernelTable& table) { table[{"aten::adaptive_avg_pool2d", ""}] = {make_kernel<AverageOfPixels>}; }

}  // namespace sconce
