// Normalizations.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> norm_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::batch_norm",
       .opcode = Opcode::kBatchNorm,
       .written = {"running_mean", "running_var"},
       .written_if = "training",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .forward = R"(
known = training or (running_mean is not None and running_var is not None)
fits = known and batch_norm_accepts(input.size(1), running_mean, running_var, weight, bias)
assert fits or input.numel() == 0, str(torch.batch_norm(
    input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled))
if input.numel() > 0:
    result, mean, deviation = torch.native_batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps)
else:
    result = input.clone()
    if weight is not None:
        result = result * weight[0]
    if bias is not None:
        result = result + bias[0]
    mean = input.new_empty([0])
    deviation = input.new_empty([0])
return (result, mean, deviation)
)",
       .backward = R"(
if input.numel() > 0:
    mask = [needs[0], needs[1], needs[2]]
    of_input, of_weight, of_bias = torch.native_batch_norm_backward(
        grad, input, weight, running_mean, running_var, saved_0, saved_1, training, eps, mask)
else:
    of_input = grad * 1
    of_weight = grad.new_zeros([weight.numel() if weight is not None else 0])
    of_bias = grad.new_zeros([bias.numel() if bias is not None else 0])
return (of_input, of_weight, of_bias)
)",
       .differentiable_if = R"(
vectors = (weight is None or weight.dim() == 1) and (bias is None or bias.dim() == 1)
return input.dim() > 1 and vectors
)"},
      {.name = "aten::batch_norm_gather_stats", .written = {"running_mean", "running_var"}},
      {.name = "aten::batch_norm_gather_stats_with_counts", .written = {"running_mean", "running_var"}},
      {.name = "aten::_batch_norm_impl_index", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.name = "aten::batch_norm_update_stats", .written = {"running_mean", "running_var"}},
      {.name = "aten::cudnn_batch_norm", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.name = "aten::group_norm",
       .results = Sharing::kFresh,
       .layout = Layout::kContiguous,
       .backward_ignores_result = true,
       .autocast = Autocast::kFull,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .forward = R"(
count = input.size(0)
channels = input.size(1)
inner = 1
for size in input.size()[2:]:
    inner = inner * size
packed = input
if input.dim() == 4:
    packed = input if input.is_contiguous(memory_format=2) else input.contiguous()
elif input.dim() == 5:
    packed = input if input.is_contiguous(memory_format=3) else input.contiguous()
else:
    packed = input.contiguous()
scale = weight.contiguous() if weight is not None else None
shift = bias.contiguous() if bias is not None else None
result, mean, deviation = torch.native_group_norm(packed, scale, shift, count, channels, inner, num_groups, eps)
return (result, mean, deviation)
)",
       .backward = R"(
per_group = input.size(1) // num_groups
inner = saved_0.numel() * per_group
inner = input.numel() // (inner if inner > 0 else 1)
rows = [input.size(0), num_groups, per_group, inner]
mean = saved_0.unsqueeze(2).unsqueeze(3)
deviation = saved_1.unsqueeze(2).unsqueeze(3)
if records:
    mean = torch.mean(input.reshape(rows), [2, 3], True)
    deviation = torch.rsqrt(torch.var(input.reshape(rows), [2, 3], False, True) + eps)
normal = (input.reshape(rows) - mean) * deviation
incoming = grad.reshape(rows)
weighted = incoming
if weight is not None:
    weighted = incoming * weight.reshape([1, num_groups, per_group, 1])
slope = torch.mean(weighted * normal, [2, 3], True)
of_input = (weighted - torch.mean(weighted, [2, 3], True) - normal * slope) * deviation
of_weight = torch.sum(incoming * normal, [0, 3]).reshape([-1])
of_bias = torch.sum(incoming, [0, 3]).reshape([-1])
return (of_input.reshape(input.size()), None, of_weight, of_bias)
)",
       .differentiable_if = "weight is not None or bias is None"},
      {.name = "aten::instance_norm",
       .written = {"running_mean", "running_var"},
       .written_if = "use_input_stats",
       .results = Sharing::kFresh,
       .layout = Layout::kContiguous,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .forward = R"(
fits = batch_norm_accepts(input.size(1), running_mean, running_var, weight, bias)
assert fits or input.numel() == 0, str(torch.instance_norm(
    input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled))
batch = input.size(0)
flat = input.contiguous().view([1, batch * input.size(1)] + input.size()[2:])
scale = weight.repeat([batch]) if weight is not None else None
shift = bias.repeat([batch]) if bias is not None else None
if running_mean is not None and running_var is not None:
    means = running_mean.repeat([batch])
    variances = running_var.repeat([batch])
    result, mean, deviation = instance_statistics(flat, scale, shift, means, variances, momentum, eps)
    running_mean.copy_(means.view([batch, input.size(1)]).mean(0))
    running_var.copy_(variances.view([batch, input.size(1)]).mean(0))
else:
    result, mean, deviation = instance_statistics(flat, scale, shift, None, None, momentum, eps)
factor = scale if scale is not None else input.new_ones([1])
return (result.view(input.size()), mean, deviation, factor)
)",
       .backward = R"(
shape = [1, input.size(0) * input.size(1)] + input.size()[2:]
scale = saved_2 if weight is not None else None
if records and weight is not None:
    scale = weight.repeat([input.size(0)])
if input.numel() > 0:
    of_flat, of_scale, of_shift = torch.native_batch_norm_backward(
        grad.reshape(shape), input.reshape(shape), scale, None, None, saved_0, saved_1, True, eps, [True, True, True])
else:
    of_flat = grad.reshape(shape) * 1
    of_scale = grad.new_zeros([shape[1]])
    of_shift = grad.new_zeros([shape[1]])
rows = [input.size(0), input.size(1)]
of_weight = torch.sum(of_scale.reshape(rows), [0])
of_bias = torch.sum(of_shift.reshape(rows), [0])
return (of_flat.reshape(input.size()), of_weight, of_bias)
)",
       .differentiable_if = "input.dim() > 1 and use_input_stats and (running_mean is None) == (running_var is None)"},
      {.name = "aten::layer_norm",
       .results = Sharing::kFresh,
       .layout = Layout::kContiguous,
       .backward_ignores_result = true,
       .autocast = Autocast::kFull,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .forward = "torch.native_layer_norm(input, normalized_shape, weight, bias, eps)",
       .backward = R"(
mask = [needs[0], needs[2], needs[3]]
of_input, of_weight, of_bias = torch.native_layer_norm_backward(
    grad, input, normalized_shape, saved_0, saved_1, weight, bias, mask)
return (of_input, None, of_weight, of_bias)
)"},
      {.name = "aten::miopen_batch_norm", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.name = "aten::native_batch_norm",
       .written = {"running_mean", "running_var"},
       .written_if = "training",
       .results = Sharing::kFresh},
      {.name = "aten::native_layer_norm", .autocast = Autocast::kFull},
      {.name = "aten::rms_norm",
       .results = Sharing::kFresh,
       .forward = R"(
assert rms_norm_accepts(input, normalized_shape, weight), str(torch.rms_norm(input, normalized_shape, weight, eps))
deviation = inverse_root_mean_square(input, len(normalized_shape), eps)
normal = input * deviation
if weight is not None:
    result = normal * weight
    kept = normal
else:
    result = normal
    kept = deviation
return (result.contiguous(), deviation, kept)
)",
       .backward = R"(
deviation = inverse_root_mean_square(input, len(normalized_shape), eps) if records else saved_0
normal = saved_1 if weight is not None and not records else input * deviation
weighted = grad * weight if weight is not None else grad
of_weight = grad * (normal if records else saved_1)
if input.dim() > len(normalized_shape):
    of_weight = torch.sum(of_weight, [i for i in range(input.dim() - len(normalized_shape))])
inner = torch.mean(weighted * normal, [i for i in range(-len(normalized_shape), 0)], True)
return ((weighted - normal * inner) * deviation, None, of_weight)
)",
       .differentiable_if = R"(
(input.dtype == 6 or input.dtype == 7) and (weight is None or weight.dtype == input.dtype)
)"},
  };
  return rows;
}

}  // namespace sconce
