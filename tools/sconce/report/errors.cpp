#include "tools/sconce/report/errors.h"

#include "base/exception_message.h"

#include <algorithm>
#include <iostream>
#include <new>
#include <sstream>

namespace sconce::cli {
namespace {

// Returns the rest of the line after the last `begin` that starts a line, ignoring blanks before it. Empty if there
// is none.
std::string last_line_after(const std::string& text, const std::string& begin) {
  std::istringstream lines(text);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
    if (line.starts_with(begin)) {
      found = line.substr(begin.size());
      found.erase(0, std::min(found.find_first_not_of(' '), found.size()));
    }
  }
  return found;
}

// Finds "in %5 : Tensor = aten::linear(…) # model.py:12:8" in an operator's error, "node: …" in a refusal.
std::string node_in(const std::string& message) {
  std::string raised_in = last_line_after(message, "in %");
  raised_in.erase(std::min(raised_in.rfind(" # "), raised_in.size()));
  return raised_in.empty() ? last_line_after(message, "node: ") : "%" + raised_in;
}

// Finds `File "model.py", line 12, in forward` in a stack, where the innermost place is last; "at: model.py:12:8 in
// forward" in a refusal, where the innermost place is first.
std::string source_in(const std::string& message) {
  const std::string place = last_line_after(message, "File \"");
  const size_t quote = place.find("\", line ");
  if (quote != std::string::npos) {
    const std::string line = place.substr(quote + std::string("\", line ").size());
    return place.substr(0, quote) + ":" + line.substr(0, line.find_first_not_of("0123456789"));
  }
  return last_line_after(message, "at: ");
}

}  // namespace

Failure describe_failure(const std::exception& failure) {
  const bool refused = dynamic_cast<const RefusedError*>(&failure) != nullptr;
  // LibTorch's errors are runtime errors or c10::Error. Any other logic error, such as a failed assertion of sconce,
  // is not the user's fault.
  const bool internal = dynamic_cast<const std::logic_error*>(&failure) != nullptr;
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&failure) != nullptr;
  Failure described;
  described.message = no_memory ? "not enough memory" : plain_message(failure);
  described.kind = refused ? "refused" : internal ? "internal error" : "error";
  described.exit_code = refused || internal || no_memory ? kMismatchOrRefusal : kUsageOrBadInput;
  described.node = node_in(described.message);
  described.source = source_in(described.message);
  return described;
}

void print(const Failure& failure) {
  std::string text = std::string("sconce: ") + failure.kind + ": ";
  for (const char c : failure.message) {
    text += c == '\n' ? std::string("\n  ") : std::string(1, c);
  }
  std::cerr << text << std::endl;
}

Json to_json(const Failure& failure) {
  Json json{{"error", failure.message}, {"kind", failure.kind}, {"exit_code", failure.exit_code}};
  if (!failure.node.empty()) {
    json["node"] = failure.node;
  }
  if (!failure.source.empty()) {
    json["source"] = failure.source;
  }
  return json;
}

int report_failure(const std::exception& failure, bool json, const std::string& file) {
  Failure described = describe_failure(failure);
  described.message.insert(0, file.empty() ? "" : file + ": ");
  print(described);
  if (json) {
    std::cout << json_text(to_json(described)) << std::flush;
  }
  return described.exit_code;
}

std::vector<std::string> failed_passes(const std::vector<RefusalExplanation>& refusals) {
  std::vector<std::string> failed;
  for (const RefusalExplanation& refusal : refusals) {
    if (refusal.what.starts_with("pass ") || refusal.what == "specialized plan") {
      failed.push_back(refusal.what + ": " + refusal.reason);
    }
  }
  return failed;
}

}  // namespace sconce::cli
