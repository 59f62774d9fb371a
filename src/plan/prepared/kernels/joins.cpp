// cat and stack.
#include "plan/prepared/kernels/placed_op.h"
#include "plan/prepared/tensor_slot.h"

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat_native.h>

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

}  // namespace

void add_join_kernels(KernelTable& table) {
  table[{"aten::cat", ""}] = {make_kernel<CatKernel>};
  table[{"aten::stack", ""}] = {make_kernel<StackKernel>};
}

}  // namespace sconce
