// A group of nodes as a graph of its own.
#pragma once

#include "ir/graph.h"

#include <c10/util/ArrayRef.h>

#include <memory>
#include <vector>

namespace sconce {

// A graph made of copies of nodes, with its operands in the graph around it.
struct CutOut {
  std::shared_ptr<Graph> subgraph;
  std::vector<Value*> operands;
};

enum class TensorConstants { kCopied, kOperands };

// Copies the nodes, which are in program order, to a graph that returns copies of `results`. What they and their
// blocks use from outside becomes an operand, with its facts; the graph has constants of its own, but for tensors with
// TensorConstants::kOperands.
CutOut cut_out(c10::ArrayRef<Node*> nodes, c10::ArrayRef<Value*> results,
               TensorConstants tensors = TensorConstants::kCopied);
// Copies a block of a node. The inputs of the graph are the block's params, then the operands; its outputs are the block's
// returns, then `more_results`.
CutOut cut_out(const Block& block, c10::ArrayRef<Value*> more_results, TensorConstants tensors);

// Replaces the nodes by a new node of the kind, with the subgraph that was cut out of them, in the place of the last of
// them: there, all operands have been computed and no result has been used. Requires that no node in between uses a result.
// The caller resolves the node.
Node& replace_by_subgraph(c10::ArrayRef<Node*> nodes, c10::ArrayRef<Value*> results, const CutOut& cut, c10::Symbol kind);

}  // namespace sconce
