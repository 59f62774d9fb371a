#include "analysis/list_writes.h"

#include "analysis/alias_sets.h"
#include "analysis/effects.h"
#include "ops/schema_corrections.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <unordered_map>

namespace sconce {
namespace {

bool is_list(const Value& value) { return value.type()->kind() == c10::TypeKind::ListType; }

}  // namespace

ListWrite list_write_of(const Node& node) {
  if (node.schema() == nullptr || node.inputs().empty() || !is_list(*node.input(0)) || node.schema()->is_vararg() ||
      !writes_argument(*node.schema(), 0)) {
    return ListWrite::kNone;
  }
  static const std::unordered_map<c10::Symbol, ListWrite> writes = {
      {aten::append, ListWrite::kAppend}, {c10::Symbol::fromQualString("aten::extend"), ListWrite::kExtend},
      {aten::add_, ListWrite::kExtend},   {aten::insert, ListWrite::kInsert},
      {aten::_set_item, ListWrite::kSet}, {aten::pop, ListWrite::kRemove},
      {aten::Delete, ListWrite::kRemove}, {c10::Symbol::fromQualString("aten::reverse"), ListWrite::kReverse},
      {aten::clear, ListWrite::kClear},
  };
  const auto found = writes.find(node.kind());
  return found == writes.end() ? ListWrite::kNone : found->second;
}

bool only_reads_list(const Node& node, size_t index) {
  // A list cannot hide in a tensor or number.
  const bool produces_no_lists = std::all_of(node.outputs().begin(), node.outputs().end(), [](const Value* output) {
    return output->type()->kind() == c10::TypeKind::TensorType || !holds_memory(output->type());
  });
  if (!produces_no_lists || node.kind() == aten::__is__ || node.kind() == aten::__isnot__) {
    return false;
  }
  if (node.kind() == prim::ListUnpack) {
    return true;
  }
  if (node.schema() == nullptr || effects_of(node).unknown || index >= node.schema()->arguments().size()) {
    return false;
  }
  // It may put the list into a container that it writes.
  const size_t formals = std::min(node.schema()->arguments().size(), node.inputs().size());
  for (size_t i = 0; i < formals; ++i) {
    const bool is_container = node.input(i)->type()->kind() != c10::TypeKind::TensorType;
    if (writes_argument(*node.schema(), i) && (i == index || is_container)) {
      return false;
    }
  }
  return true;
}

}  // namespace sconce
