// Matrix products of float32, without LibTorch's set-up.
#include "kernels/float32_precision.h"
#include "kernels/kernel_table.h"
#include "kernels/loops/forks.h"
#include "kernels/packed/gemm.h"
#include "kernels/packed/packed_product.h"
#include "kernels/product_rows.h"
#include "plan/tensor_slot.h"

#include <optional>

namespace sconce {
namespace {

// For such products LibTorch takes other functions, whose results differ in the last bits.
bool is_vector_product(int64_t m, int64_t n, int64_t k) { return m == 1 || n == 1 || k == 1; }

bool is_float_matrix(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat && tensor.numel() > 0; }

// linear(input, weight, bias?), or addmm(bias, input, weight) with the numbers beta and alpha 1.
template <bool kIsLinear>
class LinearKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& input = arguments.tensor(kInput);
    const at::Tensor& weight = arguments.tensor(kWeight);
    has_bias_ = arguments.is_tensor(kBias);
    if (!is_float_matrix(input) || !is_float_matrix(weight) || weight.dim() != 2 ||
        !computes_in_float32(at::Float32Op::MATMUL)) {
      return false;
    }
    const int64_t n = weight.size(kIsLinear ? 0 : 1);
    const int64_t k = weight.size(kIsLinear ? 1 : 0);
    const bool has_sizes =
        kIsLinear ? input.dim() >= 1 : input.dim() == 2 && is_one(arguments.value(3)) && is_one(arguments.value(4));
    if (!has_sizes || (arguments.is_exact() && !input.is_contiguous()) || input.sizes().back() != k ||
        (has_bias_ && !(is_float_matrix(arguments.tensor(kBias)) && arguments.tensor(kBias).is_contiguous() &&
                        arguments.tensor(kBias).sizes() == c10::IntArrayRef{n}))) {
      return false;
    }
    rows_ = ProductRows::of(input);
    if (!rows_) {
      return false;
    }
    const int64_t m = rows_->count();
    const auto left = matrix_of(m, k, rows_->stride(), 1);
    const auto right = matrix_of(k, n, weight.stride(kIsLinear ? 1 : 0), weight.stride(kIsLinear ? 0 : 1));
    if (!left || !right || (arguments.is_exact() && is_vector_product(m, n, k))) {
      return false;
    }
    gemm_ = Gemm(*left, *right, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), arguments.is_exact());
    may_pack_ = arguments.packs_weights() && is_dense(*right, k, n);
    if (may_pack_) {
      packed_.set_sizes(m, n, k, right->is_transposed, rows_->stride());
    }
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = n;
    results[0].place(sizes, {}, at::kFloat);
    return true;
  }
  int64_t rows() const override { return gemm_.rows(); }
  void run(const KernelArguments& arguments, KernelResults results) override { run_by_rows(arguments, results, nullptr); }
  void run_by_rows(const KernelArguments& arguments, KernelResults results, const RowsFunction& then) override {
    const float* input = rows_->get(static_cast<const float*>(arguments.data(kInput)));
    auto* out = static_cast<float*>(results[0].data);
    if (may_pack_ && packed_.run(arguments, kWeight, kBias, input, out, then)) {
      return;
    }
    gemm_.run(input, static_cast<const float*>(arguments.data(kWeight)),
              has_bias_ ? static_cast<const float*>(arguments.data(kBias)) : nullptr, out, then);
  }

 private:
  static constexpr size_t kInput = kIsLinear ? 0 : 1;
  static constexpr size_t kWeight = kIsLinear ? 1 : 2;
  static constexpr size_t kBias = kIsLinear ? 2 : 0;

  static bool is_one(const c10::IValue& number) { return number.isScalar() && number.toScalar().equal(1); }

  std::optional<ProductRows> rows_;
  Gemm gemm_;
  bool has_bias_ = false;
  bool may_pack_ = false;
  PackedProduct packed_;
};

// mm, bmm and matmul of operands of equal rank, or with a matrix on the right. `kRank`: of both operands; 0 for any.
template <int64_t kRank>
class MatmulKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& a = arguments.tensor(0);
    const at::Tensor& b = arguments.tensor(1);
    if (kRank != 0 && (a.dim() != kRank || b.dim() != kRank)) {
      return false;
    }
    if (!is_float_matrix(a) || !is_float_matrix(b) || a.dim() < 2 || b.dim() < 2 || a.sizes().back() != b.size(-2) ||
        !computes_in_float32(at::Float32Op::MATMUL)) {
      return false;
    }
    int64_t m = a.size(-2);
    const int64_t n = b.size(-1);
    const int64_t k = b.size(-2);
    std::vector<int64_t> sizes = a.sizes().vec();
    sizes.back() = n;
    batches_ = 1;
    rows_.reset();
    if (b.dim() == 2 && a.dim() > 2) {
      rows_ = arguments.is_exact() && !a.is_contiguous() ? std::nullopt : ProductRows::of(a);
      if (!rows_) {
        return false;
      }
      m = rows_->count();
    } else if (a.dim() != b.dim() || a.sizes().slice(0, a.dim() - 2) != b.sizes().slice(0, b.dim() - 2)) {
      return false;
    } else {
      batches_ = c10::multiply_integers(a.sizes().slice(0, a.dim() - 2));
      // LibTorch's batched product pays from some size on. Its results differ in the last bits.
      if (batches_ > 1 && (arguments.is_exact() || (m * n * k > kMaxInBatch && !tiles_are_faster(m, n, k)))) {
        return false;
      }
    }
    const auto left = rows_ ? matrix_of(m, k, rows_->stride(), 1) : matrix_of(m, k, a.stride(-2), a.stride(-1));
    const auto right = matrix_of(k, n, b.stride(-2), b.stride(-1));
    if (!left || !right || (arguments.is_exact() && is_vector_product(m, n, k))) {
      return false;
    }
    gemm_ = Gemm(*left, *right, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), arguments.is_exact());
    may_pack_ = arguments.packs_weights() && b.dim() == 2 && !left->is_transposed && is_dense(*right, k, n);
    if (may_pack_) {
      packed_.set_sizes(m, n, k, right->is_transposed, left->leading);
    }
    offsets_a_ = offsets_of_matrices(a, b.dim() == 2 ? 0 : a.dim() - 2);
    offsets_b_ = offsets_of_matrices(b, b.dim() - 2);
    results[0].place(sizes, {}, at::kFloat);
    return true;
  }
  int64_t rows() const override { return batches_ == 1 ? gemm_.rows() : 0; }
  void run(const KernelArguments& arguments, KernelResults results) override { run_by_rows(arguments, results, nullptr); }
  void run_by_rows(const KernelArguments& arguments, KernelResults results, const RowsFunction& then) override {
    const auto* operand = static_cast<const float*>(arguments.data(0));
    const float* const a = rows_ ? rows_->get(operand) : operand;
    const auto* b = static_cast<const float*>(arguments.data(1));
    auto* out = static_cast<float*>(results[0].data);
    if (may_pack_ && packed_.run(arguments, 1, std::nullopt, a, out, then)) {
      return;
    }
    if (batches_ == 1) {
      gemm_.run(a + offsets_a_[0], b + offsets_b_[0], nullptr, out, then);
      return;
    }
    const ptrdiff_t matrix = results[0].tensor().numel() / batches_;
    fork_by_multiplications(batches_, gemm_.multiplications(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto batch = static_cast<size_t>(i);
        gemm_.run(a + offsets_a_[batch], b + offsets_b_[batch], nullptr, out + static_cast<ptrdiff_t>(i) * matrix);
      }
    });
  }

 private:
  static constexpr int64_t kMaxInBatch = 64 * 64 * 64;

  std::optional<ProductRows> rows_;
  Gemm gemm_;
  bool may_pack_ = false;
  PackedProduct packed_;
  int64_t batches_ = 1;
  std::vector<ptrdiff_t> offsets_a_;
  std::vector<ptrdiff_t> offsets_b_;
};

}  // namespace

void add_product_kernels(KernelTable& table) {
  table[{"aten::linear", ""}] = {.make = make_kernel<LinearKernel<true>>, .has_rows = true};
  table[{"aten::addmm", ""}] = {.make = make_kernel<LinearKernel<false>>, .has_rows = true};
  table[{"aten::mm", ""}] = {.make = make_kernel<MatmulKernel<2>>, .has_rows = true};
  table[{"aten::bmm", ""}] = {.make = make_kernel<MatmulKernel<3>>, .has_rows = true};
  table[{"aten::matmul", ""}] = {.make = make_kernel<MatmulKernel<0>>, .has_rows = true};
}

}  // namespace sconce
