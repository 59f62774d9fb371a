// ScriptError: an exception that a script raises.
#pragma once

#include <torch/csrc/jit/runtime/jit_exception.h>

#include <optional>
#include <string>

namespace sconce {

// A Python exception that the model's code raised (`raise`, `assert`). It derives from LibTorch's class and has the same
// `what()`: the script's stack, then "builtins.ValueError: too large".
class ScriptError : public torch::jit::JITException {
 public:
  // `frames`: see `frames()`.
  ScriptError(const std::string& message, const std::optional<std::string>& python_class, std::string frames);

  // The message that the model's author wrote.
  const std::string& message() const { return message_; }
  // The places in the model's source, the outermost call first, each with its source lines. Empty when none is known.
  const std::string& frames() const { return frames_; }

 private:
  std::string message_;
  std::string frames_;
};

}  // namespace sconce
