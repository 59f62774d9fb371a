#include "ir/refusal.h"

#include "ir/graph.h"
#include "ir/text/print.h"

#include <utility>

namespace sconce {

Refusal refusal_of(const Node& node, std::string reason) {
  return {std::move(reason), print_node_line(node), describe_call_chain(node.location())};
}

}  // namespace sconce
