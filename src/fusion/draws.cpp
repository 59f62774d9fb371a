#include "fusion/draws.h"

#include "ir/constant_operands.h"

namespace sconce {

bool may_draw_by_kernel(const Node& node) {
  if (node.kind() != aten::native_dropout || node.schema() == nullptr || node.op().runs_under_autocast) {
    return false;
  }
  const TensorFacts* facts = node.input(0)->facts();
  const c10::IValue* p = node.input(1)->constant();
  const c10::IValue* train = node.input(2)->constant();
  const bool trains = train != nullptr && (train->isNone() || (train->isBool() && train->toBool()));
  return facts != nullptr && facts->device && facts->device->is_cuda() && trains && p != nullptr && p->isDouble() &&
         p->toDouble() >= 0 && p->toDouble() < 1;
}

}  // namespace sconce
