// sconce::differentiable: a subgraph that runs without autograd, and the graph of its gradients. autodiff/ makes these
// nodes.
//
//   %y : Tensor, %h : Tensor = sconce::differentiable_0[captured_inputs=[1], …](%x, %w)
//   with sconce::differentiable_0 = graph(%x, %w): … return (%y, %h, temporaries…, conditions…)
//   with sconce::differentiable_0.backward = graph(gradients…, captured inputs…, captured outputs…, temporaries…):
//     … return (gradients of the differentiable inputs)
//
// The forward graph returns the node's outputs, then the temporaries that backward reads. The outputs share memory neither
// with the inputs nor with each other, but that a loop or branch may return an input as it is. An output or a temporary may
// be a list of tensors, which loops fill. A run records one autograd node, whose backward runs the backward graph.
#pragma once

#include <ATen/core/symbol.h>

namespace sconce {

inline const c10::Symbol kDifferentiableKind = c10::Symbol::fromQualString("sconce::differentiable");

namespace attr {
// The graph of the gradients, for runs in which all gradients of outputs are defined.
inline const c10::Symbol kBackward = c10::Symbol::attr("Backward");
// The same for runs in which any gradient may be an undefined tensor. After the gradients of the outputs, it takes those of
// the differentiable temporaries, through which backward of backward reaches the inputs, and a bool: whether autograd
// records what it computes. specialize_backward (passes/required/) makes the graph of a kind of runs from it.
inline const c10::Symbol kGeneralBackward = c10::Symbol::attr("GeneralBackward");

// Positions, as lists of integers.
inline const c10::Symbol kDifferentiableInputs = c10::Symbol::attr("differentiable_inputs");    // that get gradients
inline const c10::Symbol kDifferentiableOutputs = c10::Symbol::attr("differentiable_outputs");  // that bring gradients
inline const c10::Symbol kCapturedInputs = c10::Symbol::attr("captured_inputs");
inline const c10::Symbol kCapturedOutputs = c10::Symbol::attr("captured_outputs");
inline const c10::Symbol kDifferentiableTemporaries = c10::Symbol::attr("differentiable_temporaries");
// For each differentiable output, a row: for each differentiable input 1 if the output depends on it, else 0.
inline const c10::Symbol kDependences = c10::Symbol::attr("dependences");
// For each captured input, then for each captured output, a table: for each differentiable output a row with, for each
// differentiable input, 1 if backward takes the output's gradient through the captured value to the input, else 0.
inline const c10::Symbol kCapturePaths = c10::Symbol::attr("capture_paths");
// Positions among the differentiable outputs. The forward graph returns a bool for each of them, after the temporaries.
// Where it is false, the output depends on what `other_dependences` says, a row for each: a loop that runs no iteration
// returns what it was given. Absent if there are none.
inline const c10::Symbol kConditionalOutputs = c10::Symbol::attr("conditional_outputs");
inline const c10::Symbol kOtherDependences = c10::Symbol::attr("other_dependences");
// 1 if running the forward graph has effects.
inline const c10::Symbol kHasEffects = c10::Symbol::attr("has_effects");
}  // namespace attr

}  // namespace sconce
