#include "training/backward/node_interface.h"

#include "base/assert.h"

#include <exception>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

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
    TORCH_CHECK(found != functions_.end(), name,
                " was not bound; another compiler of backward has recorded in this process");
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

class NodeInterface final : public dynamo::PyCompilerInterface {
 public:
  explicit NodeInterface(bool& has_raised) : has_raised_(has_raised) {}

  std::string bind_function(PyObject* /*compiler*/, const std::string& name, functional_apply_t function,
                            std::vector<at::TypePtr> /*schema*/, bool /*is_custom_function*/,
                            bool /*is_traceable*/) const override {
    bound_functions().bind(name, std::move(function));
    return name;
  }

  variable_list call_function(PyObject* /*compiler*/, const char* /*method*/, const std::string& name,
                              const variable_list& gradients, const std::vector<c10::IValue>& arguments,
                              const c10::IValue& metadata) const override {
    const functional_apply_t formula = bound_functions().find(name);
    try {
      return formula(gradients, arguments);
    } catch (const std::exception&) {
      has_raised_ = true;
      return variable_list(metadata.isList() ? metadata.toListRef().size() : 0);
    }
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

  // The gradient that flowed through the write replaces the view's part.
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
    SCONCE_ASSERT(false, "leaves are not recorded");
  }

 private:
  bool& has_raised_;
};

}  // namespace

std::unique_ptr<dynamo::PyCompilerInterface> make_node_interface(bool& has_raised) {
  return std::make_unique<NodeInterface>(has_raised);
}

}  // namespace sconce
