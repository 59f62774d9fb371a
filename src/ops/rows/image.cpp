// Pooling, resampling, padding.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> image_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::adaptive_avg_pool1d", .results = Sharing::kFresh, .result = {.dtypes = {ResultDtype::kFirst}}},
      {.name = "aten::adaptive_avg_pool2d",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}}},
      {.name = "aten::adaptive_avg_pool3d", .results = Sharing::kFresh, .result = {.dtypes = {ResultDtype::kFirst}}},
      {.name = "aten::avg_pool1d", .results = Sharing::kFresh, .result = {.dtypes = {ResultDtype::kFirst}}},
      {.name = "aten::avg_pool2d",
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = R"(
def sizes(self: List[int], kernel_size: List[int], stride: List[int], padding: List[int], ceil_mode: bool):
    out = self.copy()
    for i in range(2):
        at = len(self) - 2 + i
        kernel = kernel_size[i] if len(kernel_size) == 2 else kernel_size[0]
        step = kernel if len(stride) == 0 else (stride[i] if len(stride) == 2 else stride[0])
        pad = padding[i] if len(padding) == 2 else padding[0]
        if ceil_mode:
            longer = (self[at] + 2 * pad - kernel + step - 1) // step
            out[at] = longer if longer * step >= self[at] + pad else longer + 1
        else:
            out[at] = (self[at] + 2 * pad - kernel) // step + 1
    return out
)"}},
      {.name = "aten::max_pool1d", .results = Sharing::kFresh, .result = {.dtypes = {ResultDtype::kFirst}}},
      {.name = "aten::max_pool2d",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .result = {.dtypes = {ResultDtype::kFirst}}},
      {.name = "aten::max_pool3d", .results = Sharing::kFresh, .result = {.dtypes = {ResultDtype::kFirst}}},
      {.name = "aten::pad", .result = {.sizes = R"(
def sizes(self: List[int], pad: List[int]):
    out = self.copy()
    for i in range(len(pad) // 2):
        out[len(self) - 1 - i] = self[len(self) - 1 - i] + pad[2 * i] + pad[2 * i + 1]
    return out
)"}},
      {.name = "aten::upsample_bilinear2d", .layout = Layout::kImages},
      {.name = "aten::upsample_nearest2d", .layout = Layout::kImages},
  };
  return rows;
}

}  // namespace sconce
