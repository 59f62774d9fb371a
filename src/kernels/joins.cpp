// cat, stack and repeat.
#include "kernels/kernel_table.h"
#include "kernels/placed_op.h"
#include "plan/tensor_slot.h"

#include <ATen/core/IListRef.h>
#include <ATen/native/Copy.h>
#include <ATen/ops/cat_native.h>

#include <algorithm>
#include <vector>

namespace sconce {
namespace {

// Joins tensors, which the derived class collects, along a dimension.
class JoinKernel : public PreparedKernel {
 public:
  void run(const KernelArguments& /*arguments*/, KernelResults results) override {
    op_->impl(at::ITensorListRef(tensors_), plan_.dim, plan_.valid, plan_.all_contiguous, plan_.all_same_dtype,
              plan_.all_same_sizes_and_stride, plan_.memory_format, results[0].tensor());
  }
  bool reads_tensors() const override { return true; }

 protected:
  void join(int64_t dim, KernelResult& result) {
    op_.emplace(result);
    plan_ = op_->meta(at::ITensorListRef(tensors_), dim);
  }

  std::vector<at::Tensor> tensors_;

 private:
  std::optional<PlacedOp<at::native::structured_cat_out_cpu>> op_;
  at::meta::structured_cat::meta_return_ty plan_;
};

// cat(tensors, dim)
class CatKernel final : public JoinKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    for (size_t i = 0; i < arguments.count(0); ++i) {
      tensors_.push_back(arguments.element(0, i));
      if (tensors_[i].scalar_type() != tensors_[0].scalar_type()) {
        return false;
      }
    }
    join(arguments.value(1).toInt(), results[0]);
    return true;
  }
};

// stack(tensors, dim): the cat of the tensors with a dimension of size 1 inserted.
class StackKernel final : public JoinKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& first = arguments.element(0, 0);
    const int64_t dim = arguments.value(1).toInt();
    if (dim < -(first.dim() + 1) || dim > first.dim()) {
      return false;
    }
    const int64_t at = dim < 0 ? dim + first.dim() + 1 : dim;
    for (size_t i = 0; i < arguments.count(0); ++i) {
      const at::Tensor& element = arguments.element(0, i);
      if (element.scalar_type() != first.scalar_type() || element.sizes() != first.sizes() || !element.is_contiguous()) {
        return false;
      }
      std::vector<int64_t> sizes = element.sizes().vec();
      sizes.insert(sizes.begin() + at, 1);
      tensors_.push_back(make_shell(sizes, c10::contiguous_strides(sizes), element.scalar_type()));
    }
    join(at, results[0]);
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      point_storage_at(tensors_[i], arguments.element_data(0, i));
    }
    JoinKernel::run(arguments, results);
  }
};

// repeat(self, repeats): copies of the tensor, side by side.
class RepeatKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& self = arguments.tensor(0);
    const std::vector<int64_t> repeats = arguments.value(1).toIntVector();
    const bool is_rejected = repeats.size() < static_cast<size_t>(self.dim()) ||
                             std::any_of(repeats.begin(), repeats.end(), [](int64_t count) { return count < 0; });
    if (is_rejected) {
      return false;
    }
    // Two dimensions for one of the result: which copy, and the place in the copy.
    const size_t added = repeats.size() - static_cast<size_t>(self.dim());
    std::vector<int64_t> result_sizes;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    for (size_t i = 0; i < repeats.size(); ++i) {
      const int64_t size = i < added ? 1 : self.size(static_cast<int64_t>(i - added));
      result_sizes.push_back(repeats[i] * size);
      sizes.insert(sizes.end(), {repeats[i], size});
      strides.insert(strides.end(), {0, i < added ? 0 : self.stride(static_cast<int64_t>(i - added))});
    }
    results[0].place(result_sizes, {}, self.scalar_type());
    iterator_ = at::TensorIteratorConfig()
                    .resize_outputs(false)
                    .add_owned_output(make_shell(sizes, c10::contiguous_strides(sizes), self.scalar_type()))
                    .add_owned_const_input(make_shell(sizes, strides, self.scalar_type()))
                    .build();
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    iterator_._unsafe_set_arg_data(0, results[0].data);
    iterator_._unsafe_set_arg_data(1, arguments.data(0));
    at::native::copy_stub(at::kCPU, iterator_, /*non_blocking=*/false);
  }

 private:
  at::TensorIterator iterator_;
};

}  // namespace

void add_join_kernels(KernelTable& table) {
  table[{"aten::cat", ""}] = {make_kernel<CatKernel>};
  table[{"aten::stack", ""}] = {make_kernel<StackKernel>};
  table[{"aten::repeat", ""}] = {make_kernel<RepeatKernel>};
}

}  // namespace sconce
