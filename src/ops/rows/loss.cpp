// Losses.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> loss_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::binary_cross_entropy", .backward = R"(
of_self = torch.binary_cross_entropy_backward(grad, self, target, weight, reduction)
of_target = (torch.log1p(torch.neg(self)) - torch.log(self)) * grad
if weight is not None:
    of_target = of_target * weight
if reduction == 1:
    of_target = of_target / target.numel()
return (of_self, of_target)
)"},
      {.name = "aten::binary_cross_entropy_with_logits", .autocast = Autocast::kFull, .backward = R"(
scaled = grad
if weight is not None:
    scaled = scaled * weight
if reduction == 1:
    scaled = scaled / max(self.numel(), 1)
if pos_weight is not None:
    weighted = pos_weight * target
    of_self = ((weighted + 1 - target) * torch.sigmoid(self) - weighted) * scaled
    of_target = (torch.log_sigmoid(torch.neg(self)) - pos_weight * torch.log_sigmoid(self)) * scaled
else:
    of_self = (torch.sigmoid(self) - target) * scaled
    of_target = torch.neg(self) * scaled
return (of_self, of_target)
)"},
      {.name = "aten::cosine_embedding_loss", .autocast = Autocast::kFull},
      {.name = "aten::cross_entropy_loss",
       .results = Sharing::kFresh,
       .forward = "(torch.nll_loss_nd(torch.log_softmax(self, 1), target, weight, reduction, ignore_index),)",
       .differentiable_if = R"(
of_classes = label_smoothing == 0.0 and (self.dim() == 2 or self.dim() == 4) and target.dim() == self.dim() - 1
return of_classes and (weight is None or not weight.requires_grad)
)"},
      {.name = "aten::hinge_embedding_loss", .autocast = Autocast::kFull},
      {.name = "aten::huber_loss", .backward = R"(
of_self = torch.huber_loss_backward(grad, self, target, reduction, delta)
return (of_self, torch.huber_loss_backward(grad, target, self, reduction, delta))
)"},
      {.name = "aten::kl_div",
       .autocast = Autocast::kFull,
       .backward = R"(
difference = self - target
scaled = grad
if reduction == 1:
    scaled = scaled / max(difference.numel(), 1)
scaled = scaled.expand(difference.size())
of_xlogx = torch.xlogy(scaled, target).masked_fill(target <= 0, 0) + scaled * (target / target)
return (torch.neg(target) * scaled, of_xlogx - self * scaled)
)",
       .differentiable_if = "not log_target"},
      {.name = "aten::l1_loss",
       .autocast = Autocast::kFull,
       .forward = R"(
difference = self - target
loss = torch.abs(difference)
if reduction == 1:
    loss = torch.mean(loss)
elif reduction == 2:
    loss = torch.sum(loss)
return (loss, difference)
)",
       .backward = R"(
scaled = grad
if reduction == 1:
    scaled = scaled / max(saved_0.numel(), 1)
of_self = torch.sign(saved_0) * scaled
return (of_self, torch.neg(of_self))
)"},
      {.name = "aten::margin_ranking_loss", .autocast = Autocast::kFull},
      {.name = "aten::mse_loss", .autocast = Autocast::kFull, .backward = R"(
if self.dtype == target.dtype:
    difference = self - target
    scaled = grad * 2
    of_self = difference * (scaled / max(self.numel(), 1) if reduction == 1 else scaled)
    of_target = torch.neg(difference * (scaled / max(target.numel(), 1) if reduction == 1 else scaled))
else:
    of_self = torch.mse_loss_backward(grad, self, target, reduction)
    of_target = torch.mse_loss_backward(grad, target, self, reduction)
return (of_self, of_target)
)"},
      {.name = "aten::multi_margin_loss", .autocast = Autocast::kFull},
      {.name = "aten::multilabel_margin_loss", .autocast = Autocast::kFull},
      {.name = "aten::nll_loss",
       .results = Sharing::kFresh,
       .autocast = Autocast::kFull,
       .forward = "torch.nll_loss_forward(self, target, weight, reduction, ignore_index)",
       .backward = "(torch.nll_loss_backward(grad, self, target, weight, reduction, ignore_index, saved_0), None)"},
      {.name = "aten::nll_loss2d",
       .autocast = Autocast::kFull,
       .forward = "torch.nll_loss2d_forward(self, target, weight, reduction, ignore_index)",
       .backward = "(torch.nll_loss2d_backward(grad, self, target, weight, reduction, ignore_index, saved_0), None)"},
      {.name = "aten::nll_loss2d_forward", .results = Sharing::kFresh},
      {.name = "aten::nll_loss_nd",
       .forward = R"(
assert self.dim() == 1 or self.size(0) == target.size(0), str(torch.nll_loss_nd(
    self, target, weight, reduction, ignore_index))
if self.dim() == 4:
    loss, total = torch.nll_loss2d_forward(self, target, weight, reduction, ignore_index)
else:
    loss, total = torch.nll_loss_forward(self, target, weight, reduction, ignore_index)
return (loss, total)
)",
       .backward = R"(
if self.dim() == 4:
    of_self = torch.nll_loss2d_backward(grad, self, target, weight, reduction, ignore_index, saved_0)
else:
    of_self = torch.nll_loss_backward(grad, self, target, weight, reduction, ignore_index, saved_0)
return (of_self, None)
)",
       .differentiable_if = "self.dim() == 1 or (self.dim() == 2 or self.dim() == 4) and target.dim() == self.dim() - 1"},
      {.name = "aten::smooth_l1_loss", .autocast = Autocast::kFull, .backward = R"(
of_self = torch.smooth_l1_loss_backward(grad, self, target, reduction, beta)
return (of_self, torch.smooth_l1_loss_backward(grad, target, self, reduction, beta))
)"},
      {.name = "aten::soft_margin_loss",
       .autocast = Autocast::kFull,
       .backward = "(torch.soft_margin_loss_backward(grad, self, target, reduction), None)"},
      {.name = "aten::triplet_margin_loss", .autocast = Autocast::kFull},
  };
  return rows;
}

}  // namespace sconce
