#include "ir/expected.h"

#include "ir/graph.h"
#include "ir/text/print.h"

namespace sconce {

Refusal Refusal::of(const Node& node, std::string reason) {
  return {std::move(reason), print_node_line(node), node.location()};
}

std::string to_string(const Refusal& refusal) {
  std::string text = refusal.reason;
  if (!refusal.node.empty()) {
    text += "\n  node: " + refusal.node;
  }
  const std::string chain = describe_call_chain(refusal.location);
  if (!chain.empty()) {
    text += "\n  at:   ";
    for (const char c : chain) {
      text += c == '\n' ? std::string("\n        ") : std::string(1, c);
    }
  }
  return text;
}

}  // namespace sconce
