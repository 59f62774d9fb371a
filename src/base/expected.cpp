#include "base/expected.h"

#include <c10/util/Exception.h>

namespace sconce {

std::string to_string(const Refusal& refusal) {
  std::string text = refusal.reason;
  if (!refusal.node.empty()) {
    text += "\n  node: " + refusal.node;
  }
  if (!refusal.source.empty()) {
    text += "\n  at:   ";
    for (const char c : refusal.source) {
      text += c == '\n' ? std::string("\n        ") : std::string(1, c);
    }
  }
  return text;
}

void throw_refusal(const std::string& context, const Refusal& refusal) {
  C10_THROW_ERROR(Error, context + ": " + to_string(refusal));
}

}  // namespace sconce
