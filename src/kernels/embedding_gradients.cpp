// Gradients of embeddings and embedding bags. Each adds rows of a gradient to rows of a table that begins as zeros.
#include "kernels/kernel_table.h"
#include "kernels/loops/bag_sums.h"
#include "kernels/loops/forks.h"

#include <algorithm>
#include <optional>

namespace sconce {
namespace {

// Where the rows of a gradient lie in memory: some blocks, each of rows at equal distances.
struct RowsOfGradient {
  int64_t blocks = 1;
  int64_t of_block = 1;
  int64_t block_distance = 0;
  int64_t distance = 0;
};

// Returns nothing if the rows lie otherwise, or their elements not side by side.
std::optional<RowsOfGradient> rows_of(const at::Tensor& gradient) {
  const int64_t last = gradient.dim() - 1;
  if (gradient.scalar_type() != at::kFloat || last < 1 || gradient.numel() == 0 ||
      (gradient.size(last) > 1 && gradient.stride(last) != 1)) {
    return std::nullopt;
  }
  RowsOfGradient rows = {.of_block = gradient.size(last - 1), .distance = gradient.stride(last - 1)};
  for (int64_t dim = last - 2; dim >= 0; --dim) {
    if (gradient.size(dim) == 1) {
      continue;
    }
    if (rows.blocks == 1 && gradient.stride(dim) == rows.of_block * rows.distance) {
      rows.of_block *= gradient.size(dim);
    } else if (rows.blocks == 1 || gradient.stride(dim) == rows.blocks * rows.block_distance) {
      rows.block_distance = rows.blocks == 1 ? gradient.stride(dim) : rows.block_distance;
      rows.blocks *= gradient.size(dim);
    } else {
      return std::nullopt;
    }
  }
  return rows;
}

bool has_indices(const at::Tensor& tensor) {
  return tensor.is_contiguous() && (tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt);
}

// Fills the table with zeros and adds `count` rows to it. Each thread owns some rows of the table, and calls `add` with
// them. A row of the table gets its rows in their order on any number of threads. Indices outside of the table are skipped,
// as LibTorch skips them.
template <typename Index, typename Add>
void add_to_zeros(AddedRows<Index> added, int64_t rows, int64_t count, const Add& add) {
  fork_by_elements(rows, added.columns * (1 + count / rows), [&](int64_t first, int64_t last) {
    std::fill(added.table + first * added.columns, added.table + last * added.columns, 0.0F);
    AddedRows<Index> of_thread = added;
    of_thread.first = first;
    of_thread.last = last;
    add(of_thread);
  });
}

void add_rows(const AddedRows<int64_t>& added) { bag_sums().add_int64(added); }
void add_rows(const AddedRows<int32_t>& added) { bag_sums().add_int32(added); }

// embedding_dense_backward(gradient, indices, rows, padding_idx, scale_grad_by_freq).
class EmbeddingGradientKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& gradient = arguments.tensor(kGradient);
    const at::Tensor& indices = arguments.tensor(kIndices);
    const auto rows = rows_of(gradient);
    if (!rows || !has_indices(indices) || gradient.dim() != indices.dim() + 1 ||
        gradient.sizes().slice(0, static_cast<size_t>(indices.dim())) != indices.sizes() ||
        arguments.value(kScalesByFrequency).toBool()) {
      return false;
    }
    of_gradient_ = *rows;
    is_long_ = indices.scalar_type() == at::kLong;
    rows_ = arguments.value(kRows).toInt();
    columns_ = gradient.sizes().back();
    padding_ = arguments.value(kPadding).toInt();
    if (rows_ < 1) {
      return false;
    }
    results[0].place({rows_, columns_}, {}, at::kFloat);
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    is_long_ ? run_with<int64_t>(arguments, results) : run_with<int32_t>(arguments, results);
  }

 private:
  enum Argument : size_t { kGradient, kIndices, kRows, kPadding, kScalesByFrequency };

  template <typename Index>
  void run_with(const KernelArguments& arguments, KernelResults results) const {
    const auto* const gradient = static_cast<const float*>(arguments.data(kGradient));
    const auto* const indices = static_cast<const Index*>(arguments.data(kIndices));
    const AddedRows<Index> added = {.distance = of_gradient_.distance,
                                    .columns = columns_,
                                    .count = of_gradient_.of_block,
                                    .skipped = padding_,
                                    .table = static_cast<float*>(results[0].data)};
    add_to_zeros(added, rows_, of_gradient_.blocks * of_gradient_.of_block, [&](AddedRows<Index>& of_thread) {
      for (int64_t block = 0; block < of_gradient_.blocks; ++block) {
        of_thread.from = gradient + block * of_gradient_.block_distance;
        of_thread.rows = indices + block * of_gradient_.of_block;
        add_rows(of_thread);
      }
    });
  }

  bool is_long_ = true;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t padding_ = -1;
  RowsOfGradient of_gradient_;
};

// _embedding_bag_backward(gradient, indices, offsets, offset2bag, bag_size, maximum_indices, rows, scale_grad_by_freq, mode,
// sparse, per_sample_weights, padding_idx).
class BagGradientKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& gradient = arguments.tensor(kGradient);
    const at::Tensor& indices = arguments.tensor(kIndices);
    const at::Tensor& offsets = arguments.tensor(kOffsets);
    const at::Tensor& bag_of_index = arguments.tensor(kBagOfIndex);
    const at::Tensor& sizes = arguments.tensor(kSizes);
    const int64_t mode = arguments.value(kMode).toInt();
    has_factors_ = arguments.is_tensor(kFactors);
    const auto rows = rows_of(gradient);
    if (arguments.is_exact() || !rows || gradient.dim() != 2 || !has_indices(indices) || !has_indices(offsets) ||
        !has_indices(bag_of_index) || !has_indices(sizes) || indices.dim() != 1 || offsets.dim() != 1 ||
        indices.scalar_type() != offsets.scalar_type() || indices.scalar_type() != bag_of_index.scalar_type() ||
        indices.scalar_type() != sizes.scalar_type() || (mode != kSum && mode != kMean) ||
        arguments.value(kScalesByFrequency).toBool() || arguments.value(kIsSparse).toBool()) {
      return false;
    }
    if (has_factors_ &&
        (mode != kSum || arguments.tensor(kFactors).scalar_type() != at::kFloat ||
         !arguments.tensor(kFactors).is_contiguous() || arguments.tensor(kFactors).sizes() != indices.sizes())) {
      return false;
    }
    distance_ = rows->distance;
    are_means_ = mode == kMean;
    is_long_ = indices.scalar_type() == at::kLong;
    rows_ = arguments.value(kRows).toInt();
    padding_ = arguments.value(kPadding).toInt();
    bags_ = gradient.size(0);
    columns_ = gradient.size(1);
    indices_ = indices.numel();
    offsets_ = offsets.numel();
    knows_bags_ = bag_of_index.numel() > 0;
    if (rows_ < 1 || (offsets_ != bags_ && offsets_ != bags_ + 1) || (knows_bags_ && bag_of_index.numel() != indices_) ||
        (are_means_ && sizes.numel() != bags_)) {
      return false;
    }
    results[0].place({rows_, columns_}, {}, at::kFloat);
    return true;
  }

  // LibTorch's operator serves bags that do not follow one another.
  bool may_have_to_wait() const override { return true; }
  bool can_run(const KernelArguments& arguments) const override {
    return is_long_ ? has_good_bags<int64_t>(arguments) : has_good_bags<int32_t>(arguments);
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    is_long_ ? run_with<int64_t>(arguments, results) : run_with<int32_t>(arguments, results);
  }

 private:
  enum Argument : size_t {
    kGradient,
    kIndices,
    kOffsets,
    kBagOfIndex,  // empty where LibTorch's forward has not needed it
    kSizes,
    kRows = 6,
    kScalesByFrequency,
    kMode,
    kIsSparse,
    kFactors,
    kPadding
  };
  static constexpr int64_t kSum = 0;
  static constexpr int64_t kMean = 1;

  template <typename Index>
  bool has_good_bags(const KernelArguments& arguments) const {
    const auto* const offsets = static_cast<const Index*>(arguments.data(kOffsets));
    const auto* const bag_of_index = static_cast<const Index*>(arguments.data(kBagOfIndex));
    if (offsets[0] != 0 || end_of(offsets, bags_ - 1) > indices_ ||
        (offsets_ > bags_ && static_cast<int64_t>(offsets[bags_]) != indices_)) {
      return false;
    }
    bool are_good = true;
    for (int64_t bag = 0; bag < bags_ && are_good; ++bag) {
      const auto first = static_cast<int64_t>(offsets[bag]);
      const int64_t last = end_of(offsets, bag);
      are_good = first <= last && last <= indices_;
      for (int64_t i = first; knows_bags_ && are_good && i < last; ++i) {
        are_good = bag_of_index[i] == bag;
      }
    }
    return are_good;
  }

  template <typename Index>
  int64_t end_of(const Index* offsets, int64_t bag) const {
    return bag + 1 < offsets_ ? static_cast<int64_t>(offsets[bag + 1]) : indices_;
  }

  template <typename Index>
  void run_with(const KernelArguments& arguments, KernelResults results) const {
    const auto* const indices = static_cast<const Index*>(arguments.data(kIndices));
    const auto* const offsets = static_cast<const Index*>(arguments.data(kOffsets));
    const auto* const sizes = static_cast<const Index*>(arguments.data(kSizes));
    const auto* const gradient = static_cast<const float*>(arguments.data(kGradient));
    const auto* const factors = has_factors_ ? static_cast<const float*>(arguments.data(kFactors)) : nullptr;
    const AddedRows<Index> added = {.columns = columns_, .skipped = padding_, .table = static_cast<float*>(results[0].data)};
    add_to_zeros(added, rows_, indices_, [&](AddedRows<Index>& of_thread) {
      for (int64_t bag = 0; bag < bags_; ++bag) {
        const auto first = static_cast<int64_t>(offsets[bag]);
        of_thread.from = gradient + bag * distance_;
        of_thread.rows = indices + first;
        of_thread.count = end_of(offsets, bag) - first;
        of_thread.factors = has_factors_ ? factors + first : nullptr;
        of_thread.factor = are_means_ ? 1.0F / static_cast<float>(sizes[bag]) : 1.0F;
        add_rows(of_thread);
      }
    });
  }

  bool has_factors_ = false;
  bool are_means_ = false;
  bool is_long_ = true;
  bool knows_bags_ = false;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t distance_ = 0;
  int64_t bags_ = 0;
  int64_t indices_ = 0;
  int64_t offsets_ = 0;
  int64_t padding_ = -1;
};

}  // namespace

void add_embedding_gradient_kernels(KernelTable& table) {
  table[{"aten::embedding_dense_backward", ""}] = {.make = make_kernel<EmbeddingGradientKernel>};
  table[{"aten::_embedding_bag_backward", ""}] = {.make = make_kernel<BagGradientKernel>};
}

}  // namespace sconce
