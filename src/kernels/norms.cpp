// Softmax, normalizations and look-ups along the last dimension.
#include "kernels/kernel_table.h"
#include "kernels/placed_op.h"

#include <ATen/native/layer_norm.h>
#include <ATen/ops/_log_softmax_native.h>
#include <ATen/ops/_softmax_native.h>

#include <cstring>

namespace sconce {
namespace {

// softmax(self, dim, dtype?)
template <class Op>
class SoftmaxKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (!arguments.value(2).isNone() || !arguments.tensor(0).is_floating_point()) {
      return false;
    }
    const int64_t dim = arguments.value(1).toInt();
    op_.emplace(results[0]).meta(arguments.tensor(0), dim, false);
    const int64_t rank = arguments.tensor(0).dim();
    dim_ = dim < 0 && rank > 0 ? dim + rank : dim;
    return rank > 0 && arguments.tensor(0).numel() > 0;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    op_->impl(arguments.tensor(0), dim_, false, results[0].tensor());
  }
  bool reads_tensors() const override { return true; }

 private:
  std::optional<PlacedOp<Op>> op_;
  int64_t dim_ = 0;
};

// layer_norm(input, normalized_shape, weight?, bias?, eps, cudnn_enable)
class LayerNorm final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& input = arguments.tensor(0);
    const auto shape = arguments.value(1).toIntVector();
    const auto fits = [&](size_t position) {
      if (!arguments.is_tensor(position)) {
        return arguments.value(position).isNone();
      }
      const at::Tensor& weight = arguments.tensor(position);
      return weight.scalar_type() == input.scalar_type() && weight.is_contiguous() && weight.sizes() == shape;
    };
    const size_t rank = input.sizes().size();
    if (shape.empty() || shape.size() > rank || input.sizes().slice(rank - shape.size()) != c10::IntArrayRef(shape) ||
        !input.is_contiguous() || !input.is_floating_point() || input.numel() == 0 || !fits(2) || !fits(3)) {
      return false;
    }
    columns_ = c10::multiply_integers(shape);
    rows_ = input.numel() / columns_;
    eps_ = arguments.value(4).toDouble();
    results[0].place(input.sizes(), {}, input.scalar_type());
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    static const at::Tensor none;
    at::Tensor output = results[0].tensor();
    at::native::LayerNormKernel(at::kCPU, arguments.tensor(0), arguments.is_tensor(2) ? arguments.tensor(2) : none,
                                arguments.is_tensor(3) ? arguments.tensor(3) : none, rows_, columns_, eps_, &output,
                                /*mean=*/nullptr, /*rstd=*/nullptr);
  }
  bool reads_tensors() const override { return true; }

 private:
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  double eps_ = 0;
};

// embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)
class EmbeddingKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& weight = arguments.tensor(0);
    const at::Tensor& indices = arguments.tensor(1);
    if (weight.dim() != 2 || !weight.is_contiguous() || !indices.is_contiguous() ||
        (indices.scalar_type() != at::kLong && indices.scalar_type() != at::kInt)) {
      return false;
    }
    rows_ = weight.size(0);
    row_bytes_ = static_cast<size_t>(weight.size(1) * weight.element_size());
    count_ = indices.numel();
    is_long_ = indices.scalar_type() == at::kLong;
    std::vector<int64_t> sizes = indices.sizes().vec();
    sizes.push_back(weight.size(1));
    results[0].place(sizes, {}, weight.scalar_type());
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    is_long_ ? gather<int64_t>(arguments, results[0]) : gather<int32_t>(arguments, results[0]);
  }

 private:
  template <typename Index>
  void gather(const KernelArguments& arguments, KernelResult& result) const {
    const auto* indices = static_cast<const Index*>(arguments.data(1));
    const auto* weight = static_cast<const char*>(arguments.data(0));
    auto* out = static_cast<char*>(result.data);
    for (int64_t i = 0; i < count_; ++i) {
      const auto row = static_cast<int64_t>(indices[i]);
      TORCH_CHECK_INDEX(row >= 0 && row < rows_, "index out of range in self");
      std::memcpy(out + static_cast<size_t>(i) * row_bytes_, weight + static_cast<size_t>(row) * row_bytes_, row_bytes_);
    }
  }
  int64_t rows_ = 0;
  int64_t count_ = 0;
  size_t row_bytes_ = 0;
  bool is_long_ = true;
};

}  // namespace

void add_norm_kernels(KernelTable& table) {
  table[{"aten::softmax", "int"}] = {make_kernel<SoftmaxKernel<at::native::structured_softmax_cpu_out>>};
  table[{"aten::log_softmax", "int"}] = {make_kernel<SoftmaxKernel<at::native::structured_log_softmax_cpu_out>>};
  table[{"aten::layer_norm", ""}] = {make_kernel<LayerNorm>};
  table[{"aten::embedding", ""}] = {make_kernel<EmbeddingKernel>};
}

}  // namespace sconce
