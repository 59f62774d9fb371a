// How a tracer handles the arguments of the function that it records.
#include "trace/tracer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

using torch::autograd::AccumulateGrad;

torch::autograd::Edge edge_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor) : torch::autograd::Edge();
}

// Has what was computed of a leaf of the trace bring its gradient to the leaf outside that it stands for.
void hand_back_accumulator(const at::Tensor& real, const at::Tensor& traced) {
  namespace impl = torch::autograd::impl;
  if (const auto accumulator = std::dynamic_pointer_cast<AccumulateGrad>(impl::try_get_grad_accumulator(traced))) {
    accumulator->variable = real;
    impl::set_grad_accumulator(real, accumulator);
  }
}

// Returns a view of `base` of the form of `real`, which shares its memory; detached if the trace has it so. Autograd records
// it as it has recorded `traced`, the view in the trace, in whatever grad mode the caller is.
at::Tensor as_view_of(const at::Tensor& base, const at::Tensor& real, const at::Tensor& traced) {
  using torch::autograd::CreationMeta;
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(traced);
  const bool is_view = meta != nullptr && meta->has_bw_view() && !c10::InferenceMode::is_enabled();
  const at::AutoGradMode mode(is_view ? meta->get_creation_meta() != CreationMeta::NO_GRAD_MODE
                                      : c10::GradMode::is_enabled());
  at::Tensor view = base.as_strided(real.sizes(), real.strides(), real.storage_offset());
  return view.requires_grad() && !traced.requires_grad() ? view.detach() : view;
}

}  // namespace

at::Tensor Tracer::add_leaf(const at::Tensor& real, const std::optional<TensorFacts>& symbolic) {
  for (const Argument& argument : arguments_) {
    if (argument.real.is_same(real)) {
      add_input(real, symbolic);  // which nothing reads
      return argument.traced;
    }
  }
  at::Tensor traced = wrap(real.variable_data(), add_input(real, symbolic));
  if (torch::autograd::isDifferentiableType(real.scalar_type())) {
    traced.set_requires_grad(real.requires_grad());
  } else if (real.requires_grad()) {  // some operators make such tensors: z.fill_(y) of integers
    refuse("an argument of type " + std::string(c10::toString(real.scalar_type())) + " requires a gradient");
  }
  arguments_.push_back({real, traced, {}});
  return traced;
}

at::Tensor Tracer::add_argument(const at::Tensor& real, const std::optional<TensorFacts>& symbolic) {
  if (!real.defined()) {
    refuse("an argument is undefined");
    return real;
  }
  for (const Argument& argument : arguments_) {
    if (argument.real.is_same(real)) {
      add_input(real, symbolic);  // which nothing reads
      return argument.traced;
    }
  }
  at::Tensor traced = wrap(real.variable_data(), add_input(real, symbolic));
  if (!real.is_inference()) {
    torch::autograd::impl::set_version_counter(traced, torch::autograd::impl::version_counter(real));
  }
  if (real.is_leaf() && real.grad().defined()) {
    traced.mutable_grad() = real.grad();
  }
  if (real.requires_grad() && real.is_leaf()) {
    traced.set_requires_grad(true);
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(real));
    torch::autograd::impl::set_grad_accumulator(traced, accumulators_.back());
  } else if (real.requires_grad()) {
    torch::autograd::impl::set_gradient_edge(traced, torch::autograd::impl::gradient_edge(real));
  }
  arguments_.push_back({real, traced, edge_of(traced)});
  return traced;
}

std::vector<torch::autograd::Node*> Tracer::argument_nodes() const {
  std::vector<torch::autograd::Node*> nodes;
  for (const Argument& argument : arguments_) {
    if (argument.edge.is_valid()) {
      nodes.push_back(argument.edge.function.get());
    }
  }
  return nodes;
}

// Tensors of the trace, and what stands for them outside of it.
class Tracer::HandedOut {
 public:
  explicit HandedOut(const std::vector<Argument>& arguments) {
    for (const Argument& argument : arguments) {
      pairs_.emplace_back(argument.traced, argument.real);
    }
  }

  at::Tensor of(const at::Tensor& tensor) {
    const auto is_it = [&](const auto& pair) { return pair.first.is_same(tensor); };
    if (const auto found = std::find_if(pairs_.begin(), pairs_.end(), is_it); found != pairs_.end()) {
      return found->second;
    }
    if (TraceTensor::of(tensor) == nullptr) {
      return tensor;
    }
    at::Tensor outside = made_for(tensor);
    if (tensor.retains_grad()) {
      outside.retain_grad();
    }
    pairs_.emplace_back(tensor, outside);
    return outside;
  }

 private:
  at::Tensor made_for(const at::Tensor& tensor) {
    at::Tensor real = TraceTensor::of(tensor)->real().variable_data();
    const auto fits = [&](const at::Tensor& other) {
      return other.defined() && other.layout() == c10::kStrided && real.layout() == c10::kStrided &&
             other.scalar_type() == real.scalar_type();
    };
    if (tensor.is_view()) {
      if (const at::Tensor base = of(at::Tensor(tensor._base())); fits(base)) {
        return as_view_of(base, real, tensor);
      }
    }
    if (!tensor.requires_grad()) {
      // Detached, it shares memory with a tensor of which it is no view.
      const auto other = std::find_if(pairs_.begin(), pairs_.end(),
                                      [&](const auto& pair) { return fits(pair.second) && pair.second.is_alias_of(real); });
      if (other != pairs_.end()) {
        return as_view_of(other->second, real, tensor).detach();
      }
    }
    if (!real.is_inference() && !tensor.is_inference()) {
      torch::autograd::impl::set_version_counter(real, torch::autograd::impl::version_counter(tensor));
    }
    if (tensor.requires_grad() && tensor.is_leaf()) {
      real.set_requires_grad(true);
      hand_back_accumulator(real, tensor);
    } else if (const torch::autograd::Edge edge = edge_of(tensor); edge.is_valid()) {
      torch::autograd::impl::set_gradient_edge(real, edge);
    }
    return real;
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

std::vector<at::Tensor> Tracer::as_callers_tensors(const std::vector<at::Tensor>& results) const {
  HandedOut as_callers_tensors(arguments_);
  std::vector<at::Tensor> outside;
  for (const at::Tensor& result : results) {
    outside.push_back(result.defined() ? as_callers_tensors.of(result) : result);
  }
  return outside;
}

void hand_back_form(const at::Tensor& argument, const at::Tensor& traced) {
  const at::Tensor changed = real_of(traced);
  if (changed.layout() == c10::kStrided && argument.layout() == c10::kStrided &&
      (changed.sizes() != argument.sizes() || changed.strides() != argument.strides() ||
       changed.storage_offset() != argument.storage_offset() || !changed.is_alias_of(argument))) {
    argument.unsafeGetTensorImpl()->shallow_copy_from(changed.getIntrusivePtr());
  }
}

// Both tensors bring gradients to one node, which adds them to that of the real one. Code may assign either.
void Tracer::hand_back_gradient(const Argument& argument) {
  at::Tensor& gradient = argument.real.mutable_grad();
  if (TraceTensor::of(gradient) != nullptr) {
    refuse("it adds to the gradient of an argument");
    gradient = real_of(gradient).detach();
  } else if (gradient.defined() && captured_values_.contains(gradient.unsafeGetTensorImpl())) {
    refuse("it reads the gradient of an argument, or adds to it");
  } else if (argument.traced.is_leaf() && !argument.traced.grad().is_same(gradient)) {
    refuse("it changes the gradient of an argument");
    gradient = argument.traced.grad().defined() ? real_of(argument.traced.grad()) : at::Tensor();
  }
}

void Tracer::hand_back_gradient_edges() {
  for (const Argument& argument : arguments_) {
    hand_back_form(argument.real, argument.traced);
    if (argument.real.is_leaf()) {
      hand_back_gradient(argument);
    }
    TORCH_CHECK(torch::autograd::impl::get_autograd_meta(argument.traced) == nullptr ||
                    torch::autograd::impl::hooks(argument.traced).empty(),
                "a traced function registered a hook on its argument; register it before the call");
    if (argument.edge.is_valid() && !argument.traced.requires_grad()) {
      refuse("it detaches an argument in place");
      argument.real.detach_();
    } else if (!argument.edge.is_valid() && argument.traced.requires_grad() && argument.traced.is_leaf()) {
      refuse("it has an argument require a gradient");
      argument.real.set_requires_grad(true);
      hand_back_accumulator(argument.real, argument.traced);
      continue;
    }
    if (argument.traced.retains_grad() && !argument.real.retains_grad()) {
      refuse("it retains the gradient of an argument");
      argument.real.retain_grad();
    }
    torch::autograd::Edge edge = edge_of(argument.traced);
    if (edge.is_valid() && edge != argument.edge) {
      // Autograd would have to give the view's base a history, too.
      TORCH_CHECK(!argument.real.is_view(),
                  "a traced function wrote an argument that is a view, while gradients were recorded; give it a clone");
      torch::autograd::impl::set_gradient_edge(argument.real, std::move(edge));
    }
  }
}

void Tracer::note_detached(const at::Tensor& tensor) {
  const TraceTensor* traced = TraceTensor::of(tensor);
  if (traced == nullptr || traced->tracer() != number_) {
    return;
  }
  const auto is_it = [&](const Argument& argument) { return argument.traced.is_same(tensor); };
  if (const auto argument = std::ranges::find_if(arguments_, is_it); argument != arguments_.end()) {
    refuse("it detaches an argument in place");
    if (argument->real.is_view()) {
      const PausedTracing paused;
      argument->real.detach_();  // raises, and the tensor that stands for the view is none
    }
  } else if (tensor.requires_grad()) {
    refuse("it detaches a tensor in place");
  }
}

bool Tracer::is_argument(const at::Tensor& tensor) const {
  return is_saved_ || std::any_of(arguments_.begin(), arguments_.end(),
                                  [&](const Argument& argument) { return argument.traced.is_same(tensor); });
}

}  // namespace sconce
