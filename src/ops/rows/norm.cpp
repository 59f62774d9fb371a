// Normalizations.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> norm_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::batch_norm",
       .written = {"running_mean", "running_var"},
       .written_if = "training",
       .results = Sharing::kFresh,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::batch_norm_gather_stats", .written = {"running_mean", "running_var"}},
      {.name = "aten::batch_norm_gather_stats_with_counts", .written = {"running_mean", "running_var"}},
      {.name = "aten::_batch_norm_impl_index", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.name = "aten::batch_norm_update_stats", .written = {"running_mean", "running_var"}},
      {.name = "aten::cudnn_batch_norm", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.name = "aten::group_norm",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kFull,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::instance_norm",
       .written = {"running_mean", "running_var"},
       .written_if = "use_input_stats",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::layer_norm",
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kFull,
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::miopen_batch_norm", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.name = "aten::native_batch_norm", .written = {"running_mean", "running_var"}, .written_if = "training"},
      {.name = "aten::native_layer_norm", .autocast = Autocast::kFull},
      {.name = "aten::rms_norm", .results = Sharing::kFresh},
  };
  return rows;
}

}  // namespace sconce
