#include "base/exception_message.h"

#include <sconce/script_error.h>

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <c10/util/env.h>

#include <algorithm>
#include <string_view>

namespace sconce {
namespace {

constexpr std::string_view kOperatorContext = "in ";
constexpr std::string_view kTraceback = "Traceback of TorchScript (most recent call last):\n";

std::string without_trailing_blanks(std::string text) {
  text.erase(text.find_last_not_of(" \n\r\t") + 1);
  return text;
}

// Returns whether the line is a frame of the Python code that was traced: "rnn.py(1169): forward".
bool is_traced_frame(const std::string& line) {
  const size_t end = line.find(": ");
  if (end == std::string::npos || end < 3 || line[end - 1] != ')') {
    return false;
  }
  const size_t open = line.find_last_not_of("0123456789", end - 2);
  return open != std::string::npos && open + 2 < end && line[open] == '(';
}

// LibTorch's interpreter puts the script's stack in front of what was thrown:
//
//   The following operation failed in the TorchScript interpreter.
//   Traceback of TorchScript (most recent call last):
//     ...
//                ~~~~~~ <--- HERE
//   RuntimeError: mat1 and mat2 shapes cannot be multiplied     <- what matters; "builtins.ValueError: …" of a script
std::string without_interpreter_frame(const std::string& text) {
  const auto starts_with = [](const std::string& line, const std::string& begin) { return line.rfind(begin, 0) == 0; };
  const size_t marker = text.rfind("<--- HERE");
  if (!starts_with(text, "The following operation failed in the TorchScript interpreter.") || marker == std::string::npos) {
    return text;
  }
  // Source lines that follow the marked one are indented. The frames of a traced model are not.
  for (size_t line = text.find('\n', marker); line != std::string::npos; line = text.find('\n', line + 1)) {
    const std::string rest = text.substr(line + 1);
    const std::string first = rest.substr(0, rest.find('\n'));
    if (!first.empty() && first[0] != ' ' && first.find(": ") != std::string::npos && !is_traced_frame(first)) {
      for (const std::string prefix : {"RuntimeError: ", "builtins."}) {
        if (starts_with(rest, prefix)) {
          return rest.substr(prefix.size());
        }
      }
      return rest;
    }
  }
  return text;
}

// Messages about damaged files quote them.
std::string without_control_characters(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 && c != '\n' && c != '\t'; }, '?');
  return text;
}

// The message, then what was added on its way up, each on lines of its own: c10::Error puts the latter in brackets.
std::string full_text(const c10::Error& failure) {
  std::string text = without_interpreter_frame(failure.msg());  // of a forked task
  for (const std::string& context : failure.context()) {
    text += "\n" + context;
  }
  return text;
}

// "ValueError: too large", then the script's stack.
std::string full_text(const ScriptError& raised) {
  std::string python_class = raised.getPythonClassName().value_or("");
  python_class.erase(0, python_class.starts_with("builtins.") ? std::string("builtins.").size() : 0);
  return (python_class.empty() ? "" : python_class + ": ") + raised.message() +
         (raised.frames().empty() ? "" : "\n" + std::string(kTraceback) + raised.frames());
}

std::string first_line_of(const std::string& message) {
  const size_t begin = std::min(message.find_first_not_of(" \n"), message.size());
  return message.substr(begin, message.find('\n', begin) - begin);
}

void erase_from(std::string& text, const std::string& mark) { text.erase(std::min(text.find(mark), text.size())); }

}  // namespace

std::string message_of(const std::exception& failure) {
  const auto* error = dynamic_cast<const c10::Error*>(&failure);
  return error != nullptr ? error->what_without_backtrace() : failure.what();
}

std::string message_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& failure) {
    return message_of(failure);
  } catch (...) {
    return "a value of type " + c10::demangle(std::current_exception().__cxa_exception_type()->name());
  }
}

std::string plain_message(const std::exception& failure) {
  if (const auto* raised = dynamic_cast<const ScriptError*>(&failure)) {
    return without_trailing_blanks(without_control_characters(full_text(*raised)));
  }
  const auto* torch_error = dynamic_cast<const c10::Error*>(&failure);
  const std::string text = torch_error != nullptr ? full_text(*torch_error) : failure.what();
  return without_trailing_blanks(without_control_characters(without_interpreter_frame(text)));
}

std::string one_line_message(const std::exception& failure) {
  return without_trailing_blanks(first_line_of(plain_message(failure)));
}

void drop_frames(c10::Error& error) {
  if (error.backtrace() == nullptr || c10::utils::check_env("TORCH_SHOW_CPP_STACKTRACES") == true) {
    return;
  }
  c10::Error plain(error.msg(), nullptr, error.caller());
  for (const std::string& context : error.context()) {
    plain.add_context(context);
  }
  error = std::move(plain);  // assigns the base alone: the class stays
}

std::string operator_context(const std::string& node, const std::string& frames) {
  return without_trailing_blanks(std::string(kOperatorContext) + node +
                                 (frames.empty() ? "" : "\n" + std::string(kTraceback) + frames));
}

FailedOperator failed_operator(const c10::Error& failure) {
  FailedOperator failed{failure.msg(), {}};
  for (const std::string& context : failure.context()) {
    if (!context.starts_with(kOperatorContext)) {
      failed.message += "\n" + context;
    } else if (const size_t traceback = context.find(kTraceback); traceback != std::string::npos) {
      failed.frames = context.substr(traceback + kTraceback.size()) + "\n" + failed.frames;
    }
  }
  return failed;
}

std::string joined_lines(std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

std::string summarize_libtorch_error(const std::string& message) {
  std::string text = first_line_of(message);
  // "[enforce fail at inline_container.cc:145] . Couldn't parse …"
  if (text.starts_with("[enforce fail at ")) {
    text.erase(0, std::min(text.find("] . "), text.size() - std::min<size_t>(text.size(), 4)) + 4);
  }
  // "a == b INTERNAL ASSERT FAILED at "…":12, please report a bug to PyTorch. Expected …": the
  // place in LibTorch's code and the request for a report do not help where a file is damaged.
  const size_t internal = text.find("INTERNAL ASSERT FAILED at ");
  if (internal != std::string::npos) {
    const std::string end = "please report a bug to PyTorch.";
    const size_t rest = text.find(end, internal);
    text = rest == std::string::npos ? "" : text.substr(rest + end.size());
  }
  erase_from(text, " This is an internal miniz error.");
  erase_from(text, " (Could this error message be improved?");
  erase_from(text, " here:");  // the lines that follow show the place in the archive's code
  text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  text.erase(text.find_last_not_of(" .:") + 1);
  return text;
}

}  // namespace sconce
