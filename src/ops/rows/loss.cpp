// Losses.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> loss_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::binary_cross_entropy_with_logits", .autocast = Autocast::kFull},
      {.name = "aten::cosine_embedding_loss", .autocast = Autocast::kFull},
      {.name = "aten::cross_entropy_loss", .results = Sharing::kFresh},
      {.name = "aten::hinge_embedding_loss", .autocast = Autocast::kFull},
      {.name = "aten::kl_div", .autocast = Autocast::kFull},
      {.name = "aten::l1_loss", .autocast = Autocast::kFull},
      {.name = "aten::margin_ranking_loss", .autocast = Autocast::kFull},
      {.name = "aten::mse_loss", .autocast = Autocast::kFull},
      {.name = "aten::multi_margin_loss", .autocast = Autocast::kFull},
      {.name = "aten::multilabel_margin_loss", .autocast = Autocast::kFull},
      {.name = "aten::nll_loss", .results = Sharing::kFresh, .autocast = Autocast::kFull},
      {.name = "aten::nll_loss2d", .autocast = Autocast::kFull},
      {.name = "aten::smooth_l1_loss", .autocast = Autocast::kFull},
      {.name = "aten::soft_margin_loss", .autocast = Autocast::kFull},
      {.name = "aten::triplet_margin_loss", .autocast = Autocast::kFull},
  };
  return rows;
}

}  // namespace sconce
