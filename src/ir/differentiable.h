// sconce::differentiable: a subgraph that runs without autograd, and the graph of its gradients. autodiff/ makes these
// nodes.
//
//   %y : Tensor, %h : Tensor = sconce::differentiable_0[gradient={grad(y0) reaches x1; saves x0, y0}](%x, %w)
//   with sconce::differentiable_0 = graph(%x, %w): … return (%y, %h, intermediates…, conditions…)
//   with sconce::differentiable_0 Backward = graph(gradients…, saved inputs…, saved outputs…, intermediates…):
//     … return (gradients of the differentiable inputs)
//
// The forward graph returns the node's outputs, then the intermediates that backward reads. The outputs share memory neither
// with the inputs nor with each other, except that a loop or branch may return an input itself. An output or an intermediate
// may be a list of tensors, which loops fill. A run records one autograd node, whose backward runs the backward graph.
#pragma once

#include "ir/gradient_signature.h"
#include "ir/graph.h"

#include <memory>

namespace sconce {

inline const c10::Symbol kDifferentiableKind = c10::Symbol::fromQualString("sconce::differentiable");

namespace attr {
// The graph of the gradients, for runs in which all gradients of outputs are defined.
inline const c10::Symbol kBackward = c10::Symbol::attr("Backward");
// The same for runs in which any gradient may be an undefined tensor. After the gradients of the outputs, it takes those of
// the differentiable intermediates, through which backward of backward reaches the inputs, and a bool: whether autograd
// records what it computes. specialize_backward (passes/required/) makes the graph of a kind of runs from it.
inline const c10::Symbol kGeneralBackward = c10::Symbol::attr("GeneralBackward");
// A GradientSignature.
inline const c10::Symbol kGradient = c10::Symbol::attr("gradient");
// 1 if running the forward graph has effects; absent if it has none.
inline const c10::Symbol kHasEffects = c10::Symbol::attr("has_effects");
}  // namespace attr

// Returns the signature of a sconce::differentiable node.
inline const GradientSignature& gradient_signature(const Node& node) {
  return *node.attribute_as<std::shared_ptr<const GradientSignature>>(attr::kGradient);
}

}  // namespace sconce
