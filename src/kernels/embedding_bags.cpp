// Sums and means of looked-up rows (aten::embedding_bag), without what LibTorch keeps for the gradient.
#include "kernels/kernel_table.h"
#include "kernels/loops/bag_sums.h"
#include "kernels/loops/forks.h"

#include <algorithm>

namespace sconce {
namespace {

// embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset,
// padding_idx). Nothing uses its other results.
class EmbeddingBagKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& table = arguments.tensor(kTable);
    const at::Tensor& indices = arguments.tensor(kIndices);
    const at::Tensor& offsets = arguments.tensor(kOffsets);
    const int64_t mode = arguments.value(kMode).toInt();
    has_factors_ = arguments.is_tensor(kFactors);
    includes_last_ = arguments.value(kIncludesLast).toBool();
    if (arguments.is_exact() || table.scalar_type() != at::kFloat || table.dim() != 2 || table.numel() == 0 ||
        !table.is_contiguous() || !is_list_of_indices(indices) || !is_list_of_indices(offsets) ||
        indices.scalar_type() != offsets.scalar_type() || (mode != kSum && mode != kMean) ||
        (arguments.size() > kPadding && !arguments.value(kPadding).isNone())) {
      return false;
    }
    if (has_factors_) {
      const at::Tensor& factors = arguments.tensor(kFactors);
      if (mode != kSum || factors.scalar_type() != at::kFloat || !factors.is_contiguous() ||
          factors.sizes() != indices.sizes()) {
        return false;
      }
    }
    are_means_ = mode == kMean;
    is_long_ = indices.scalar_type() == at::kLong;
    rows_ = table.size(0);
    columns_ = table.size(1);
    indices_ = indices.numel();
    bags_ = offsets.numel() - (includes_last_ ? 1 : 0);
    if (bags_ < 1) {
      return false;
    }
    results[0].place({bags_, columns_}, {}, at::kFloat);
    return true;
  }

  // LibTorch's operator serves numbers that this kernel cannot take: it raises for most.
  bool may_have_to_wait() const override { return true; }
  bool can_run(const KernelArguments& arguments) const override {
    return is_long_ ? has_good_numbers<int64_t>(arguments) : has_good_numbers<int32_t>(arguments);
  }

  void run(const KernelArguments& arguments, KernelResults results) override {
    is_long_ ? run_with<int64_t>(arguments, results, bag_sums().of_int64)
             : run_with<int32_t>(arguments, results, bag_sums().of_int32);
  }

 private:
  enum Argument : size_t { kTable, kIndices, kOffsets, kMode = 4, kFactors = 6, kIncludesLast = 7, kPadding = 8 };
  static constexpr int64_t kSum = 0;
  static constexpr int64_t kMean = 1;

  static bool is_list_of_indices(const at::Tensor& tensor) {
    return tensor.dim() == 1 && tensor.is_contiguous() &&
           (tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt);
  }

  template <typename Index>
  bool has_good_numbers(const KernelArguments& arguments) const {
    const auto* indices = static_cast<const Index*>(arguments.data(kIndices));
    const auto* offsets = static_cast<const Index*>(arguments.data(kOffsets));
    bool are_good = offsets[0] == 0;
    for (int64_t i = 1; i < bags_ + (includes_last_ ? 1 : 0); ++i) {
      are_good &= offsets[i - 1] <= offsets[i];
    }
    const int64_t last = offsets[bags_ - (includes_last_ ? 0 : 1)];
    // LibTorch counts indices after the last offset into the mean of the last bag, whose sum they are no part of.
    are_good &= includes_last_ && are_means_ ? last == indices_ : last <= indices_;
    for (int64_t i = 0; i < indices_; ++i) {
      are_good &= indices[i] >= 0 && indices[i] < rows_;
    }
    return are_good;
  }

  template <typename Index>
  void run_with(const KernelArguments& arguments, KernelResults results, void (*sum)(const BagOfRows<Index>&)) const {
    const auto* indices = static_cast<const Index*>(arguments.data(kIndices));
    const auto* offsets = static_cast<const Index*>(arguments.data(kOffsets));
    const auto* factors = has_factors_ ? static_cast<const float*>(arguments.data(kFactors)) : nullptr;
    auto* out = static_cast<float*>(results[0].data);
    const int64_t of_bag = (indices_ / bags_ + 1) * columns_;
    fork_by_elements(bags_, of_bag, [&](int64_t begin, int64_t end) {
      for (int64_t bag = begin; bag < end; ++bag) {
        const int64_t first = offsets[bag];
        const int64_t last = bag + 1 < bags_ || includes_last_ ? static_cast<int64_t>(offsets[bag + 1]) : indices_;
        sum({.table = static_cast<const float*>(arguments.data(kTable)),
             .columns = columns_,
             .rows = indices + first,
             .count = last - first,
             .factors = factors != nullptr ? factors + first : nullptr,
             .divisor = are_means_ ? static_cast<float>(std::max<int64_t>(last - first, 1)) : 1.0F,
             .out = out + bag * columns_});
      }
    });
  }

  bool has_factors_ = false;
  bool includes_last_ = false;
  bool are_means_ = false;
  bool is_long_ = true;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t indices_ = 0;
  int64_t bags_ = 0;
};

}  // namespace

void add_bag_kernels(KernelTable& table) {
  for (const char* overload : {"", "padding_idx"}) {
    table[{"aten::embedding_bag", overload}] = {.make = make_kernel<EmbeddingBagKernel>, .computes_first_result = true};
  }
}

}  // namespace sconce
