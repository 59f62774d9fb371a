#include "in_place/interpreter_errors.h"

#include "base/exception_message.h"

#include <sconce/script_error.h>

#include <c10/util/Exception.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

namespace sconce {
namespace {

bool is_within_interpreter() { return !torch::jit::currentCallstack().empty(); }

// The outermost frame of a graph does not say what function it is: `  File "model.py", line 6`.
std::string with_function(std::string frames, const std::string& function) {
  const size_t end = std::min(frames.find('\n'), frames.size());
  if (frames.starts_with("  File ") && frames.find(", in ") >= end) {
    frames.insert(end, ", in " + function);
  }
  return frames;
}

}  // namespace

void with_interpreter_errors(const std::string& function, c10::function_ref<void()> run) {
  try {
    run();
  } catch (const ScriptError& raised) {
    if (is_within_interpreter()) {
      throw torch::jit::JITException(raised.message(), raised.getPythonClassName());
    }
    throw ScriptError(raised.message(), raised.getPythonClassName(), with_function(raised.frames(), function));
  } catch (const c10::Error& error) {
    const FailedOperator failed = failed_operator(error);
    const std::string text = is_within_interpreter()
                                 ? failed.message
                                 : ScriptError(failed.message, std::nullopt, with_function(failed.frames, function)).what();
    if (dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr) {
      throw c10::NotImplementedError(text, error.backtrace(), error.caller());
    }
    throw std::runtime_error(text);
  }
}

}  // namespace sconce
