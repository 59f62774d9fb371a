// Views: a shell over the memory of another shell.
#include "kernels/kernel_table.h"
#include "plan/tensor_slot.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

namespace sconce {
namespace {

// Returns a tensor over the memory of `base`, whose storage offset it counts from.
at::Tensor view_of(const at::Tensor& base, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()),
                                                             base.key_set(), base.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, base.storage_offset() + offset);
  return view;
}

struct MetaRun {
  at::Tensor base;
  std::vector<at::Tensor> results;
};

c10::IValue run_on(const at::Tensor& base, const KernelArguments& arguments) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  torch::jit::Stack stack = {base};
  for (size_t i = 1; i < arguments.size(); ++i) {
    stack.push_back(arguments.value(i));
  }
  arguments.op().dispatched->callBoxed(stack);
  return std::move(stack.front());
}

// Runs the operator itself on a tensor without memory that has the form of the first operand.
MetaRun run_on_meta(const KernelArguments& arguments) {
  const at::Tensor& shell = arguments.tensor(0);
  const at::Tensor base = at::empty_strided(shell.sizes(), shell.strides(), shell.options().device(at::kMeta));
  c10::IValue result;
  try {
    result = run_on(base, arguments);
  } catch (const c10::Error&) {
    run_on(shell, arguments);  // throws, too: some messages name the tensor's type
    throw;
  }
  return {base, result.isTensor() ? std::vector<at::Tensor>{result.toTensor()} : result.toTensorVector()};
}

// Any operator that returns views, or its operand, or a copy where no view exists. The operator itself, on a meta tensor,
// finds the views' sizes and strides. A copy is left to the ordinary step.
class ViewKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& base = arguments.tensor(0);
    const auto [form, views] = run_on_meta(arguments);
    if (views.size() != results.size()) {
      return false;  // the ordinary steps report it
    }
    for (size_t i = 0; i < views.size(); ++i) {
      const at::Tensor& view = views[i];
      if (!view.is_alias_of(form) || view.scalar_type() != base.scalar_type() || view.is_conj() || view.is_neg()) {
        return false;
      }
      offsets_.push_back(static_cast<ptrdiff_t>(view.storage_offset() * base.element_size()));
      const c10::InferenceMode normal(false);
      results[i].place_view(view_of(base, view.sizes(), view.strides(), view.storage_offset()));
    }
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    for (size_t i = 0; i < offsets_.size(); ++i) {
      results[i].data = static_cast<char*>(arguments.data(0)) + offsets_[i];
    }
  }
  bool reads_tensors() const override { return true; }

 private:
  std::vector<ptrdiff_t> offsets_;
};

// dropout(input, p, train): its operand, unless it trains.
class IdleDropoutKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const double p = arguments.value(1).toDouble();
    if (!arguments.value(2).isBool() || arguments.value(2).toBool() || !(p >= 0 && p <= 1)) {
      return false;
    }
    results[0].place_view(arguments.tensor(0));
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override { results[0].data = arguments.data(0); }
  bool reads_tensors() const override { return true; }
};

// select(self, dim, index): the index is read in each run.
class SelectKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& base = arguments.tensor(0);
    const int64_t dim = arguments.value(1).toInt();
    if (dim < -base.dim() || dim >= base.dim()) {
      return false;
    }
    const int64_t at = dim < 0 ? dim + base.dim() : dim;
    size_ = base.size(at);
    stride_ = static_cast<ptrdiff_t>(base.stride(at) * base.element_size());
    if (!is_in_range(arguments)) {
      return false;
    }
    std::vector<int64_t> sizes = base.sizes().vec();
    std::vector<int64_t> strides = base.strides().vec();
    sizes.erase(sizes.begin() + at);
    strides.erase(strides.begin() + at);
    // A storage of its own: the view's place in the base changes from run to run.
    results[0].place_view(make_shell(sizes, strides, base.scalar_type(), base.device()));
    return true;
  }
  void run(const KernelArguments& arguments, KernelResults results) override {
    if (!is_in_range(arguments)) {
      run_on_meta(arguments);  // throws
    }
    const int64_t index = arguments.value(2).toInt();
    results[0].data = static_cast<char*>(arguments.data(0)) + (index < 0 ? index + size_ : index) * stride_;
    point_storage_at(results[0].tensor(), results[0].data);
  }
  bool reads_tensors() const override { return true; }

 private:
  bool is_in_range(const KernelArguments& arguments) const {
    const int64_t index = arguments.value(2).toInt();
    return index >= -size_ && index < size_;
  }
  int64_t size_ = 0;
  ptrdiff_t stride_ = 0;
};

}  // namespace

void add_view_kernels(KernelTable& table) {
  const auto add = [&](const char* name, const char* overload) {
    table[{name, overload}] = {make_kernel<ViewKernel>, true};
  };
  add("aten::view", "");
  add("aten::reshape", "");
  add("aten::flatten", "using_ints");
  add("aten::unflatten", "int");
  add("aten::transpose", "int");
  add("aten::t", "");
  add("aten::permute", "");
  add("aten::unsqueeze", "");
  add("aten::squeeze", "dim");
  add("aten::expand", "");
  add("aten::narrow", "");
  add("aten::slice", "Tensor");
  add("aten::contiguous", "");
  add("aten::detach", "");
  add("aten::chunk", "");
  add("aten::split", "Tensor");
  add("aten::split_with_sizes", "");
  add("aten::unbind", "int");
  table[{"aten::dropout", ""}] = {make_kernel<IdleDropoutKernel>, true};
  table[{"aten::select", "int"}] = {make_kernel<SelectKernel>, true, 2};
}

}  // namespace sconce
