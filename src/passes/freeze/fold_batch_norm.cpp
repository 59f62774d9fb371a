#include "passes/freeze/fold_batch_norm.h"

#include "analysis/affine_ops.h"
#include "analysis/memory/invariant_tensors.h"
#include "analysis/memory/memory_writes.h"
#include "base/paged_memory.h"
#include "ir/constant_operands.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

namespace sconce {
namespace {

// A parameter that is None is an undefined tensor.
struct Parameters {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor scale;  // the norm's own weight and bias
  at::Tensor shift;
  at::Tensor mean;
  at::Tensor variance;
  double eps;
};

class BatchNormFolding {
 public:
  explicit BatchNormFolding(Graph& graph) : graph_(graph), aliases_(graph), order_(graph, aliases_), constants_(graph) {}

  bool run() {
    bool changed = false;
    for_each_node(graph_.body(), [&](Node* node) {
      if (is_batch_norm(*node)) {
        changed |= fold(*node);
      }
    });
    return changed;
  }

 private:
  bool fold(Node& norm) {
    Value& normed = *norm.input(0);
    Node& source = *normed.node();
    const auto op = affine_op(source);
    if (!op || !is_alone(normed, norm) || order_.state_may_change_between(source, norm)) {
      return false;
    }
    const auto parameters = parameters_of(source, *op, norm);
    if (!parameters || !normalises_channels(source, *op, parameters->weight.dim(), norm)) {
      return false;
    }
    const auto folded = compute(*op, *parameters);
    if (!folded) {
      return false;
    }
    source.set_input(op->weight, constant_like(*source.input(op->weight), folded->first, source));
    source.set_input(op->bias, constant_like(*norm.named_input("bias"), folded->second, source));
    ask_again(normed, norm);
    norm.output()->replace_all_uses_with(&normed);
    norm.erase();
    return true;
  }

  // Returns whether all other users of the result only query sizes and the like, which equal those of the norm's
  // result. If the norm's result may be written, and so change its sizes, these users must come before the norm.
  bool is_alone(const Value& normed, const Node& norm) const {
    const bool changes = aliases_.may_be_written(*norm.output());
    return normed.node()->owning_block() == norm.owning_block() && std::ranges::all_of(normed.uses(), [&](const Use& use) {
             return (use.user == &norm && use.index == 0) ||
                    (use.user->op().reads == Reads::kMetadata && (!changes || stands_before(*use.user, norm)));
           });
  }

  // Returns whether `node`, which is in the block of `other` or nested in it, comes before `other`.
  static bool stands_before(const Node& node, const Node& other) {
    const Node* top = &node;
    while (top->owning_block() != other.owning_block()) {
      top = top->owning_block()->owner();
    }
    const Node* before = other.previous();
    while (before != nullptr && before != top) {
      before = before->previous();
    }
    return before != nullptr;
  }

  // Recreates the users, because the facts of their operand have changed.
  void ask_again(const Value& normed, const Node& norm) {
    for (const Use& use : normed.uses().vec()) {
      if (use.user != &norm) {
        ValueMap same;
        for (Value* input : use.user->inputs()) {
          same[input] = input;
        }
        Node* copy = graph_.copy_node(*use.user, use.user, same);
        use.user->output()->replace_all_uses_with(copy->output());
        use.user->erase();
      }
    }
  }

  // Returns whether the second dimension, which the norm takes for the channels, is that of the output channels.
  bool normalises_channels(const Node& source, const AffineOp& op, int64_t weight_rank, const Node& norm) const {
    const auto has_rank = [&](const Value& value) {
      return value.facts() != nullptr && value.facts()->sizes && !aliases_.may_be_written(value) &&
             static_cast<int64_t>(value.facts()->sizes->size()) == weight_rank;
    };
    return op.accepts_batches_only || has_rank(*source.output()) || has_rank(*source.input(0)) ||
           has_checked_rank(*source.output(), weight_rank, norm);
  }

  std::optional<Parameters> parameters_of(const Node& source, const AffineOp& op, const Node& norm) const {
    const auto weight = constants_.find(source.input(op.weight));
    const auto bias = constants_.find(source.input(op.bias));
    const auto scale = constants_.find(norm.named_input("weight"));
    const auto shift = constants_.find(norm.named_input("bias"));
    const auto mean = constants_.find(norm.named_input("running_mean"));
    const auto variance = constants_.find(norm.named_input("running_var"));
    const auto* eps = norm.named_input("eps")->constant();
    if (!weight || !bias || !scale || !shift || !mean || !variance || !eps || !eps->isDouble() ||
        constant_bool(*norm.named_input("training")) != false || !weight->defined() || !mean->defined() ||
        !variance->defined() || !c10::isFloatingType(weight->scalar_type()) || weight->dim() < 2) {
      return std::nullopt;
    }
    const int64_t channels = op.transposed ? weight->size(1) * op.groups : weight->size(0);
    for (const at::Tensor& each : {*bias, *scale, *shift, *mean, *variance}) {
      if (each.defined() && (each.dim() != 1 || each.size(0) != channels || each.scalar_type() != weight->scalar_type() ||
                             each.device() != weight->device())) {
        return std::nullopt;
      }
    }
    const bool divides = (op.transposed ? weight->size(0) : channels) % op.groups == 0;
    return divides && channels > 0
               ? std::optional(Parameters{*weight, *bias, *scale, *shift, *mean, *variance, eps->toDouble()})
               : std::nullopt;
  }

  // Computes values per channel in double precision, and products in float or better. Nothing if one overflows.
  static std::optional<std::pair<at::Tensor, at::Tensor>> compute(const AffineOp& op, const Parameters& of) {
    const c10::InferenceMode normal(false);
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
    at::Tensor factor = at::rsqrt(wide(of.variance) + of.eps);
    factor = of.scale.defined() ? factor * wide(of.scale) : factor;
    at::Tensor bias = of.bias.defined() ? wide(of.bias) - wide(of.mean) : -wide(of.mean);
    bias = of.shift.defined() ? bias * factor + wide(of.shift) : bias * factor;

    std::vector<int64_t> sizes(static_cast<size_t>(of.weight.dim()), 1);
    sizes[0] = of.weight.size(0);
    if (op.transposed) {
      // Group by group: the inputs of a group have its outputs.
      sizes[1] = of.weight.size(1);
      factor = factor.view({op.groups, 1, sizes[1]}).expand({op.groups, sizes[0] / op.groups, sizes[1]});
    }
    const c10::ScalarType dtype = of.weight.scalar_type();
    const c10::ScalarType computed = dtype == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor weight = empty_paged_like(of.weight);
    at::mul_out(weight, of.weight.to(computed), factor.reshape(sizes).to(computed));
    page_out_later(of.weight.storage());  // most often nothing else reads it
    bias = bias.to(dtype);
    // A sum is finite only if all of its terms are.
    const auto is_finite = [&](const at::Tensor& tensor) { return at::isfinite(tensor.sum(computed)).item<bool>(); };
    return is_finite(weight) && is_finite(bias) ? std::optional(std::pair(std::move(weight), std::move(bias)))
                                                : std::nullopt;
  }

  Value* constant_like(const Value& replaced, at::Tensor tensor, Node& position) {
    Value* constant = graph_.insert_constant(std::move(tensor), &position, c10::TensorType::get());
    constant->set_name(replaced.name())->node()->set_location(position.location());
    return constant;
  }

  Graph& graph_;
  AliasSets aliases_;
  MemoryWrites order_;
  InvariantTensors constants_;
};

}  // namespace

bool fold_batch_norm(Graph& graph) {
  bool has_candidates = false;
  for_each_node(graph.body(), [&](Node* node) {
    has_candidates = has_candidates || (is_batch_norm(*node) && affine_op(*node->input(0)->node()));
  });
  return has_candidates && BatchNormFolding(graph).run();
}

}  // namespace sconce
