// Operators on elements: a kept TensorIterator, whose pointers are set in each run.
#include "kernels/kernel_table.h"
#include "kernels/placed_op.h"

#include <ATen/ScalarOps.h>
#include <ATen/native/Activation.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/addcmul_native.h>
#include <ATen/ops/ceil_native.h>
#include <ATen/ops/clamp_max_native.h>
#include <ATen/ops/clamp_min_native.h>
#include <ATen/ops/clamp_native.h>
#include <ATen/ops/cos_native.h>
#include <ATen/ops/div_native.h>
#include <ATen/ops/elu_native.h>
#include <ATen/ops/eq_native.h>
#include <ATen/ops/erf_native.h>
#include <ATen/ops/exp_native.h>
#include <ATen/ops/floor_native.h>
#include <ATen/ops/ge_native.h>
#include <ATen/ops/gelu_native.h>
#include <ATen/ops/gt_native.h>
#include <ATen/ops/hardsigmoid_native.h>
#include <ATen/ops/le_native.h>
#include <ATen/ops/leaky_relu_native.h>
#include <ATen/ops/log_native.h>
#include <ATen/ops/lt_native.h>
#include <ATen/ops/maximum_native.h>
#include <ATen/ops/minimum_native.h>
#include <ATen/ops/mish_native.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/ne_native.h>
#include <ATen/ops/neg_native.h>
#include <ATen/ops/reciprocal_native.h>
#include <ATen/ops/rsqrt_native.h>
#include <ATen/ops/sigmoid_native.h>
#include <ATen/ops/silu_native.h>
#include <ATen/ops/sin_native.h>
#include <ATen/ops/softplus_native.h>
#include <ATen/ops/sqrt_native.h>
#include <ATen/ops/sub_native.h>
#include <ATen/ops/tanh_native.h>

namespace sconce {

bool is_reusable(const at::TensorIteratorBase& iterator, int number) {
  bool has_number = number >= 0;
  for (int i = 0; i < iterator.ntensors(); ++i) {
    if (i != number && iterator.operand(i).original_tensor_base().defined()) {
      return false;
    }
    has_number |= i >= iterator.noutputs() && iterator.is_cpu_scalar(i);
  }
  bool any_floating = false;
  for (int i = iterator.noutputs(); i < iterator.ntensors(); ++i) {
    any_floating |= i != number && !c10::isIntegralType(iterator.dtype(i), /*includeBool=*/true);
  }
  const bool is_from_default_dtype = c10::isFloatingType(iterator.dtype(0)) && !any_floating;
  return !is_from_default_dtype && !(has_number && c10::isReducedFloatingType(iterator.common_dtype()));
}

at::Tensor wrapped_number(const c10::IValue& number) { return at::native::wrapped_scalar_tensor(number.toScalar()); }

namespace {

using at::Scalar;
using at::Tensor;

// ---- (self)
template <class Op>
class UnaryKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (c10::isIntegralType(arguments.tensor(0).scalar_type(), /*includeBool=*/true)) {
      return false;  // some copy integers without the iterator
    }
    op_.emplace(results[0]).meta(arguments.tensor(0));
    return is_reusable(*op_);
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    op_->_unsafe_set_arg_data(0, results[0].data);
    op_->_unsafe_set_arg_data(1, arguments.data(0));
    op_->impl(arguments.tensor(0), results[0].tensor());
  }

 private:
  std::optional<PlacedOp<Op>> op_;
};

// ---- (self, number, …): `Numbers` of them. Comparisons compare with the number as a tensor.
template <class Op, size_t Numbers, bool kCompares = false>
class UnaryWithNumbersKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    for (size_t i = 0; i < Numbers; ++i) {
      if (!arguments.value(i + 1).isScalar()) {
        return false;
      }
      numbers_[i] = arguments.value(i + 1).toScalar();
    }
    op_.emplace(results[0]);
    std::apply([&](const auto&... number) { op_->meta(arguments.tensor(0), number...); }, numbers_);
    if (kCompares) {
      return is_reusable(*op_, /*number=*/2);
    }
    // The clamps copy an operand to the dtype of the result.
    return is_reusable(*op_) && results[0].tensor().scalar_type() == arguments.tensor(0).scalar_type();
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    op_->_unsafe_set_arg_data(0, results[0].data);
    op_->_unsafe_set_arg_data(1, arguments.data(0));
    std::apply([&](const auto&... number) { op_->impl(arguments.tensor(0), number..., results[0].tensor()); }, numbers_);
  }

 private:
  std::optional<PlacedOp<Op>> op_;
  std::array<Scalar, Numbers> numbers_;
};

// ---- clamps to constants of the operator
template <int64_t kMin>
class ClampMinKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (!arguments.tensor(0).is_floating_point()) {
      return false;
    }
    op_.emplace(results[0]).meta(arguments.tensor(0), min_);
    return is_reusable(*op_);
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    op_->_unsafe_set_arg_data(0, results[0].data);
    op_->_unsafe_set_arg_data(1, arguments.data(0));
    op_->impl(arguments.tensor(0), min_, results[0].tensor());
  }

 private:
  std::optional<PlacedOp<at::native::structured_clamp_min_out>> op_;
  const Scalar min_ = kMin;
};

// ---- clamp(self, min?, max?), hardtanh(self, min, max)
class ClampKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (!arguments.tensor(0).is_floating_point()) {
      return false;
    }
    const auto bound = [&](size_t position) {
      const c10::IValue& value = arguments.value(position);
      return value.isNone() ? std::nullopt : std::optional(value.toScalar());
    };
    min_ = bound(1);
    max_ = bound(2);
    op_.emplace(results[0]).meta(arguments.tensor(0), reference(min_), reference(max_));
    return is_reusable(*op_);
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    op_->_unsafe_set_arg_data(0, results[0].data);
    op_->_unsafe_set_arg_data(1, arguments.data(0));
    op_->impl(arguments.tensor(0), reference(min_), reference(max_), results[0].tensor());
  }

 private:
  static at::OptionalScalarRef reference(const std::optional<Scalar>& bound) {
    return bound ? at::OptionalScalarRef(*bound) : at::OptionalScalarRef();
  }
  std::optional<PlacedOp<at::native::structured_clamp_out>> op_;
  std::optional<Scalar> min_;
  std::optional<Scalar> max_;
};

// ---- two operands, each a tensor or a number

// The operands of an iterator: output 0, then these two.
class TwoOperands {
 public:
  // `left`, `right`: positions of the arguments.
  bool prepare(const KernelArguments& arguments, size_t left, size_t right) {
    positions_ = {left, right};
    for (int i = 0; i < 2; ++i) {
      if (arguments.is_tensor(positions_[i])) {
        operands_[i] = &arguments.tensor(positions_[i]);
        continue;
      }
      const c10::IValue& value = arguments.value(positions_[i]);
      if (!value.isScalar()) {
        return false;
      }
      numbers_[i] = wrapped_number(value);
      operands_[i] = &numbers_[i];
      number_ = i + 1;
    }
    // The iterator would cast an operand of another dtype now, not in each run.
    return number_ >= 0 || operands_[0]->scalar_type() == operands_[1]->scalar_type();
  }
  const Tensor& left() const { return *operands_[0]; }
  const Tensor& right() const { return *operands_[1]; }
  int number() const { return number_; }
  void point(at::TensorIteratorBase& iterator, const KernelArguments& arguments, const KernelResult& result) const {
    iterator._unsafe_set_arg_data(0, result.data);
    for (int i = 0; i < 2; ++i) {
      if (i + 1 != number_) {
        iterator._unsafe_set_arg_data(i + 1, arguments.data(positions_[i]));
      }
    }
  }

 private:
  std::array<size_t, 2> positions_ = {};
  std::array<const Tensor*, 2> operands_ = {};
  std::array<Tensor, 2> numbers_;
  int number_ = -1;  // the operand of the iterator that is a number
};

// (self, other), or with `Alphas` (self, other, alpha); rsub has the operands exchanged
template <class Op, size_t Alphas = 0, bool kExchanged = false>
class BinaryKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (!operands_.prepare(arguments, kExchanged ? 1 : 0, kExchanged ? 0 : 1) ||
        (Alphas > 0 && !arguments.value(2).isScalar())) {
      return false;
    }
    for (Scalar& alpha : alpha_) {
      alpha = arguments.value(2).toScalar();
    }
    op_.emplace(results[0]);
    std::apply([&](const auto&... alpha) { op_->meta(operands_.left(), operands_.right(), alpha...); }, alpha_);
    return is_reusable(*op_, operands_.number());
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    operands_.point(*op_, arguments, results[0]);
    std::apply([&](const auto&... alpha) { op_->impl(operands_.left(), operands_.right(), alpha..., results[0].tensor()); },
               alpha_);
  }

 private:
  std::optional<PlacedOp<Op>> op_;
  TwoOperands operands_;
  std::array<Scalar, Alphas> alpha_;
};

// LibTorch's own gelu calls oneDNN, whose set-up takes 10 µs. The results differ by at most 2 ulp.
class GeluKernelOfIterator final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (arguments.is_exact()) {
      return false;
    }
    type_ = at::native::get_gelutype_enum(arguments.value(1).toStringRef());
    op_.emplace(results[0]).meta(arguments.tensor(0), arguments.value(1).toStringRef());
    return is_reusable(*op_);
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    op_->_unsafe_set_arg_data(0, results[0].data);
    op_->_unsafe_set_arg_data(1, arguments.data(0));
    at::native::GeluKernel(at::kCPU, *op_, type_);
  }

 private:
  std::optional<PlacedOp<at::native::structured_gelu_out_cpu>> op_;
  at::native::GeluType type_ = at::native::GeluType::None;
};

// Operators on floats without a structured class, whose results have the form of silu's.
template <auto& Stub>
class StubKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (!arguments.tensor(0).is_floating_point()) {
      return false;
    }
    PlacedOp<at::native::structured_silu_out>(results[0]).meta(arguments.tensor(0));
    iterator_ = at::TensorIterator::unary_op(
        const_cast<at::TensorBase&>(static_cast<const at::TensorBase&>(results[0].tensor())), arguments.tensor(0));
    return is_reusable(iterator_);
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    iterator_._unsafe_set_arg_data(0, results[0].data);
    iterator_._unsafe_set_arg_data(1, arguments.data(0));
    Stub(at::kCPU, iterator_);
  }

 private:
  at::TensorIterator iterator_;
};

}  // namespace

void add_pointwise_kernels(KernelTable& table) {
  using namespace at::native;
  const auto add = [&](const char* name, const char* overload, KernelFactory make) { table[{name, overload}] = {make}; };
  add("aten::tanh", "", make_kernel<UnaryKernel<structured_tanh_out>>);
  add("aten::exp", "", make_kernel<UnaryKernel<structured_exp_out>>);
  add("aten::log", "", make_kernel<UnaryKernel<structured_log_out>>);
  add("aten::sqrt", "", make_kernel<UnaryKernel<structured_sqrt_out>>);
  add("aten::rsqrt", "", make_kernel<UnaryKernel<structured_rsqrt_out>>);
  add("aten::sin", "", make_kernel<UnaryKernel<structured_sin_out>>);
  add("aten::cos", "", make_kernel<UnaryKernel<structured_cos_out>>);
  add("aten::erf", "", make_kernel<UnaryKernel<structured_erf_out>>);
  add("aten::floor", "", make_kernel<UnaryKernel<structured_floor_out>>);
  add("aten::ceil", "", make_kernel<UnaryKernel<structured_ceil_out>>);
  add("aten::neg", "", make_kernel<UnaryKernel<structured_neg_out>>);
  add("aten::reciprocal", "", make_kernel<UnaryKernel<structured_reciprocal_out>>);
  add("aten::sigmoid", "", make_kernel<UnaryKernel<structured_sigmoid_out>>);
  add("aten::silu", "", make_kernel<UnaryKernel<structured_silu_out>>);
  add("aten::mish", "", make_kernel<UnaryKernel<structured_mish_out>>);
  add("aten::hardsigmoid", "", make_kernel<UnaryKernel<structured_hardsigmoid_out>>);
  add("aten::abs", "", make_kernel<StubKernel<abs_stub>>);
  add("aten::hardswish", "", make_kernel<StubKernel<hardswish_stub>>);
  add("aten::gelu", "", make_kernel<GeluKernelOfIterator>);
  add("aten::relu", "", make_kernel<ClampMinKernel<0>>);
  add("aten::clamp", "", make_kernel<ClampKernel>);
  add("aten::hardtanh", "", make_kernel<ClampKernel>);
  add("aten::clamp_min", "", make_kernel<UnaryWithNumbersKernel<structured_clamp_min_out, 1>>);
  add("aten::clamp_max", "", make_kernel<UnaryWithNumbersKernel<structured_clamp_max_out, 1>>);
  add("aten::leaky_relu", "", make_kernel<UnaryWithNumbersKernel<structured_leaky_relu_out, 1>>);
  add("aten::elu", "", make_kernel<UnaryWithNumbersKernel<structured_elu_out, 3>>);
  add("aten::softplus", "", make_kernel<UnaryWithNumbersKernel<structured_softplus_out, 2>>);
  for (const char* overload : {"Tensor", "Scalar"}) {
    add("aten::add", overload, make_kernel<BinaryKernel<structured_ufunc_add_CPU, 1>>);
    add("aten::sub", overload, make_kernel<BinaryKernel<structured_sub_out, 1>>);
    add("aten::rsub", overload, make_kernel<BinaryKernel<structured_sub_out, 1, true>>);
    add("aten::mul", overload, make_kernel<BinaryKernel<structured_mul_out>>);
    add("aten::div", overload, make_kernel<BinaryKernel<structured_div_out>>);
  }
  add("aten::lt", "Scalar", make_kernel<UnaryWithNumbersKernel<structured_lt_Scalar_out, 1, true>>);
  add("aten::le", "Scalar", make_kernel<UnaryWithNumbersKernel<structured_le_Scalar_out, 1, true>>);
  add("aten::gt", "Scalar", make_kernel<UnaryWithNumbersKernel<structured_gt_Scalar_out, 1, true>>);
  add("aten::ge", "Scalar", make_kernel<UnaryWithNumbersKernel<structured_ge_Scalar_out, 1, true>>);
  add("aten::eq", "Scalar", make_kernel<UnaryWithNumbersKernel<structured_eq_Scalar_out, 1, true>>);
  add("aten::ne", "Scalar", make_kernel<UnaryWithNumbersKernel<structured_ne_Scalar_out, 1, true>>);
  add("aten::maximum", "", make_kernel<BinaryKernel<structured_maximum_out>>);
  add("aten::minimum", "", make_kernel<BinaryKernel<structured_minimum_out>>);
  add("aten::eq", "Tensor", make_kernel<BinaryKernel<structured_eq_Tensor_out>>);
  add("aten::ne", "Tensor", make_kernel<BinaryKernel<structured_ne_Tensor_out>>);
  add("aten::lt", "Tensor", make_kernel<BinaryKernel<structured_lt_Tensor_out>>);
  add("aten::le", "Tensor", make_kernel<BinaryKernel<structured_le_Tensor_out>>);
  add("aten::gt", "Tensor", make_kernel<BinaryKernel<structured_gt_Tensor_out>>);
  add("aten::ge", "Tensor", make_kernel<BinaryKernel<structured_ge_Tensor_out>>);
}

}  // namespace sconce
