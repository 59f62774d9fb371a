#include "analysis/memory/memory_source.h"

#include "analysis/effects.h"

#include <algorithm>

namespace sconce {
namespace {

// Views are single results, or lists, or marked in the schema.
bool makes_new_tensors(const Node& node) {
  if (node.outputs().size() == 1) {
    return produces_new_tensor(node);
  }
  return node.op().dispatched && std::ranges::all_of(node.schema()->returns(), [](const c10::Argument& result) {
           return result.alias_info() == nullptr && result.type()->kind() == c10::TypeKind::TensorType;
         });
}

}  // namespace

const Value* source_of_memory(const Value& value) {
  const Node& maker = *value.node();
  const bool may_share = maker.opcode() == Opcode::kListUnpack || maker.opcode() == Opcode::kListConstruct ||
                         (maker.schema() != nullptr && !makes_new_tensors(maker));
  return may_share && !maker.inputs().empty() ? maker.input(0) : nullptr;
}

const Value& base_of_memory(const Value& value) {
  const Value* base = &value;
  while (const Value* source = source_of_memory(*base)) {
    base = source;
  }
  return *base;
}

std::vector<size_t> written_inputs(const Graph& recording) {
  std::vector<size_t> written;
  for_each_node(recording.body(), [&](const Node* node) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (!may_write_operand(*node, i)) {
        continue;
      }
      if (const Value& base = base_of_memory(*node->input(i)); base.node() == recording.body().param_node()) {
        written.push_back(base.offset());
      }
    }
  });
  std::ranges::sort(written);
  written.erase(std::unique(written.begin(), written.end()), written.end());
  return written;
}

}  // namespace sconce
