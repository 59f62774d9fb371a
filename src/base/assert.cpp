#include "base/assert.h"

namespace sconce {
namespace {
thread_local const InternalErrorContext* innermost_context = nullptr;
}  // namespace

InternalErrorContext::InternalErrorContext(std::string what) : what_(std::move(what)), outer_(innermost_context) {
  innermost_context = this;
}

InternalErrorContext::~InternalErrorContext() { innermost_context = outer_; }

std::string describe_internal_error_context() {
  std::string text;
  for (const InternalErrorContext* context = innermost_context; context != nullptr; context = context->outer_) {
    text += text.empty() ? context->what_ : ", in " + context->what_;
  }
  return text;
}

void internal_error(const char* expression, const char* file, int line, const std::string& message) {
  const std::string reason = message.empty() ? std::string("an invariant does not hold: ") + expression : message;
  std::ostringstream out;
  out << "sconce internal error: " << (message.empty() ? "an invariant does not hold" : message)
      << "\n  check: " << expression << "\n  at:    " << file << ":" << line;
  const std::string context = describe_internal_error_context();
  if (!context.empty()) {
    out << "\n  while: " << context;
  }
  out << "\n  This is a defect in sconce, not in your model; please report it with the graph (SCONCE_DUMP=all).";
  throw InternalError(out.str(), reason);
}

}  // namespace sconce
