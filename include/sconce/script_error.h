// What a script raises.
#pragma once

#include <torch/csrc/jit/runtime/jit_exception.h>

#include <optional>
#include <string>

namespace sconce {

// A Python exception that the model's own code raised (`raise`, `assert`). Caught as torch::jit::JITException it looks as
// LibTorch's own does: `what()` is the script's stack, then "builtins.ValueError: too large".
class ScriptError : public torch::jit::JITException {
 public:
  // `frames`: as `frames()` gives them.
  ScriptError(const std::string& message, const std::optional<std::string>& python_class, std::string frames);

  // What the author wrote.
  const std::string& message() const { return message_; }
  // The places in the model's source, the outermost call first, each with its lines; empty when none is known.
  const std::string& frames() const { return frames_; }

 private:
  std::string message_;
  std::string frames_;
};

}  // namespace sconce
