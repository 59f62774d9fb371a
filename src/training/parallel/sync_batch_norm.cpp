// Operators that compute with what all ranks have:
//
//   sum_over_ranks     the sums of elements over the ranks of a group; so is its gradient
//   sync_batch_norm    aten::batch_norm, with the mean and variance of all ranks' batches in training
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <vector>

namespace sconce {
namespace {

at::Tensor sum_over_ranks(const at::Tensor& local, const std::string& group) {
  std::vector<at::Tensor> sum = {local.clone(at::MemoryFormat::Contiguous)};
  c10d::resolve_process_group(group)->allreduce(sum)->wait();
  return sum.front();
}

at::Tensor call_sum_over_ranks(const at::Tensor& local, const std::string& group) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("sconce::sum_over_ranks", "")
                             .typed<at::Tensor(const at::Tensor&, const std::string&)>();
  return op.call(local, group);
}

// Each rank's sum depends on every rank's elements: their gradient is the sum of the gradients of all ranks' sums.
struct SumOverRanks : torch::autograd::Function<SumOverRanks> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& local, const std::string& group) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->saved_data["group"] = group;
    return call_sum_over_ranks(local, group);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {call_sum_over_ranks(gradients[0], context->saved_data["group"].toStringRef()), at::Tensor()};
  }
};

at::Tensor differentiable_sum_over_ranks(const at::Tensor& local, const std::string& group) {
  return SumOverRanks::apply(local, group);
}

// Sums of squares and of means are in float64: their difference, the variance, then has the precision of the dtype.
at::Tensor sync_batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                           const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
                           const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps,
                           bool cudnn_enabled, const std::string& group) {
  if (!training) {
    return at::batch_norm(input, weight, bias, running_mean, running_var, false, momentum, eps, cudnn_enabled);
  }
  TORCH_CHECK(input.dim() >= 2, "expected at least 2D input (got ", input.dim(), "D input)");
  std::vector<int64_t> all_but_channels = {0};
  std::vector<int64_t> form(static_cast<size_t>(input.dim()), 1);
  form[1] = input.size(1);
  for (int64_t dim = 2; dim < input.dim(); ++dim) {
    all_but_channels.push_back(dim);
  }
  const int64_t channels = input.size(1);
  const auto count = static_cast<double>(input.numel() / std::max<int64_t>(channels, 1));
  const at::Tensor wide = at::isReducedFloatingType(input.scalar_type()) ? input.to(at::kFloat) : input;
  const auto [local_var, local_mean] = at::var_mean(wide, all_but_channels, /*correction=*/0);
  const at::Tensor mean64 = local_mean.to(at::kDouble);
  const at::Tensor square64 = local_var.to(at::kDouble) + mean64 * mean64;
  const at::Tensor sums = call_sum_over_ranks(
      at::cat({mean64 * count, square64 * count, at::full({1}, count, mean64.options().requires_grad(false))}), group);
  const at::Tensor total = sums.narrow(0, 2 * channels, 1);
  const at::Tensor mean = sums.narrow(0, 0, channels) / total;
  const at::Tensor var = sums.narrow(0, channels, channels) / total - mean * mean;
  {
    const at::NoGradGuard no_grad;
    if (running_mean && running_mean->defined()) {
      running_mean->mul_(1 - momentum).add_(mean.detach().to(running_mean->scalar_type()), momentum);
    }
    if (running_var && running_var->defined()) {
      const at::Tensor unbiased = var.detach() * (total / (total - 1).clamp_min(1));
      running_var->mul_(1 - momentum).add_(unbiased.to(running_var->scalar_type()), momentum);
    }
  }
  const auto along_channels = [&](const at::Tensor& tensor) { return tensor.to(wide.scalar_type()).view(form); };
  at::Tensor scale = along_channels(at::rsqrt(var + eps));
  if (weight && weight->defined()) {
    scale = scale * along_channels(*weight);
  }
  at::Tensor result = (wide - along_channels(mean)) * scale;
  if (bias && bias->defined()) {
    result = result + along_channels(*bias);
  }
  return result.to(input.scalar_type());
}

}  // namespace
}  // namespace sconce

TORCH_LIBRARY_FRAGMENT(sconce, library) {
  library.def("sum_over_ranks(Tensor input, str group) -> Tensor");
  library.def(
      "sync_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, "
      "bool training, float momentum, float eps, bool cudnn_enabled, str group) -> Tensor");
}
TORCH_LIBRARY_IMPL(sconce, CompositeExplicitAutograd, library) {
  library.impl("sum_over_ranks", &sconce::sum_over_ranks);
  library.impl("sync_batch_norm", &sconce::sync_batch_norm);
}
// Autograd records the operators that compute the norm.
TORCH_LIBRARY_IMPL(sconce, Autograd, library) {
  library.impl("sum_over_ranks", &sconce::differentiable_sum_over_ranks);
  library.impl("sync_batch_norm", &sconce::sync_batch_norm);
}
