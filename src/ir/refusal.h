// Refusals that name a node.
#pragma once

#include "base/expected.h"

#include <string>

namespace sconce {

class Node;

// Returns a refusal with the node's text and its place in the model's source.
Refusal refusal_of(const Node& node, std::string reason);

}  // namespace sconce
