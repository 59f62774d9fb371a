#include "autodiff/rules/record_gradient.h"

#include "autodiff/rules/check_gradient.h"
#include "autodiff/rules/generalize.h"
#include "autodiff/rules/gradient_trace.h"
#include "base/assert.h"
#include "base/exception_message.h"
#include "ir/schema_match.h"
#include "ir/text/print.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

namespace sconce {
namespace {

std::string why_unsuitable(const Op& op) {
  if (op.schema == nullptr || op.registered == nullptr || !op.dispatched) {
    return "it is not of LibTorch's dispatcher";
  }
  if (op.all_effects.any() || op.reads_state || op.schema->is_mutable()) {
    return op.all_effects.random ? "it draws random numbers" : "it has effects";
  }
  const auto& results = op.schema->returns();
  const bool has_tensors = !results.empty() && std::all_of(results.begin(), results.end(), [](const c10::Argument& result) {
    return result.type()->kind() == c10::TypeKind::TensorType;
  });
  return has_tensors ? "" : "its results are not tensors";
}

std::vector<bool> required_of(const CallPattern& pattern) {
  std::vector<bool> required;
  for (const ArgumentPattern& argument : pattern.arguments) {
    required.push_back(argument.requires_grad);
  }
  return required;
}

// ---- one graph for all sizes ----------------------------------------------------------------------------------------

// Where a number is looked for first. Forward need not save the sizes of incoming gradients. Operands that are broadcast
// have other sizes, which may be the right ones.
enum class First : uint8_t { kGradients, kArguments };

std::vector<SizeSource> size_sources(const CallPattern& pattern, const ExampleCalls& examples, const GradientTrace& a,
                                     const GradientTrace& b, First first) {
  std::vector<SizeSource> sources;
  const auto add = [&](size_t input, const std::vector<int64_t>& of_a, const std::vector<int64_t>& of_b) {
    for (size_t dim = 0; dim < of_a.size(); ++dim) {
      if (of_a[dim] != of_b[dim]) {
        sources.push_back({input, static_cast<int64_t>(dim), of_a[dim], of_b[dim]});
      }
    }
  };
  const size_t arguments = pattern.arguments.size();
  const auto add_gradients = [&] {
    for (size_t i = 0; i < a.result_sizes.size(); ++i) {
      add(arguments + a.result_sizes.size() + i, a.result_sizes[i], b.result_sizes[i]);
    }
  };
  if (first == First::kGradients) {
    add_gradients();
  }
  for (size_t i = 0; i < arguments; ++i) {
    add(i, examples.sizes(0)[i], examples.sizes(1)[i]);
  }
  if (first == First::kArguments) {
    add_gradients();
  }
  return sources;
}

bool have_equal_ranks(const GradientTrace& a, const GradientTrace& b) {
  return std::equal(a.result_sizes.begin(), a.result_sizes.end(), b.result_sizes.begin(), b.result_sizes.end(),
                    [](const auto& x, const auto& y) { return x.size() == y.size(); });
}

Expected<GradientTrace> general_trace(const CallPattern& pattern, const ExampleCalls& examples, bool create_graph,
                                      First first) {
  const std::vector<bool> required = required_of(pattern);
  Expected<GradientTrace> a = trace_gradient(*pattern.op, examples.arguments(examples.sizes(0)), required, create_graph);
  Expected<GradientTrace> b = trace_gradient(*pattern.op, examples.arguments(examples.sizes(1)), required, create_graph);
  if (!a || !b) {
    return a ? b.refusal() : a.refusal();
  }
  if (a->positions != b->positions || !have_equal_ranks(*a, *b) ||
      !generalize(*a->graph, *b->graph, size_sources(pattern, examples, *a, *b, first))) {
    return Refusal::because("its gradient depends on sizes in more than numbers");
  }
  return a;
}

// ---- OpGradient -----------------------------------------------------------------------------------------------------

Value* insert(Graph& graph, c10::Symbol kind, c10::ArrayRef<Value*> operands, const c10::TypePtr& type) {
  Node* node = graph.create(kind, operands, 0);
  Value* result = node->add_output(type);
  node->append_to(graph.body());
  SCONCE_ASSERT(resolve(*node), kind.toQualString());
  return result;
}

// Where autograd records backward, `differentiable` runs.
std::vector<Value*> insert_entries(Graph& graph, const Graph& plain, const Graph& differentiable) {
  const auto values_for = [&](const Graph& source) {
    ValueMap values;
    for (size_t i = 0; i < source.inputs().size(); ++i) {
      values[source.inputs()[i]] = graph.inputs()[i];
    }
    return values;
  };
  if (const std::string text = print(plain); text == print(differentiable) && text.find("<Tensor") == std::string::npos) {
    ValueMap values = values_for(plain);
    return graph.copy_nodes(plain.body(), graph.body().return_node(), values);
  }
  Node* branch = graph.create(prim::If, {graph.inputs().back()}, 0);
  for (const Graph* source : {&differentiable, &plain}) {
    Block* block = branch->add_block();
    ValueMap values = values_for(*source);
    for (Value* entry : graph.copy_nodes(source->body(), block->return_node(), values)) {
      block->add_return(entry);
    }
  }
  branch->append_to(graph.body());
  std::vector<Value*> entries;
  for (size_t i = 0; i < plain.outputs().size(); ++i) {
    entries.push_back(branch->add_output(c10::TensorType::get()));
  }
  return entries;
}

// Whether gradients are summed to the sizes of operands, which may be broadcast in calls that were not recorded.
enum class Sums : uint8_t { kNone, kToOperands };

std::unique_ptr<Graph> backward_of(const CallPattern& pattern, const GradientTrace& plain,
                                   const GradientTrace& differentiable, Sums sums) {
  auto graph = std::make_unique<Graph>();
  for (const Value* input : plain.graph->inputs()) {
    graph->add_input(input->name(), input->type());
  }
  const std::vector<Value*> entries = insert_entries(*graph, *plain.graph, *differentiable.graph);
  std::vector<Value*> all;
  std::vector<c10::TypePtr> types;
  for (size_t i = 0; i < pattern.arguments.size(); ++i) {
    const auto found = std::find(plain.positions.begin(), plain.positions.end(), i);
    if (found == plain.positions.end()) {
      all.push_back(graph->insert_constant({}, graph->body().return_node()));
    } else {
      Value* entry = entries[static_cast<size_t>(found - plain.positions.begin())];
      if (sums == Sums::kToOperands) {
        Value* sizes = insert(*graph, aten::size, {graph->inputs()[i]}, c10::ListType::ofInts());
        entry = insert(*graph, c10::Symbol::fromQualString("aten::sum_to_size"), {entry, sizes}, c10::TensorType::get());
      }
      all.push_back(entry);
    }
    types.push_back(all.back()->type());
  }
  Node* tuple = graph->create(prim::TupleConstruct, all, 0);
  graph->add_output(tuple->append_to(graph->body())->add_output(c10::TupleType::create(types)));
  return graph;
}

// ---- checks ---------------------------------------------------------------------------------------------------------

// Returns the argument with equal elements along its first dimension, which all are one element of memory.
c10::IValue expanded(const c10::IValue& argument) {
  if (!argument.isTensor() || !argument.toTensor().defined() || argument.toTensor().dim() == 0) {
    return argument;
  }
  const at::Tensor tensor = argument.toTensor();
  return tensor.size(0) == 0 ? tensor : tensor.slice(0, 0, 1).expand(tensor.sizes());
}

// Returns the argument with its first and last dimension stored the other way round, or every second element of a vector.
c10::IValue in_other_strides(const c10::IValue& argument) {
  if (!argument.isTensor() || !argument.toTensor().defined() || argument.toTensor().dim() == 0) {
    return argument;
  }
  const at::Tensor tensor = argument.toTensor();
  return tensor.dim() == 1 ? tensor.repeat_interleave(2).slice(0, 0, std::nullopt, 2)
                           : tensor.transpose(0, -1).contiguous().transpose(0, -1);
}

std::string why_wrong(const CallPattern& pattern, const ExampleCalls& examples, const Graph& backward) {
  const std::vector<bool> required = required_of(pattern);
  std::vector<std::vector<c10::IValue>> calls;
  for (const size_t number : {size_t{2}, size_t{1}}) {
    calls.push_back(examples.arguments(examples.sizes(number)));
  }
  for (const auto& change : {in_other_strides, expanded}) {
    std::vector<c10::IValue> changed = calls[0];
    std::transform(changed.begin(), changed.end(), changed.begin(), change);
    calls.push_back(std::move(changed));
  }
  for (const ExampleCalls::Sizes& edge : examples.edges()) {
    calls.push_back(examples.arguments(edge));
  }
  for (const std::vector<c10::IValue>& arguments : calls) {
    if (std::string reason = difference_from_autograd(*pattern.op, backward, arguments, required); !reason.empty()) {
      return reason;
    }
  }
  return {};
}

bool has_complex_operand(const CallPattern& pattern) {
  return std::any_of(pattern.arguments.begin(), pattern.arguments.end(),
                     [](const ArgumentPattern& argument) { return argument.dtype && c10::isComplexType(*argument.dtype); });
}

RecordedGradient record(const CallPattern& pattern) {
  if (std::string reason = why_unsuitable(*pattern.op); !reason.empty()) {
    return {{}, std::move(reason)};
  }
  if (has_complex_operand(pattern)) {
    return {{}, "an operand is complex"};
  }
  const std::optional<ExampleCalls> examples = ExampleCalls::find(pattern);
  if (!examples) {
    return {{}, "no sizes were found that it takes"};
  }
  std::string reason;
  for (const auto& [first, sums] : {std::pair(First::kGradients, Sums::kNone), std::pair(First::kArguments, Sums::kNone),
                                    std::pair(First::kGradients, Sums::kToOperands)}) {
    const Expected<GradientTrace> plain = general_trace(pattern, *examples, /*create_graph=*/false, first);
    if (!plain) {
      return {{}, plain.refusal().reason};
    }
    const Expected<GradientTrace> differentiable = general_trace(pattern, *examples, /*create_graph=*/true, first);
    if (!differentiable) {
      return {{}, differentiable.refusal().reason};
    }
    if (plain->positions != differentiable->positions) {
      return {{}, "its gradients depend on whether backward is differentiated"};
    }
    std::unique_ptr<Graph> backward = backward_of(pattern, *plain, *differentiable, sums);
    reason = why_wrong(pattern, *examples, *backward);
    if (reason.empty()) {
      RecordedGradient recorded;
      recorded.gradient.backward = std::move(backward);
      return recorded;
    }
  }
  return {{}, std::move(reason)};
}

// ---- the thread -----------------------------------------------------------------------------------------------------

class Silence final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

// Records on a thread of its own, whose modes, tracers, hooks and profilers are those of a new thread.
RecordedGradient record_undisturbed(const CallPattern& pattern) {
  RecordedGradient recorded;
  std::thread([&] {
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard warnings(&silence);
    try {
      recorded = record(pattern);
    } catch (const std::exception& error) {
      recorded.refusal = message_of(error);
    }
  }).join();
  return recorded;
}

// By the keys of patterns. Entries stay. If two threads record one at once, both get the first.
class RecordedGradients {
 public:
  const RecordedGradient* find(const std::string& key) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : found->second.get();
  }

  const RecordedGradient& add(const std::string& key, RecordedGradient recorded) {
    auto made = std::make_unique<const RecordedGradient>(std::move(recorded));
    const std::lock_guard<std::mutex> lock(mutex_);
    return *entries_.emplace(key, std::move(made)).first->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<const RecordedGradient>> entries_;
};

RecordedGradients& recorded_gradients() {
  static auto& all = *new RecordedGradients();
  return all;
}

}  // namespace

const RecordedGradient& record_gradient(const CallPattern& pattern) {
  const std::string key = pattern.key();
  if (const RecordedGradient* found = recorded_gradients().find(key)) {
    return *found;
  }
  return recorded_gradients().add(key, record_undisturbed(pattern));
}

const RecordedGradient& recorded_gradient(const std::string& key) {
  const RecordedGradient* found = recorded_gradients().find(key);
  SCONCE_ASSERT(found != nullptr && found->refusal.empty(), "no gradient was recorded for ", key);
  return *found;
}

}  // namespace sconce
