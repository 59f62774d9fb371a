#include "fusion/program/channels.h"

namespace sconce {

bool is_of_channels(const Op& op, size_t index) { return op.opcode == Opcode::kBatchNorm && index >= 1 && index <= 4; }

std::optional<Element> write_batch_norm(RuleArguments& args) {
  const c10::ScalarType dtype = args[0].value.type;
  const auto is_like_input = [&](size_t i) { return args.is_tensor(i) && args[i].value.type == dtype; };
  const auto& training = args[5].constant;
  if (!c10::isFloatingType(dtype) || c10::isReducedFloatingType(dtype) || !training.isBool() || training.toBool() ||
      !args.is_number(7) || !is_like_input(0) || !is_like_input(3) || !is_like_input(4) ||
      !(args.is_none(1) || is_like_input(1)) || !(args.is_none(2) || is_like_input(2))) {
    return std::nullopt;
  }
  args.b.set_may_differ();
  // As LibTorch: input * alpha + beta, with one alpha and one beta for each channel.
  const auto apply = [&](MachineOp op, Element a, Element b) { return args.b.apply(op, a, b); };
  const Element deviation = args.b.apply(MachineOp::kSqrt, apply(MachineOp::kAdd, args.as(4, dtype), args.as(7, dtype)));
  Element alpha = apply(MachineOp::kDiv, args.literal(1, deviation), deviation);
  if (args.is_tensor(1)) {
    alpha = apply(MachineOp::kMul, alpha, args.as(1, dtype));
  }
  const Element shift = apply(MachineOp::kMul, args.as(3, dtype), alpha);
  const Element beta =
      args.is_tensor(2) ? apply(MachineOp::kSub, args.as(2, dtype), shift) : args.b.apply(MachineOp::kNeg, shift);
  return apply(MachineOp::kAdd, apply(MachineOp::kMul, args.as(0, dtype), alpha), beta);
}

}  // namespace sconce
