// Layer norms that keep what their gradients read, and these gradients.
#include "kernels/kernel_table.h"
#include "kernels/loops/direct_loops.h"
#include "kernels/loops/forks.h"
#include "kernels/operand_memory.h"
#include "kernels/packed/scratch.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace sconce {
namespace {

thread_local Scratch parts_of_layer_norm;

struct NormMatrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<int64_t> sizes_of_statistics;
};

// Returns the matrix whose rows are normalized. Returns nothing for what LibTorch's operator computes or rejects: rows of
// few elements, too, whose gradients are differences of nearly equal numbers, in which each rounding counts.
std::optional<NormMatrix> matrix_of_norm(const KernelArguments& arguments, const at::Tensor& input,
                                         const c10::IValue& shape) {
  const auto normalized = shape.toIntVector();
  const size_t rank = input.sizes().size();
  if (arguments.is_exact() || direct_kernels() == nullptr || input.scalar_type() != at::kFloat || input.numel() == 0 ||
      !input.is_contiguous() || normalized.empty() || normalized.size() > rank ||
      input.sizes().slice(rank - normalized.size()) != c10::IntArrayRef(normalized)) {
    return std::nullopt;
  }
  NormMatrix matrix{.columns = c10::multiply_integers(normalized), .sizes_of_statistics = input.sizes().vec()};
  constexpr int64_t kMinColumns = 16;
  if (matrix.columns < kMinColumns) {
    return std::nullopt;
  }
  matrix.rows = input.numel() / matrix.columns;
  std::fill(matrix.sizes_of_statistics.end() - static_cast<std::ptrdiff_t>(normalized.size()),
            matrix.sizes_of_statistics.end(), 1);
  return matrix;
}

bool is_dense_float(const at::Tensor& tensor, c10::IntArrayRef sizes) {
  return tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.sizes() == sizes;
}

// Returns whether the argument is None, or of the shape that is normalized.
bool is_weight_of_norm(const KernelArguments& arguments, size_t position, const c10::IValue& shape) {
  return arguments.is_tensor(position) ? is_dense_float(arguments.tensor(position), shape.toIntVector())
                                       : arguments.value(position).isNone();
}

// native_layer_norm(input, normalized_shape, weight?, bias?, eps)
class LayerNormKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& input = arguments.tensor(0);
    const c10::IValue& shape = arguments.value(1);
    const auto matrix = matrix_of_norm(arguments, input, shape);
    if (!matrix || !is_weight_of_norm(arguments, 2, shape) || !is_weight_of_norm(arguments, 3, shape)) {
      return false;
    }
    matrix_ = *matrix;
    eps_ = arguments.value(4).toDouble();
    results[0].place(input.sizes(), {}, at::kFloat);
    results[1].place(matrix_.sizes_of_statistics, {}, at::kFloat);
    results[2].place(matrix_.sizes_of_statistics, {}, at::kFloat);
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    const RowNorms norms{.columns = matrix_.columns,
                         .eps = eps_,
                         .x = memory_of(arguments, 0),
                         .weight = memory_of(arguments, 2),
                         .bias = memory_of(arguments, 3),
                         .out = static_cast<float*>(results[0].data),
                         .means = static_cast<float*>(results[1].data),
                         .deviations = static_cast<float*>(results[2].data)};
    fork_by_elements(matrix_.rows, matrix_.columns,
                     [&](int64_t first, int64_t last) { direct_kernels()->row_norms.normalize(norms, first, last); });
  }

 private:
  NormMatrix matrix_;
  double eps_ = 0;
};

// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight?, bias?, output_mask)
class LayerNormGradientsKernel final : public ReusableKernel {
 public:
  static constexpr size_t kAsked = 7;

  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& input = arguments.tensor(1);
    const c10::IValue& shape = arguments.value(2);
    const auto matrix = matrix_of_norm(arguments, input, shape);
    if (!matrix || !is_dense_float(arguments.tensor(0), input.sizes()) || !is_weight_of_norm(arguments, 5, shape) ||
        !is_weight_of_norm(arguments, 6, shape)) {
      return false;
    }
    matrix_ = *matrix;
    for (const size_t statistics : {3, 4}) {
      if (!is_dense_float(arguments.tensor(statistics), matrix_.sizes_of_statistics)) {
        return false;
      }
    }
    const c10::List<bool> asked = arguments.value(kAsked).toBoolList();
    for (size_t i = 0; i < is_asked_.size(); ++i) {
      is_asked_[i] = asked.get(i);
      constexpr size_t kWeight = 5;
      if (i > 0 && is_asked_[i] && !arguments.is_tensor(kWeight - 1 + i)) {
        return false;
      }
      const std::vector<int64_t> sizes = !is_asked_[i] ? std::vector<int64_t>{0}
                                         : i == 0      ? input.sizes().vec()
                                                       : shape.toIntVector();
      results[i].place(sizes, {}, at::kFloat);
    }
    return true;
  }

  void run(const KernelArguments& arguments, KernelResults results) override {
    const auto result = [&](size_t i) { return is_asked_[i] ? static_cast<float*>(results[i].data) : nullptr; };
    RowNormGradients gradients{.columns = matrix_.columns,
                               .gradient = memory_of(arguments, 0),
                               .x = memory_of(arguments, 1),
                               .weight = memory_of(arguments, 5),
                               .means = memory_of(arguments, 3),
                               .deviations = memory_of(arguments, 4),
                               .of_x = result(0)};
    // Rows of a part add up to one gradient of weights, and parts to the whole. Their number does not depend on threads.
    constexpr int64_t kMaxParts = 64;
    constexpr int64_t kMinRows = 64;
    const int64_t rows = std::max(kMinRows, (matrix_.rows + kMaxParts - 1) / kMaxParts);  // of a part
    const int64_t parts = (matrix_.rows + rows - 1) / rows;
    const int64_t columns = matrix_.columns;
    float* sums = parts_of_layer_norm.of(2 * parts * columns);
    std::fill_n(sums, 2 * parts * columns, 0.0F);
    fork_by_elements(parts, rows * columns, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        RowNormGradients of_part = gradients;
        of_part.of_weight = is_asked_[1] ? sums + 2 * part * columns : nullptr;
        of_part.of_bias = is_asked_[2] ? sums + (2 * part + 1) * columns : nullptr;
        direct_kernels()->row_norms.add_gradients(of_part, part * rows, std::min((part + 1) * rows, matrix_.rows));
      }
    });
    for (const size_t i : {1, 2}) {
      if (float* out = result(i); out != nullptr) {
        std::fill_n(out, columns, 0.0F);
        for (int64_t part = 0; part < parts; ++part) {
          const float* from = sums + (2 * part + static_cast<int64_t>(i) - 1) * columns;
          std::transform(out, out + columns, from, out, [](float sum, float more) { return sum + more; });
        }
      }
    }
  }

 private:
  NormMatrix matrix_;
  std::array<bool, 3> is_asked_ = {};
};

}  // namespace

void add_layer_norm_kernels(KernelTable& table) {
  table[{"aten::native_layer_norm", ""}] = {.make = make_kernel<LayerNormKernel>};
  table[{"aten::native_layer_norm_backward", ""}] = {.make = make_kernel<LayerNormGradientsKernel>,
                                                     .asked_results = LayerNormGradientsKernel::kAsked};
}

}  // namespace sconce
