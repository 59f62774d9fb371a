// A run of a graph with every value watched: what memory each held, and what memory each node changed.
#pragma once

#include "ir/graph.h"

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace sconce {
class Callees;
}

namespace sconce::testing {

// One thing that can be shared: the bytes of a tensor, a tensor as an object, a list, tuple, dict or object. Storages whose
// bytes overlap are one piece.
using Piece = uint32_t;

struct RecordedPiece {
  bool is_bytes = false;
  std::set<Piece> contents;  // what a container has held at any time of the run
  // The value that was the first to hold it, when its node made it; null for what was there before the run, and for what
  // came up inside of something else.
  const Value* made_for = nullptr;
  bool outlives_run = false;  // somebody has it when all that the run itself holds is gone
};

struct RecordedRun {
  std::optional<std::string> error;  // what the run threw; what was recorded before is here all the same
  std::vector<c10::IValue> outputs;
  std::vector<RecordedPiece> pieces;
  // What the value itself has been, in any iteration: of a tensor the object and its bytes, of a container not what it
  // holds.
  std::unordered_map<const Value*, std::set<Piece>> held;
  // What changed while the node ran: bytes, a tensor's version, the elements of a container. Of nodes with blocks: nothing,
  // the nodes in them are asked.
  std::unordered_map<const Node*, std::set<Piece>> changed;
  size_t executions = 0;  // of nodes
};

// Plans the graph with a call of an observer after (and, to see writes, before) each of its nodes, and runs the plan once.
// The arguments are the caller's: what they reach outlives the run. Throws c10::Error when the graph cannot be planned.
RecordedRun record_run(const Graph& graph, const std::vector<c10::IValue>& arguments, Callees* callees = nullptr);

// The same of a single call that is no graph's: `node`, which need not be able to run, stands for it. What outlives the call
// is not recorded.
RecordedRun record_call(const Node& node, const std::vector<c10::IValue>& arguments,
                        const std::function<void(std::vector<c10::IValue>&)>& call);

}  // namespace sconce::testing
