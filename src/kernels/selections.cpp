// where and masked_fill.
#include "kernels/kernel_table.h"
#include "kernels/placed_op.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/scalar_tensor.h>

namespace sconce {
namespace {

// Finds the form of where's result.
struct WhereForm : at::TensorIteratorBase {
  void meta(const at::Tensor& condition, const at::Tensor& value, const at::Tensor& otherwise) {
    build(at::TensorIteratorConfig()
              .check_all_same_dtype(false)
              .declare_static_dtype_and_device(value.scalar_type(), at::kCPU)
              .add_output(maybe_get_output(0))
              .add_const_input(condition)
              .add_const_input(value)
              .add_const_input(otherwise));
  }
};

// where(condition, self, other), masked_fill(self, mask, number)
template <size_t kCondition, size_t kTrue, size_t kFalse>
class WhereKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& condition = arguments.tensor(kCondition);
    const at::Tensor& otherwise = arguments.tensor(kFalse);
    if (condition.scalar_type() != at::kBool) {
      return false;
    }
    at::Tensor value;
    if (arguments.is_tensor(kTrue)) {
      value = arguments.tensor(kTrue);
      if (value.scalar_type() != otherwise.scalar_type()) {
        return false;
      }
      PlacedOp<WhereForm>(results[0]).meta(condition, value, otherwise);
    } else if (arguments.value(kTrue).isScalar()) {
      number_ = at::scalar_tensor(arguments.value(kTrue).toScalar(), otherwise.options());
      value = number_;
      results[0].place(at::infer_size(condition.sizes(), otherwise.sizes()), {}, otherwise.scalar_type());
    } else {
      return false;
    }
    iterator_ = at::TensorIteratorConfig()
                    .check_all_same_dtype(false)
                    .resize_outputs(false)
                    .add_output(results[0].tensor())
                    .add_const_input(condition)
                    .add_const_input(value)
                    .add_const_input(otherwise)
                    .build();
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    iterator_._unsafe_set_arg_data(0, results[0].data);
    iterator_._unsafe_set_arg_data(1, arguments.data(kCondition));
    if (!number_.defined()) {
      iterator_._unsafe_set_arg_data(2, arguments.data(kTrue));
    }
    iterator_._unsafe_set_arg_data(3, arguments.data(kFalse));
    at::native::where_kernel(at::kCPU, iterator_);
  }

 private:
  at::TensorIterator iterator_;
  at::Tensor number_;
};

}  // namespace

void add_selection_kernels(KernelTable& table) {
  table[{"aten::where", "self"}] = {make_kernel<WhereKernel<0, 1, 2>>};
  table[{"aten::masked_fill", "Scalar"}] = {make_kernel<WhereKernel<1, 2, 0>>};
}

}  // namespace sconce
