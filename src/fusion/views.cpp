#include "fusion/views.h"

#include "ops/op.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <algorithm>
#include <unordered_set>

namespace sconce {
namespace {

// Returns the operator that made the value's view, or the list of views that the value is an element of.
const Node& view_operator(const Value& value) {
  const Node& node = *value.node();
  return node.opcode() == Opcode::kListUnpack ? *node.input(0)->node() : node;
}

// Runs the operator itself on a tensor without memory. Returns nothing if it raises: the operator's own step reports it.
std::vector<View> run_on_meta(const Node& op, const Form& base) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  torch::jit::Stack stack = {at::empty_strided(base.sizes, base.strides, at::TensorOptions().device(at::kMeta))};
  for (size_t i = 1; i < op.inputs().size(); ++i) {
    stack.push_back(*op.input(i)->constant());
  }
  try {
    op.op().dispatched->callBoxed(stack);
  } catch (const c10::Error&) {
    return {};
  }
  const c10::IValue& result = stack.front();
  std::vector<View> views;
  for (const at::Tensor& view : result.isTensor() ? std::vector<at::Tensor>{result.toTensor()} : result.toTensorVector()) {
    views.push_back({form_of(view), view.storage_offset()});
  }
  return views;
}

}  // namespace

bool is_index_view(const Node& node) {
  static const auto* const operators = new std::unordered_set<c10::OperatorName>{
      {"aten::transpose", "int"}, {"aten::t", ""},
      {"aten::permute", ""},      {"aten::unsqueeze", ""},
      {"aten::squeeze", "dim"},   {"aten::expand", ""},
      {"aten::narrow", ""},       {"aten::slice", "Tensor"},
      {"aten::select", "int"},    {"aten::chunk", ""},
      {"aten::split", "Tensor"},  {"aten::unbind", "int"},
      {"aten::detach", ""},       {"aten::split_with_sizes", ""},
      {"aten::contiguous", ""},
  };
  const auto inputs = node.inputs();
  return node.schema() != nullptr && operators->contains(node.schema()->operator_name()) &&
         std::all_of(inputs.begin() + 1, inputs.end(),
                     [](const Value* input) { return input->node()->opcode() == Opcode::kConstant; });
}

const Value* viewed_by(const Value& value) {
  const Node& op = view_operator(value);
  return is_index_view(op) ? op.input(0) : nullptr;
}

bool keeps_elements(const Value& view) { return view.node()->kind() == aten::contiguous; }

std::optional<View> Views::of(const Value& value, const Form& base) {
  const Node& op = view_operator(value);
  auto known =
      std::find_if(known_.begin(), known_.end(), [&](const Known& each) { return each.op == &op && each.base == base; });
  if (known == known_.end()) {
    known_.push_back({&op, base, run_on_meta(op, base)});
    known = known_.end() - 1;
  }
  const auto outputs = value.node()->outputs();
  const auto index = static_cast<size_t>(std::find(outputs.begin(), outputs.end(), &value) - outputs.begin());
  // A list of another length than is unpacked raises.
  return known->views.size() == outputs.size() ? std::optional(known->views[index]) : std::nullopt;
}

}  // namespace sconce
