// TorchScript functions that the texts of rows may call, inlined when a text is compiled.
#pragma once

#include <string_view>

namespace sconce {

inline constexpr std::string_view kRowFunctions = R"(
def restored(reduced: Tensor, dim: Optional[List[int]], keepdim: bool, rank: int):
    # Gives a reduced tensor its dimensions back, with one element each.
    if dim is not None and rank > 0 and not keepdim:
        if len(dim) == 1:
            reduced = reduced.unsqueeze(dim[0])
        elif len(dim) > 1:
            for i in range(rank):
                if i in dim or i - rank in dim:
                    reduced = reduced.unsqueeze(i)
    return reduced

def batch_sizes(a: List[int], b: List[int]):
    # The sizes to which the dimensions before the last two broadcast.
    rank = max(len(a), len(b))
    out: List[int] = []
    for i in range(rank - 2):
        of_a = a[i - rank + len(a)] if i - rank + len(a) >= 0 else 1
        of_b = b[i - rank + len(b)] if i - rank + len(b) >= 0 else 1
        out.append(of_b if of_a == 1 else of_a)
    return out

def factor(factors: Optional[List[float]], dim: int):
    return factors[dim] if factors is not None else None

# A function …_accepts returns whether the operator accepts those arguments that the operators inside it do not check. A
# forward text asserts it. The message of the assertion calls the operator, which raises its own error.

def batch_norm_accepts(
        channels: int, mean: Optional[Tensor], variance: Optional[Tensor], weight: Optional[Tensor], bias: Optional[Tensor]):
    fits = mean is None or mean.numel() == channels
    fits = fits and (variance is None or variance.numel() == channels)
    fits = fits and (weight is None or weight.numel() == channels)
    return fits and (bias is None or bias.numel() == channels)

def instance_statistics(
        flat: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], mean: Optional[Tensor], variance: Optional[Tensor],
        momentum: float, eps: float):
    # Of a tensor without elements LibTorch computes none.
    if flat.numel() > 0:
        result, means, deviations = torch.native_batch_norm(flat, weight, bias, mean, variance, True, momentum, eps)
    else:
        result = torch.batch_norm(flat, weight, bias, mean, variance, True, momentum, eps, False)
        means = flat.new_empty([0])
        deviations = flat.new_empty([0])
    return (result, means, deviations)

def attention_accepts(mask: Optional[Tensor], query: Tensor, key: Tensor):
    # The mask is added in place: it must broadcast to the sizes of the scores.
    rank = max(query.dim(), key.dim())
    accepts = mask is None or mask.dim() <= rank
    if mask is not None and accepts:
        for i in range(1, mask.dim() + 1):
            of_query = query.size(-i) if i <= query.dim() else 1
            of_key = key.size(-i) if i <= key.dim() else 1
            size = key.size(-2) if i == 1 else (of_key if i > 2 and of_query == 1 else of_query)
            accepts = accepts and (mask.size(-i) == 1 or mask.size(-i) == size)
    return accepts

def rms_norm_accepts(input: Tensor, shape: List[int], weight: Optional[Tensor]):
    rank = len(shape)
    accepts = rank > 0 and input.dim() >= rank and (weight is None or weight.dim() == rank)
    if accepts:
        for i in range(rank):
            accepts = accepts and input.size(i - rank) == shape[i] and (weight is None or weight.size(i) == shape[i])
    return accepts

def max_pool1d_accepts(
        input: Tensor, kernel: List[int], stride: List[int], padding: List[int], dilation: List[int], ceil_mode: bool):
    accepts = len(kernel) == 1 and len(stride) <= 1 and len(padding) == 1 and len(dilation) == 1
    accepts = accepts and (input.dim() == 2 or input.dim() == 3)
    if accepts:
        step = stride[0] if len(stride) > 0 else kernel[0]
        accepts = kernel[0] > 0 and step > 0 and dilation[0] > 0 and padding[0] >= 0 and padding[0] <= kernel[0] // 2
        room = input.size(-1) + 2 * padding[0] - dilation[0] * (kernel[0] - 1) - 1 + (step - 1 if ceil_mode else 0)
        accepts = accepts and room >= 0 and input.size(-1) > 0 and input.size(-2) > 0
    return accepts

def scaled(value: Tensor, factor: number):
    return value if factor == 1 else value * factor

def inverse_root_mean_square(values: Tensor, dims: int, eps: Optional[float]):
    # Over the last dims, which keep one element each.
    epsilon = eps if eps is not None else (1.1920928955078125e-07 if values.dtype == 6 else 2.220446049250313e-16)
    return torch.rsqrt(torch.mean(torch.pow(values, 2), [i for i in range(-dims, 0)], True) + epsilon)

def attention_weights(left: Tensor, right: Tensor, mask: Optional[Tensor], is_causal: bool):
    scores = torch.matmul(left, right.transpose(-2, -1))
    if is_causal:
        future = torch.ones_like(scores, dtype=11).tril().logical_not()
        scores = scores + torch.zeros_like(scores).masked_fill(future, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    return torch._safe_softmax(scores, -1)

def variance_gradient(grad: Tensor, values: Tensor, dim: Optional[List[int]], correction: float, keepdim: bool):
    mean = torch.mean(values, dim, True)
    count = values.numel() // max(mean.numel(), 1)
    return restored(grad, dim, keepdim, values.dim()) * ((values - mean) * 2 / (count - correction))

def gains_by_products(
        grad: Tensor, input: Tensor, weight: Tensor, stride: List[int], padding: List[int], dilation: List[int]):
    # oneDNN's gradients of large weights over few pixels take up to nine times the time of a product.
    dtype = weight.dtype
    gains = weight.dim() == 4 and (dtype == 6 or dtype == 7) and grad.dtype == dtype and input.dtype == dtype
    gains = gains and not weight.is_cuda
    if gains:
        pixels = grad.size(0) * grad.size(2) * grad.size(3)
        area = weight.size(2) * weight.size(3)
        gains = (weight.numel() >= 524288 and pixels <= 16) or (weight.numel() >= 2097152 and pixels <= 256 and area > 1)
        gains = gains and pixels > 0
    if gains:
        gains = len(stride) == 2 and len(padding) == 2 and len(dilation) == 2
        gains = gains and input.is_contiguous() and weight.is_contiguous()
    return gains

def convolution_gradients(
        grad: Tensor, input: Tensor, weight: Tensor, stride: List[int], padding: List[int], dilation: List[int],
        transposed: bool, output_padding: List[int], groups: int, needs: List[bool], records: bool):
    batched = input.dim() == weight.dim()
    filters = weight.size(1) * groups if transposed else weight.size(0)
    is_plain = batched and not transposed and groups == 1 and not records
    if is_plain and needs[1] and gains_by_products(grad, input, weight, stride, padding, dilation):
        rows = grad.transpose(0, 1).reshape([filters, -1])
        kernel = [weight.size(2), weight.size(3)]
        columns = torch.im2col(input, kernel, dilation, padding, stride).transpose(0, 1).reshape([-1, rows.size(1)])
        of_weight = torch.mm(rows, columns.t()).view(weight.size())
        of_bias = grad.sum([0, 2, 3])
        if kernel == [1, 1] and stride == [1, 1] and padding == [0, 0]:
            columns = torch.mm(weight.view([filters, -1]).t(), rows)
            of_input = columns.view([input.size(1), input.size(0), input.size(2), input.size(3)]).transpose(0, 1).contiguous()
        else:
            of_input = torch.convolution_backward(grad, input, weight, [filters], stride, padding, dilation, transposed,
                                                  output_padding, groups, [True, False, False])[0]
    else:
        of_input, of_weight, of_bias = torch.convolution_backward(
            grad if batched else grad.unsqueeze(0), input if batched else input.unsqueeze(0), weight, [filters],
            stride, padding, dilation, transposed, output_padding, groups, [needs[0], needs[1], needs[2]])
        if not batched and needs[0]:
            of_input = of_input.squeeze(0)
    return (of_input, of_weight, of_bias)
)";

}  // namespace sconce
