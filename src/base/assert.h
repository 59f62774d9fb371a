// Our own mistakes. `SCONCE_ASSERT` is for invariants of sconce; the user's mistakes are `TORCH_CHECK`,
// expected limits are a returned `Refusal` (expected.h).
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace sconce {

// Thrown by `SCONCE_ASSERT`.
class InternalError final : public std::logic_error {
 public:
  InternalError(const std::string& report, std::string reason) : std::logic_error(report), reason_(std::move(reason)) {}
  // Returns the violated invariant in one line; `what()` returns the whole report.
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

// Throws InternalError. The message names the expression, the place, and what the current thread was doing
// (the running pass or stage, see `InternalErrorContext`), so that a report from a user is enough to start from.
[[noreturn]] void internal_error(const char* expression, const char* file, int line, const std::string& message);

// Names the work in progress for messages of `internal_error`: "pass fuse_pointwise", "lowering of forward".
// Nests; the innermost is printed first.
class InternalErrorContext {
 public:
  explicit InternalErrorContext(std::string what);
  ~InternalErrorContext();
  InternalErrorContext(const InternalErrorContext&) = delete;
  InternalErrorContext& operator=(const InternalErrorContext&) = delete;

 private:
  friend std::string describe_internal_error_context();
  std::string what_;
  const InternalErrorContext* outer_;
};

std::string describe_internal_error_context();

namespace detail {
template <typename... Parts>
std::string concatenate(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}
}  // namespace detail
}  // namespace sconce

// Always checked: the invariants are cheap, a wrong answer is not.
#define SCONCE_ASSERT(condition, ...)                                                         \
  do {                                                                                        \
    if (!(condition)) [[unlikely]] {                                                          \
      ::sconce::internal_error(#condition, __FILE__, __LINE__,                                \
                               ::sconce::detail::concatenate("" __VA_OPT__(, ) __VA_ARGS__)); \
    }                                                                                         \
  } while (false)

// Checked in builds with SCONCE_DEBUG only: for hot paths.
#ifdef SCONCE_DEBUG
#define SCONCE_DEBUG_ASSERT(...) SCONCE_ASSERT(__VA_ARGS__)
#else
#define SCONCE_DEBUG_ASSERT(...) \
  do {                           \
  } while (false)
#endif
