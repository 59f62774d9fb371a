#include "tests/support/work_counter.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_indices.h>
#include <ATen/ops/_values.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <vector>

namespace sconce::testing {
namespace {

size_t bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return 0;
  }
  if (tensor.is_sparse()) {
    return bytes_of(tensor._indices()) + bytes_of(tensor._values());
  }
  size_t bytes = tensor.itemsize();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    const bool repeats = tensor.layout() == c10::kStrided && tensor.stride(dim) == 0 && tensor.size(dim) != 0;
    bytes *= repeats ? 1 : static_cast<size_t>(tensor.size(dim));
  }
  return bytes;
}

// A tensor that an operator was given or gave.
struct Held {
  at::Tensor tensor;
  bool is_written = false;  // in place
  bool is_read = true;
};

void add_tensors(const c10::IValue& value, bool is_written, bool is_read, std::vector<Held>& held) {
  if (value.isTensor()) {
    held.push_back({value.toTensor(), is_written, is_read});
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      add_tensors(element, is_written, is_read, held);
    }
  }
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() &&
         (a.is_same(b) || (a.has_storage() && b.has_storage() && a.storage().is_alias_of(b.storage())));
}

struct OperandsOfCall : at::ObserverContext {
  bool is_outermost = false;
  std::vector<Held> operands;
  std::optional<size_t> results;
};

// The whole stack is shown; the operator's own values are the last. Nothing: as many as there are.
c10::ArrayRef<const c10::IValue> last(c10::ArrayRef<const c10::IValue> stack, std::optional<size_t> count) {
  return stack.slice(stack.size() - std::min(stack.size(), count.value_or(stack.size())));
}

size_t bytes_moved(const std::vector<Held>& operands, const std::vector<Held>& results) {
  size_t written = 0;
  bool moves = results.empty();  // what gives no tensors has looked at the operands
  for (const Held& operand : operands) {
    written += operand.is_written ? bytes_of(operand.tensor) : 0;
    moves = moves || operand.is_written;
  }
  for (const Held& result : results) {
    const bool is_new = std::none_of(operands.begin(), operands.end(),
                                     [&](const Held& each) { return share_memory(each.tensor, result.tensor); });
    written += is_new ? bytes_of(result.tensor) : 0;
    moves = moves || is_new;
  }
  size_t read = 0;
  for (const Held& operand : operands) {
    read += operand.is_read ? bytes_of(operand.tensor) : 0;
  }
  return moves ? read + written : 0;
}

// Callbacks are plain functions: what they count into is the process's.
std::mutex mutex;
Work* counted = nullptr;
thread_local size_t depth = 0;

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  auto context = std::make_unique<OperandsOfCall>();
  context->is_outermost = depth++ == 0;
  if (context->is_outermost) {
    const auto schema = function.operator_schema();
    const bool is_fixed = schema && !schema->is_vararg() && !schema->is_varret();
    const auto operands = last(function.inputs(), is_fixed ? std::optional(schema->arguments().size()) : std::nullopt);
    context->results = is_fixed ? std::optional(schema->returns().size()) : std::nullopt;
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool is_declared = schema && i < schema->arguments().size();
      const auto* alias = is_declared ? schema->arguments()[i].alias_info() : nullptr;
      const bool is_read = !is_declared || !schema->arguments()[i].is_out();
      add_tensors(operands[i], alias != nullptr && alias->isWrite(), is_read, context->operands);
    }
  }
  return context;
}

void leave(const at::RecordFunction& function, at::ObserverContext* context) {
  --depth;
  const auto& call = static_cast<const OperandsOfCall&>(*context);
  if (!call.is_outermost) {
    return;
  }
  const at::DisableRecordFunctionGuard not_ours;
  std::vector<Held> results;
  const c10::ArrayRef<const c10::IValue> stack(function.outputs().data(), function.outputs().size());
  for (const c10::IValue& result : last(stack, call.results)) {
    add_tensors(result, false, false, results);
  }
  const std::lock_guard<std::mutex> lock(mutex);
  Work::OfOperator& work = counted->by_operator[function.name()];
  ++work.executions;
  work.bytes += bytes_moved(call.operands, results);
}

// ---- operators of the interpreter ------------------------------------------------------------------------------------

// Their recorded variants do the same and are recorded.
constexpr const char* kRecorded = "sconce_tests::";

torch::jit::Operation recorded(const c10::FunctionSchema& schema, torch::jit::Operation operation) {
  return [schema, operation = std::move(operation)](torch::jit::Stack& stack) mutable {
    at::RecordFunction record(at::RecordScope::FUNCTION);
    if (record.isActive()) {
      const size_t count = schema.arguments().size();
      record.before(std::cref(schema), c10::ArrayRef<const c10::IValue>(stack.data() + stack.size() - count, count));
    }
    operation(stack);
    if (record.isActive()) {
      record.setOutputs(std::vector<c10::IValue>{stack.back()});
    }
  };
}

// Made for a node, whose attributes some operators read.
torch::jit::Operation recorded_variant(const torch::jit::Node* node) {
  const auto op = torch::jit::getAllOperatorsFor(c10::Symbol::prim(node->kind().toUnqualString())).front();
  return recorded(op->schema(), op->getOperation(node));
}

// The symbols of the recorded variants, by those of the operators.
std::map<c10::Symbol, c10::Symbol> register_recorded_variants() {
  std::map<c10::Symbol, c10::Symbol> variants;
  for (const char* name : {"mkldnn_convolution", "MKLDNNHardSwish", "MKLDNNHardSwish_", "MKLDNNHardSigmoid",
                           "MKLDNNHardSigmoid_", "MKLDNNHardTanh", "MKLDNNHardTanh_", "MKLDNNClamp", "MKLDNNClamp_",
                           "MKLDNNLayerNorm", "MKLDNNLayerNorm_", "MKLDNNScalarMul", "MKLDNNScalarMul_"}) {
    const c10::Symbol kind = c10::Symbol::prim(name);
    const auto operators = torch::jit::getAllOperatorsFor(kind);
    TORCH_CHECK(operators.size() == 1, name, " is not one operator");
    std::ostringstream schema;
    schema << operators.front()->schema();
    const std::string variant = kRecorded + std::string(name);
    torch::jit::registerOperator(torch::jit::Operator(variant + schema.str().substr(schema.str().find('(')),
                                                      recorded_variant, c10::AliasAnalysisKind::FROM_SCHEMA));
    variants.emplace(kind, c10::Symbol::fromQualString(variant));
  }
  return variants;
}

void record_kernels(torch::jit::Block& block) {
  static const auto variants = register_recorded_variants();
  for (auto it = block.nodes().begin(); it != block.nodes().end();) {
    torch::jit::Node* const node = *it++;
    if (const auto variant = variants.find(node->kind()); variant != variants.end()) {
      node->replaceWithNewSymbol(variant->second);
      node->destroy();
      continue;
    }
    for (torch::jit::Block* nested : node->blocks()) {
      record_kernels(*nested);
    }
  }
}

}  // namespace

size_t Work::operators() const {
  return std::transform_reduce(by_operator.begin(), by_operator.end(), size_t{0}, std::plus<>(),
                               [](const auto& entry) { return entry.second.executions; });
}

size_t Work::bytes() const {
  return std::transform_reduce(by_operator.begin(), by_operator.end(), size_t{0}, std::plus<>(),
                               [](const auto& entry) { return entry.second.bytes; });
}

void Work::operator+=(const Work& other) {
  for (const auto& [name, work] : other.by_operator) {
    by_operator[name].executions += work.executions;
    by_operator[name].bytes += work.bytes;
  }
}

void record_kernels_of_interpreter(torch::jit::Graph& graph) { record_kernels(*graph.block()); }

Work count_work(const std::function<void()>& call) {
  Work work;
  counted = &work;
  const at::CallbackHandle handle = at::addGlobalCallback(
      at::RecordFunctionCallback(enter, leave).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
  // However the call ends.
  const std::unique_ptr<const at::CallbackHandle, void (*)(const at::CallbackHandle*)> until_here(
      &handle, [](const at::CallbackHandle* added) { at::removeCallback(*added); });
  call();
  return work;
}

}  // namespace sconce::testing
