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

def scaled(value: Tensor, factor: number):
    return value if factor == 1 else value * factor

def variance_gradient(grad: Tensor, values: Tensor, dim: Optional[List[int]], correction: float, keepdim: bool):
    mean = torch.mean(values, dim, True)
    count = values.numel() // max(mean.numel(), 1)
    return restored(grad, dim, keepdim, values.dim()) * ((values - mean) * 2 / (count - correction))

def convolution_gradients(
        grad: Tensor, input: Tensor, weight: Tensor, stride: List[int], padding: List[int], dilation: List[int],
        transposed: bool, output_padding: List[int], groups: int, needs: List[bool]):
    batched = input.dim() == weight.dim()
    filters = weight.size(1) * groups if transposed else weight.size(0)
    of_input, of_weight, of_bias = torch.convolution_backward(
        grad if batched else grad.unsqueeze(0), input if batched else input.unsqueeze(0), weight, [filters],
        stride, padding, dilation, transposed, output_padding, groups, [needs[0], needs[1], needs[2]])
    if not batched and needs[0]:
        of_input = of_input.squeeze(0)
    return (of_input, of_weight, of_bias)
)";

}  // namespace sconce
