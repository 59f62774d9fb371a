#include "fusion/group/draws.h"

namespace sconce {
namespace {

// Returns whether the operator, with a constant in the place of its third argument, draws from LibTorch's own generator.
bool draws(const Node& node) {
  const c10::IValue* last = node.input(2)->constant();
  return last != nullptr && (last->isNone() || (node.kind() == aten::native_dropout && last->isBool() && last->toBool()));
}

}  // namespace

bool may_draw_by_kernel(const Node& node) {
  const bool is_known = node.schema() != nullptr && !node.op().runs_under_autocast &&
                        (node.kind() == aten::native_dropout ||
                         (node.kind() == aten::bernoulli_ && node.schema()->overload_name() == "float"));
  if (!is_known) {
    return false;
  }
  const TensorFacts* facts = node.input(0)->facts();
  const c10::IValue* p = node.input(1)->constant();
  return facts != nullptr && facts->device && !facts->device->is_cpu() && draws(node) && p != nullptr && p->isDouble() &&
         p->toDouble() >= 0 && p->toDouble() < 1;
}

}  // namespace sconce
