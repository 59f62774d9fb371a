// On which devices the tensors of nodes and graphs are.
#pragma once

#include "ir/graph.h"

#include <c10/core/Device.h>

#include <vector>

namespace sconce {

// The devices of a node's tensors, as far as constants and facts tell.
struct NodeDevices {
  std::vector<c10::Device> known;  // each once
  bool are_all_known = true;
};
NodeDevices devices_of(const Node& node);
// Returns the known devices of all nodes, each once, those other than the CPU first.
std::vector<c10::Device> devices_of(const Graph& graph);
// Returns the first of them; the CPU if there is none.
c10::Device main_device_of(const Graph& graph);

}  // namespace sconce
