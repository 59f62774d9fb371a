#include "fusion/program/channels.h"

namespace sconce {

bool is_of_channels(const Op& op, size_t index) { return op.opcode == Opcode::kBatchNorm && index >= 1 && index <= 4; }

std::optional<Element> write_batch_norm(Writing& w) {
  const c10::ScalarType dtype = w[0].value.type;
  const auto is_like_input = [&](size_t i) { return w.is_tensor(i) && w[i].value.type == dtype; };
  const auto& training = w[5].constant;
  if (!c10::isFloatingType(dtype) || c10::isReducedFloatingType(dtype) || !training.isBool() || training.toBool() ||
      !w.is_number(7) || !is_like_input(0) || !is_like_input(3) || !is_like_input(4) ||
      !(w.is_none(1) || is_like_input(1)) || !(w.is_none(2) || is_like_input(2))) {
    return std::nullopt;
  }
  w.b.set_may_round();
  // As LibTorch: input * alpha + beta, with one alpha and one beta for each channel.
  const auto apply = [&](MachineOp op, Element a, Element b) { return w.b.apply(op, a, b); };
  const Element deviation = w.b.apply(MachineOp::kSqrt, apply(MachineOp::kAdd, w.as(4, dtype), w.as(7, dtype)));
  Element alpha = apply(MachineOp::kDiv, w.literal(1, deviation), deviation);
  if (w.is_tensor(1)) {
    alpha = apply(MachineOp::kMul, alpha, w.as(1, dtype));
  }
  const Element shift = apply(MachineOp::kMul, w.as(3, dtype), alpha);
  const Element beta = w.is_tensor(2) ? apply(MachineOp::kSub, w.as(2, dtype), shift) : w.b.apply(MachineOp::kNeg, shift);
  return apply(MachineOp::kAdd, apply(MachineOp::kMul, w.as(0, dtype), alpha), beta);
}

}  // namespace sconce
