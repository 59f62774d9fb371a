#include "ops/op_table.h"

#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <unordered_map>

namespace sconce {
namespace {

// Gradients of operands that were broadcast are summed to the operand's size by the differentiation pass, not here.
const std::vector<OpRow>& rows() {
  static const std::vector<OpRow> table = {
      // ---- arithmetic
      {.schema = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
       .primitive = Primitive::kAdd,
       .grads = {{"self", "grad"}, {"other", "grad * alpha"}}},
      {.schema = "aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
       .primitive = Primitive::kSub,
       .grads = {{"self", "grad"}, {"other", "torch.neg(grad) * alpha"}}},
      {.schema = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor",
       .primitive = Primitive::kMul,
       .grads = {{"self", "grad * other"}, {"other", "grad * self"}}},
      {.schema = "aten::div.Tensor(Tensor self, Tensor other) -> Tensor",
       .primitive = Primitive::kDiv,
       .grads = {{"self", "grad / other"}, {"other", "torch.neg(grad) * ((self / other) / other)"}}},
      {.schema = "aten::neg(Tensor self) -> Tensor", .primitive = Primitive::kNeg, .grads = {{"self", "torch.neg(grad)"}}},
      {.schema = "aten::abs(Tensor self) -> Tensor",
       .primitive = Primitive::kAbs,
       .grads = {{"self", "grad * torch.sign(self)"}}},
      {.schema = "aten::reciprocal(Tensor self) -> Tensor",
       .primitive = Primitive::kReciprocal,
       .grads = {{"self", "torch.neg(grad) * result * result"}}},
      {.schema = "aten::maximum(Tensor self, Tensor other) -> Tensor",
       .primitive = Primitive::kMaximum,
       .grads = {{"self", "torch.where(self == other, grad / 2, torch.where(self > other, grad, torch.zeros_like(grad)))"},
                 {"other",
                  "torch.where(self == other, grad / 2, torch.where(self < other, grad, torch.zeros_like(grad)))"}}},
      {.schema = "aten::minimum(Tensor self, Tensor other) -> Tensor",
       .primitive = Primitive::kMinimum,
       .grads = {{"self", "torch.where(self == other, grad / 2, torch.where(self < other, grad, torch.zeros_like(grad)))"},
                 {"other",
                  "torch.where(self == other, grad / 2, torch.where(self > other, grad, torch.zeros_like(grad)))"}}},
      {.schema = "aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
       .body = "self + (tensor1 * tensor2) * value",
       .grads = {{"self", "grad"}, {"tensor1", "grad * tensor2 * value"}, {"tensor2", "grad * tensor1 * value"}}},
      // ---- elementary functions
      {.schema = "aten::exp(Tensor self) -> Tensor", .primitive = Primitive::kExp, .grads = {{"self", "grad * result"}}},
      {.schema = "aten::log(Tensor self) -> Tensor", .primitive = Primitive::kLog, .grads = {{"self", "grad / self"}}},
      {.schema = "aten::tanh(Tensor self) -> Tensor",
       .primitive = Primitive::kTanh,
       .grads = {{"self", "grad * (1 - result * result)"}}},
      {.schema = "aten::sqrt(Tensor self) -> Tensor",
       .primitive = Primitive::kSqrt,
       .grads = {{"self", "grad / (2 * result)"}}},
      {.schema = "aten::rsqrt(Tensor self) -> Tensor",
       .body = "torch.reciprocal(torch.sqrt(self))",
       .grads = {{"self", "-0.5 * grad * (result * result * result)"}}},
      {.schema = "aten::sin(Tensor self) -> Tensor",
       .primitive = Primitive::kSin,
       .grads = {{"self", "grad * torch.cos(self)"}}},
      {.schema = "aten::cos(Tensor self) -> Tensor",
       .primitive = Primitive::kCos,
       .grads = {{"self", "torch.neg(grad) * torch.sin(self)"}}},
      {.schema = "aten::erf(Tensor self) -> Tensor",
       .primitive = Primitive::kErf,
       .grads = {{"self", "grad * 1.1283791670955126 * torch.exp(torch.neg(self * self))"}}},
      {.schema = "aten::square(Tensor self) -> Tensor", .body = "self * self", .grads = {{"self", "grad * 2 * self"}}},
      // ---- activations
      {.schema = "aten::relu(Tensor self) -> Tensor",
       .body = "torch.maximum(self, torch.zeros_like(self))",
       .grads = {{"self", "torch.where(result > 0, grad, torch.zeros_like(grad))"}}},
      {.schema = "aten::sigmoid(Tensor self) -> Tensor",
       .body = "torch.reciprocal(1 + torch.exp(torch.neg(self)))",
       .grads = {{"self", "grad * (result * (1 - result))"}}},
      {.schema = "aten::silu(Tensor self) -> Tensor",
       .body = "self * torch.sigmoid(self)",
       .grads = {{"self", "grad * torch.sigmoid(self) * (1 + self * (1 - torch.sigmoid(self)))"}}},
      {.schema = "aten::hardswish(Tensor self) -> Tensor",
       .body = "self * torch.clamp(self + 3, 0, 6) / 6",
       .grads = {{"self",
                  "torch.where(self <= -3, torch.zeros_like(grad), torch.where(self < 3, grad * (self / 3 + 0.5), grad))"}}},
      {.schema = "aten::hardsigmoid(Tensor self) -> Tensor",
       .body = "torch.clamp(self + 3, 0, 6) / 6",
       .grads = {{"self", "torch.where((self > -3) & (self < 3), grad / 6, torch.zeros_like(grad))"}}},
      {.schema = "aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
       .body = "torch.where(self > 0, self, self * negative_slope)",
       .grads = {{"self", "torch.where(self > 0, grad, grad * negative_slope)"}}},
      // ---- selection
      {.schema = "aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor",
       .primitive = Primitive::kWhere,
       .grads = {{"self", "torch.where(condition, grad, torch.zeros_like(grad))"},
                 {"other", "torch.where(condition, torch.zeros_like(grad), grad)"}}},
      {.schema = "aten::eq.Tensor(Tensor self, Tensor other) -> Tensor", .primitive = Primitive::kEqual},
      {.schema = "aten::lt.Tensor(Tensor self, Tensor other) -> Tensor", .primitive = Primitive::kLess},
      {.schema = "aten::gt.Tensor(Tensor self, Tensor other) -> Tensor", .primitive = Primitive::kGreater},
      {.schema = "aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor",
       .body = "torch.where(mask, torch.full_like(self, value), self)",
       .grads = {{"self", "torch.where(mask, torch.zeros_like(grad), grad)"}}},
      // ---- matrix products
      {.schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor",
       .grads = {{"self", "torch.mm(grad, mat2.t())"}, {"mat2", "torch.mm(self.t(), grad)"}}},
      {.schema = "aten::t(Tensor(a) self) -> Tensor(a)", .grads = {{"self", "grad.t()"}}},
  };
  return table;
}

}  // namespace

std::span<const OpRow> op_table() { return rows(); }

const OpRow* find_op_row(const c10::FunctionSchema& schema) {
  static const auto by_name = [] {
    std::unordered_map<c10::OperatorName, const OpRow*> map;
    for (const OpRow& row : rows()) {
      map.emplace(torch::jit::parseSchema(std::string(row.schema)).operator_name(), &row);
    }
    return map;
  }();
  const auto found = by_name.find(schema.operator_name());
  return found == by_name.end() ? nullptr : found->second;
}

}  // namespace sconce
