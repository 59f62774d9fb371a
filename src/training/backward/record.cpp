#include "training/backward/record.h"

#include "trace/recorder.h"

#include <ATen/ops/add.h>

#include <mutex>
#include <string>
#include <unordered_map>

namespace sconce {
namespace {

namespace dynamo = torch::dynamo::autograd;
using torch::autograd::functional_apply_t;
using torch::autograd::variable_list;

// A node's class binds its function once in a process, whoever records first.
class BoundFunctions {
 public:
  void bind(const std::string& name, functional_apply_t function) {
    const std::lock_guard<std::mutex> lock(mutex_);
    functions_.insert_or_assign(name, std::move(function));
  }
  functional_apply_t find(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = functions_.find(name);
    TORCH_CHECK(found != functions_.end(), name, " was not bound; another compiler of backward has recorded in this process");
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, functional_apply_t> functions_;
};

BoundFunctions& bound_functions() {
  static auto& functions = *new BoundFunctions();
  return functions;
}

// Called by LibTorch's nodes in place of their own formulas: calls these, so that the recorder sees operators.
class NodeInterface final : public dynamo::PyCompilerInterface {
 public:
  explicit NodeInterface(Recorder& recorder) : recorder_(recorder) {}

  std::string bind_function(PyObject* /*compiler*/, const std::string& name, functional_apply_t function,
                            std::vector<at::TypePtr> /*schema*/, bool is_custom_function, bool is_traceable) const override {
    if (is_custom_function && !is_traceable) {
      recorder_.refuse(name + " is a torch::autograd::Function, whose backward may do what the recorder does not see");
    }
    bound_functions().bind(name, std::move(function));
    return name;
  }

  variable_list call_function(PyObject* /*compiler*/, const char* /*method*/, const std::string& name,
                              const variable_list& gradients, const std::vector<c10::IValue>& arguments,
                              const c10::IValue& /*metadata*/) const override {
    return bound_functions().find(name)(gradients, arguments);
  }

  // The gradient of a tensor of which a view was written: a copy of it, and the view's part of the copy, twice.
  variable_list call_copy_slices_prologue(PyObject* /*compiler*/, const variable_list& gradients,
                                          const at::TensorGeometry& base, const at::TensorGeometry& view) const override {
    const at::Tensor& gradient = gradients.front();
    const at::Tensor result = gradient.new_empty_strided_symint(base.sym_sizes(), base.sym_strides());
    result.copy_(gradient);
    const at::Tensor slice = result.as_strided_symint(view.sym_sizes(), view.sym_strides(),
                                                      view.sym_storage_offset() - base.sym_storage_offset());
    return {result, slice, slice.clone()};
  }

  // What flowed through the write replaces the view's part.
  variable_list call_copy_slices_epilogue(PyObject* /*compiler*/, const std::vector<bool>& needs, const at::Tensor& result,
                                          const variable_list& gradients, const at::Tensor& slice) const override {
    variable_list all(needs.size());
    for (size_t i = 0; i < needs.size(); ++i) {
      if (!needs[i] || !gradients[i].defined()) {
        continue;
      }
      if (i == 0) {
        slice.copy_(gradients[i]);
        all[i] = result;
      } else {
        all[i] = gradients[i];
      }
    }
    return all;
  }

  at::Tensor call_unpack(PyObject* /*compiler*/, std::optional<size_t> /*hook*/, size_t /*input*/) const override {
    TORCH_CHECK(false, "saved tensors with hooks are not recorded");
  }
  void call_accumulate_grad(PyObject* /*compiler*/, const at::Tensor& /*leaf*/, const at::Tensor& /*gradient*/,
                            bool /*has_hooks*/) const override {
    TORCH_INTERNAL_ASSERT(false, "leaves are not recorded");
  }

 private:
  Recorder& recorder_;
};

// Runs the calls of a walk and passes gradients on along their edges.
class BackwardRecorder {
 public:
  explicit BackwardRecorder(BackwardWalk& walk) : walk_(walk) {
    for (const at::Tensor& tensor : walk.tensors()) {
      walk.compiler().tensor_args.lookup(tensor).proxy_tensor = recorder_.add_saved(tensor);
    }
    sizes_.resize(walk.compiler().all_size_inputs.size());
  }

  RecordedBackward run() {
    RecordedBackward recorded;
    {
      // LibTorch has one place for the interface in a process.
      static std::mutex one_at_a_time;
      const std::lock_guard<std::mutex> lock(one_at_a_time);
      const dynamo::PyCompilerGuard guard(std::make_unique<NodeInterface>(recorder_));
      const RecordingScope scope(recorder_);
      dynamo::TraceState state(std::move(sizes_), 0);
      for (size_t i = 0; i < walk_.calls().size(); ++i) {
        run(i, state, recorded);
      }
    }
    if (recorder_.refusal()) {
      recorded.refusal = recorder_.refusal();
    } else if (!recorder_.captured().empty()) {
      recorded.refusal = Refusal::because("a node computes with a tensor that it has not saved");
    } else {
      recorded.graph = recorder_.finish(/*has_facts=*/true);
    }
    return recorded;
  }

 private:
  void run(size_t index, dynamo::TraceState& state, RecordedBackward& recorded) {
    const BackwardCall& call = walk_.calls()[index];
    variable_list inputs = std::move(incoming_[call.node.get()]);
    inputs.resize(call.node->num_inputs());
    for (const BackwardCall::Capture& capture : call.captures) {
      hand_out(inputs[static_cast<size_t>(capture.input)], {false, static_cast<size_t>(capture.output)}, recorded);
    }
    if (!call.is_needed) {
      return;
    }
    if (call.is_leaf) {
      hand_out(inputs.front(), {true, index}, recorded);
      return;
    }
    dynamo::SwapSavedVariables saved(walk_.compiler(), state, nullptr, *call.entry);
    variable_list outputs = call.node->apply_with_saved(inputs, saved);
    saved.before(call.node->next_edges());
    torch::autograd::validate_outputs(call.node->next_edges(), outputs, [&](const std::string& message) {
      return "Function " + call.node->name() + " returned an " + message;
    });
    saved.after(call.node->next_edges());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const torch::autograd::Edge& edge = call.node->next_edge(i);
      if (edge.is_valid() && outputs[i].defined()) {
        pass_on(edge, outputs[i]);
      }
    }
  }

  void pass_on(const torch::autograd::Edge& edge, const at::Tensor& gradient) {
    variable_list& inputs = incoming_[edge.function.get()];
    inputs.resize(edge.function->num_inputs());
    at::Tensor& sum = inputs[edge.input_nr];
    sum = sum.defined() ? at::add(sum, gradient) : gradient;
  }

  void hand_out(const at::Tensor& gradient, GradientTarget target, RecordedBackward& recorded) {
    if (gradient.defined()) {
      recorder_.add_output(gradient);
      recorded.targets.push_back(target);
      // An input is handed out as it is, so that a leaf which takes it copies it.
      const Value* value = recorder_.refusal() ? nullptr : recorder_.value_of(gradient);
      const bool is_input = value != nullptr && value->node() == recorder_.graph().body().param_node();
      recorded.gradients.push_back(is_input ? walk_.tensors()[value->offset()] : real_of(gradient));
    }
  }

  BackwardWalk& walk_;
  Recorder recorder_;
  std::vector<std::optional<c10::SymInt>> sizes_;
  std::unordered_map<torch::autograd::Node*, variable_list> incoming_;
};

}  // namespace

RecordedBackward record_backward(BackwardWalk& walk) { return BackwardRecorder(walk).run(); }

}  // namespace sconce
