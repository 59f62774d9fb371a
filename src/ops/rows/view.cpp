// Views, copies, casts.
#include "ops/rows.h"

namespace sconce {
namespace {

constexpr std::string_view kReshapedSizes = R"(
def sizes(self: List[int], shape: List[int]):
    count = 1
    for size in self:
        count = count * size
    known = 1
    for size in shape:
        if size != -1:
            known = known * size
    out: List[int] = []
    for size in shape:
        out.append(count // known if size == -1 else size)
    return out
)";

constexpr std::string_view kDiagonalSizes = R"(
def sizes(self: List[int], offset: int, dim1: int, dim2: int):
    if dim1 < 0:
        dim1 = dim1 + len(self)
    if dim2 < 0:
        dim2 = dim2 + len(self)
    rows = self[dim1]
    columns = self[dim2]
    if offset >= 0:
        columns = columns - offset
    else:
        rows = rows + offset
    out: List[int] = []
    for i in range(len(self)):
        if i != dim1 and i != dim2:
            out.append(self[i])
    out.append(max(min(rows, columns), 0))
    return out
)";

}  // namespace

std::span<const OpRow> view_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::alias", .result = {.keeps_sizes = true}, .backward = "(grad,)"},
      {.name = "aten::as_strided",
       .new_view = true,
       .reads_beyond_form = true,
       .reads = Reads::kStridesOrVersion,
       .result = {.sizes = "def sizes(self: List[int], size: List[int]):\n    return size\n"}},
      {.name = "aten::as_strided_", .reads_beyond_form = true, .reads = Reads::kStridesOrVersion},
      {.name = "aten::as_strided_copy", .reads_beyond_form = true},
      {.name = "aten::as_strided_scatter", .reads_beyond_form = true},
      {.name = "aten::_autocast_to_full_precision",
       .result = {.keeps_sizes = true, .differs_on_meta = true},
       .backward = "(grad.to(self.dtype),)"},
      {.name = "aten::_autocast_to_reduced_precision",
       .result = {.keeps_sizes = true, .differs_on_meta = true},
       .backward = "(grad.to(self.dtype),)"},
      {.name = "aten::channel_shuffle",
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .recorded_gradient = true},
      {.name = "aten::clone", .backward_ignores_result = true, .result = {.keeps_sizes = true}, .backward = "(grad,)"},
      {.name = "aten::conj", .result = {.keeps_sizes = true}},
      {.name = "aten::contiguous", .may_copy = true, .backward = "(grad,)"},
      {.name = "prim::data", .reads_beyond_form = true},  // shares memory, and not the version
      {.name = "aten::detach", .opcode = Opcode::kDetach, .new_view = true, .result = {.keeps_sizes = true}},
      {.name = "aten::diag_embed", .backward = "(grad.diagonal(offset, dim1, dim2),)"},
      {.name = "aten::diagonal",
       .new_view = true,
       .result = {.sizes = kDiagonalSizes},
       .backward = "(torch.diagonal_backward(grad, self.size(), offset, dim1, dim2),)"},
      {.name = "aten::expand", .new_view = true, .backward = "(grad.sum_to_size(self.size()),)"},
      {.name = "aten::expand_as", .backward = "(grad.sum_to_size(self.size()),)"},
      {.name = "aten::flatten", .opcode = Opcode::kFlatten, .may_copy = true, .backward = "(grad.reshape(self.size()),)"},
      {.name = "aten::flip",
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .backward = "(grad.flip(dims),)"},
      {.name = "aten::_lazy_clone", .results = Sharing::kShared},
      {.name = "aten::lift", .results = Sharing::kShared},
      {.name = "aten::moveaxis", .synonym_of = "aten::movedim"},
      {.name = "aten::movedim",
       .overloads = {"int"},
       .result = {.sizes = R"(
def sizes(self: List[int], source: int, destination: int):
    if source < 0:
        source = source + len(self)
    if destination < 0:
        destination = destination + len(self)
    out: List[int] = []
    for i in range(len(self)):
        if i != source:
            out.append(self[i])
    out.insert(destination, self[source])
    return out
)"},
       .backward = "(torch.movedim(grad, destination, source),)"},
      {.name = "aten::narrow", .new_view = true},
      {.name = "aten::narrow", .overloads = {""}, .new_view = true, .backward = R"(
first = start if start >= 0 else start + self.size(dim)
return (torch.slice_backward(grad, self.size(), dim, first, first + length, 1),)
)"},
      {.name = "aten::_pack_padded_sequence", .results = Sharing::kFresh},
      {.name = "aten::_pack_sequence", .results = Sharing::kShared},
      {.name = "aten::permute", .new_view = true, .backward = R"(
places = [dim % len(dims) for dim in dims]
return (grad.permute([places.index(i) for i in range(len(dims))]),)
)"},
      {.name = "aten::repeat", .backward = R"(
sizes = self.size()
lead = len(repeats) - len(sizes)
shape: List[int] = []
dims: List[int] = []
for i in range(len(repeats)):
    dims.append(2 * i)
    shape.append(repeats[i])
    shape.append(sizes[i - lead] if i >= lead else 1)
return (torch.sum(grad.reshape(shape), dims).reshape(sizes),)
)"},
      {.name = "aten::reshape",
       .may_copy = true,
       .result = {.sizes = kReshapedSizes},
       .backward = "(grad.reshape(self.size()),)"},
      {.name = "aten::_reshape_alias", .result = {.sizes = kReshapedSizes}, .backward = "(grad.reshape(self.size()),)"},
      {.name = "aten::reshape_as", .may_copy = true, .backward = "(grad.reshape(self.size()),)"},
      {.name = "aten::resize_", .resizes = true},
      {.name = "aten::resize_as_", .resizes = true},
      {.name = "aten::roll",
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .backward = "(grad.roll([-shift for shift in shifts], dims),)"},
      {.name = "aten::select",
       .opcode = Opcode::kSelect,
       .new_view = true,
       .keeps_stride_order = true,
       .backward = "(torch.select_backward(grad, self.size(), dim, index),)"},
      {.name = "aten::set", .written = {"self"}, .results = Sharing::kShared},
      {.name = "aten::set_", .results = Sharing::kShared, .resizes = true},
      {.name = "aten::set_data", .resizes = true},
      {.name = "aten::slice",
       .opcode = Opcode::kSlice,
       .makes_container = true,
       .new_view = true,
       .keeps_stride_order = true,
       .backward = R"(
first = start if start is not None else 0
last = end if end is not None else self.size(dim)
return (torch.slice_backward(grad, self.size(), dim, first, last, step),)
)"},
      {.name = "aten::squeeze",
       .new_view = true,
       .result = {.rank_depends_on_sizes = true},
       .backward = "(grad.reshape(self.size()),)"},
      {.name = "aten::squeeze_copy", .result = {.rank_depends_on_sizes = true}},
      {.name = "aten::swapaxes", .synonym_of = "aten::transpose"},
      {.name = "aten::swapdims", .synonym_of = "aten::transpose"},
      {.name = "aten::t",
       .opcode = Opcode::kTransposeMatrix,
       .new_view = true,
       .keeps_stride_order = true,
       .backward = "(grad.t(),)"},
      {.name = "aten::to",
       .overloads = {"prim_Device", "prim_dtype", "prim_other"},
       .result = {.keeps_sizes = true},
       .reads_missing_dtype = true,
       .backward = "(grad.to(self.device, self.dtype),)"},
      {.name = "aten::to", .result = {.keeps_sizes = true}, .backward = "(grad.to(self.device, self.dtype),)"},
      {.name = "aten::transpose", .new_view = true, .backward = "(grad.transpose(dim0, dim1),)"},
      {.name = "aten::tril", .result = {.keeps_sizes = true}, .backward = "(grad.tril(diagonal),)"},
      {.name = "aten::triu", .result = {.keeps_sizes = true}, .backward = "(grad.triu(diagonal),)"},
      {.name = "aten::cpu", .leaves_device = true},
      {.name = "aten::cuda", .leaves_device = true},
      {.name = "aten::type_as",
       .opcode = Opcode::kCast,
       .result = {.keeps_sizes = true},
       .backward = "(grad.to(self.device, self.dtype),)"},
      {.name = "aten::unflatten",
       .overloads = {"int"},
       .result = {.sizes = R"(
def sizes(self: List[int], dim: int, sizes: List[int]):
    if dim < 0:
        dim = dim + len(self)
    known = 1
    for size in sizes:
        if size != -1:
            known = known * size
    out: List[int] = []
    for i in range(dim):
        out.append(self[i])
    for size in sizes:
        out.append(self[dim] // known if size == -1 else size)
    for i in range(dim + 1, len(self)):
        out.append(self[i])
    return out
)"},
       .backward = "(grad.reshape(self.size()),)"},
      {.name = "aten::unfold",
       .new_view = true,
       .backward = "(torch.unfold_backward(grad, self.size(), dimension, size, step),)"},
      {.name = "aten::_to_copy", .result = {.keeps_sizes = true}},
      {.name = "aten::_unsafe_view",
       .results = Sharing::kShared,
       .result = {.sizes = kReshapedSizes},
       .backward = "(grad.reshape(self.size()),)"},
      {.name = "aten::unsqueeze", .new_view = true, .backward = "(grad.squeeze(dim),)"},
      {.name = "aten::view", .new_view = true, .reads_beyond_form = true},
      {.name = "aten::view",
       .overloads = {""},
       .new_view = true,
       .result = {.sizes = kReshapedSizes},
       .backward = "(grad.reshape(self.size()),)"},
      {.name = "aten::view_as", .backward = "(grad.reshape(self.size()),)"},
  };
  return rows;
}

}  // namespace sconce
