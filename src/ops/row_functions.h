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
)";

}  // namespace sconce
