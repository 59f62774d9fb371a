#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sconce {

// Which gradients of an output are defined tensors: that of a tensor, or those of a list's elements.
enum class Definedness : uint8_t { kNone, kSome, kAll };

// A kind of runs of backward.
struct BackwardForm {
  std::vector<Definedness> gradients;  // per differentiable output
  bool records = false;                // autograd records what backward computes

  friend bool operator==(const BackwardForm&, const BackwardForm&) = default;
};

// Returns the graph of such runs: without what is computed of undefined gradients alone. Where gradients are defined in some
// of the runs, branches ask for it.
//
// `general`: the general backward graph of a differentiable node (ir/differentiable.h), with the gradients of
// `intermediates` differentiable intermediates among its inputs. The returned graph has the same inputs but the bool, and if
// autograd does not record backward, but those gradients.
std::shared_ptr<Graph> specialize_backward(const Graph& general, size_t intermediates, const BackwardForm& form);

// Removes inputs, tensors or lists of tensors, that are undefined in every run, and what is computed of them alone.
// `positions`: in ascending order.
void remove_undefined_inputs(Graph& graph, const std::vector<size_t>& positions);

}  // namespace sconce
