// Messages of exceptions. Every error that quotes an exception uses one of these functions.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace sconce {

// Returns the whole message without LibTorch's stack of C++ frames.
std::string message_of(const std::exception& failure);

// The same. Returns "a value of type T" for a thrown value that is not a std::exception.
std::string message_of(const std::exception_ptr& thrown);

// Returns the message for people: without the frame of LibTorch's interpreter around it, without control characters, and
// with each context on a line of its own.
std::string plain_message(const std::exception& failure);

// Returns the first line of `plain_message`.
std::string one_line_message(const std::exception& failure);

// An operator of a script that failed.
struct FailedOperator {
  std::string message;  // the operator's own
  std::string frames;   // the places in the model's source, the outermost call first, each with its source lines
};
// Returns the context that says which operator of a script failed. `frames` may be empty.
std::string operator_context(const std::string& node, const std::string& frames);
// Splits what `operator_context` has added on the error's way up, innermost call first, from the error.
FailedOperator failed_operator(const c10::Error& failure);

// Returns the message with its lines joined by blanks.
std::string joined_lines(std::string message);

// Returns the essence of LibTorch's message about a file: its first line, without the places in LibTorch's code. May be
// empty.
std::string summarize_libtorch_error(const std::string& message);

// Removes from `what()` LibTorch's stack of C++ frames, unless TORCH_SHOW_CPP_STACKTRACES=1. The error's class, message and
// context stay.
void drop_frames(c10::Error& error);

// Returns what `call` returns. Drops the frames of an error of LibTorch that it throws. Every function of the public API
// that may throw one to the user is called so.
template <typename Call>
decltype(auto) without_frames(const Call& call) {
  try {
    return call();
  } catch (c10::Error& error) {
    drop_frames(error);
    throw;
  }
}

}  // namespace sconce
