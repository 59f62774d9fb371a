#include "load/summarize_libtorch_error.h"

#include <algorithm>

namespace sconce {
namespace {

std::string first_line(const std::string& message) {
  const size_t begin = std::min(message.find_first_not_of(" \n"), message.size());
  return message.substr(begin, message.find('\n', begin) - begin);
}

void erase_behind(std::string& text, const std::string& mark) { text.erase(std::min(text.find(mark), text.size())); }

}  // namespace

std::string summarize_libtorch_error(const std::string& message) {
  std::string text = first_line(message);
  // "[enforce fail at inline_container.cc:145] . Couldn't parse …"
  if (text.starts_with("[enforce fail at ")) {
    text.erase(0, std::min(text.find("] . "), text.size() - std::min<size_t>(text.size(), 4)) + 4);
  }
  // "a == b INTERNAL ASSERT FAILED at "…":12, please report a bug to PyTorch. Expected …": the place in LibTorch's
  // code, and that it is LibTorch's bug, do not help a user whose file is damaged.
  const size_t internal = text.find("INTERNAL ASSERT FAILED at ");
  if (internal != std::string::npos) {
    const std::string end = "please report a bug to PyTorch.";
    const size_t rest = text.find(end, internal);
    text = rest == std::string::npos ? "" : text.substr(rest + end.size());
  }
  erase_behind(text, " This is an internal miniz error.");
  erase_behind(text, " (Could this error message be improved?");
  erase_behind(text, " here:");  // the lines after it show the place in the archive's code
  text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  text.erase(text.find_last_not_of(" .:") + 1);
  return text;
}

}  // namespace sconce
