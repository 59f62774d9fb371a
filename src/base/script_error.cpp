#include <sconce/script_error.h>

namespace sconce {
namespace {

std::string text_of(const std::string& message, const std::optional<std::string>& python_class, const std::string& frames) {
  std::string text = "The following operation failed in the TorchScript interpreter.\n";
  text += frames.empty() ? "" : "Traceback of TorchScript (most recent call last):\n" + frames;
  // As in Python, an exception without a class is a RuntimeError.
  return text + python_class.value_or("RuntimeError") + ": " + message + "\n";
}

}  // namespace

ScriptError::ScriptError(const std::string& message, const std::optional<std::string>& python_class, std::string frames)
    : JITException(text_of(message, python_class, frames), python_class, message),
      message_(message),
      frames_(std::move(frames)) {}

}  // namespace sconce
