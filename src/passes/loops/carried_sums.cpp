#include "passes/loops/carried_sums.h"

namespace sconce {

std::vector<CarriedSum> carried_sums(const Node& loop) {
  std::vector<CarriedSum> sums;
  const Block& body = *loop.block(0);
  for (size_t i = 0; i < loop.outputs().size(); ++i) {
    const Value& next = *body.returns()[i + 1];
    const Value* param = body.params()[i + 1];
    const Node& add = *next.node();
    if (loop.input(i + 2)->node()->kind() != prim::AutogradZero || add.kind() != prim::AutogradAdd ||
        add.owning_block() != &body || add.input(0) != param || param->uses().size() != 1 || next.uses().size() != 1) {
      continue;
    }
    const Value& part = *add.input(1);
    if (part.uses().size() == 1 && is_made_in_body(part, loop)) {
      sums.push_back({i, part.node()});
    }
  }
  return sums;
}

bool is_made_in_body(const Value& value, const Node& loop) {
  return value.node()->owning_block() == loop.block(0) && value.node() != loop.block(0)->param_node();
}

}  // namespace sconce
