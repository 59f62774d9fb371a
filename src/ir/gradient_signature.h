// GradientSignature: what the forward and the backward graph of a sconce::differentiable node exchange.
//
// Example: y = sigmoid(tanh(x * w)), where x and w may require a gradient. Forward saves for backward what backward reads:
// inputs, outputs, and intermediates, which are values that are neither.
//
//   forward             y, t   = f(x, w)                     t = tanh(x * w)
//   Backward            dx, dw = df(dy, x, w, y, t)          dy is defined
//   GeneralBackward     dx, dw = df(dy, dt, records, x, w, y, t)
//
// It prints by positions: x0, x1 are the forward graph's inputs, y0 its output, t0 its intermediate.
//
//   gradient={grad(y0) reaches x0, x1; saves x0 (y0 to x1), x1 (y0 to x0), y0, t0; double backward adds grad(t0)}
//
//   inputs                        {0, 1}                               x, w
//   outputs                       {{position 0, reaches {1, 1}}}       y depends on x and on w
//   saved_inputs                  {{0, paths {0, 1}}, {1, {1, 0}}}     dw = dy… * x, dx = dy… * w
//   saved_outputs                 {{0, paths {1, 1}}}                  both read y
//   intermediates                 1                                    t
//   differentiable_intermediates  {0}                                  backward of backward has a gradient of t
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace sconce {

struct GradientSignature {
  // A differentiable output: one that may bring a gradient to the differentiable inputs.
  struct Output {
    size_t position;            // among the forward graph's outputs
    std::vector<bool> reaches;  // per differentiable input: whether the output depends on it
    // The same where the output's condition is false: a loop that runs no iteration returns what it was given, which depends
    // on fewer inputs. The forward graph returns the conditions of such outputs, bools, after the intermediates.
    std::optional<std::vector<bool>> otherwise;

    friend bool operator==(const Output&, const Output&) = default;
  };

  // An input or output of the forward graph that backward reads.
  struct Saved {
    size_t position;
    // paths[o * inputs.size() + i] is true if backward's path from the gradient of differentiable output o to that of
    // differentiable input i reads the value. Backward does not check the version of a value that no needed gradient passes.
    std::vector<bool> paths;

    friend bool operator==(const Saved&, const Saved&) = default;
  };

  std::vector<size_t> inputs;  // positions of the differentiable inputs, which get gradients; ascending
  std::vector<Output> outputs;
  std::vector<Saved> saved_inputs;
  std::vector<Saved> saved_outputs;
  size_t intermediates = 0;  // that forward returns after the outputs, for backward
  // Numbers of the intermediates that have a gradient in backward of backward, in the order in which it takes them.
  std::vector<size_t> differentiable_intermediates;

  friend bool operator==(const GradientSignature&, const GradientSignature&) = default;
};

}  // namespace sconce
