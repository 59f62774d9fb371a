// Measurements that need a process of their own: the program runs itself again, and the child prints a JSON object.
#pragma once

#include "base/exception_message.h"
#include "report/json.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace sconce::bench {

// Runs this program with the arguments, and returns what `answer_parent` prints there. Throws the child's reason if it
// failed.
inline sconce::Json measure_in_child(const std::vector<std::string>& arguments) {
  std::string command = "'" + std::filesystem::read_symlink("/proc/self/exe").string() + "'";
  for (const std::string& argument : arguments) {
    command += " '" + argument + "'";
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  std::string text;
  std::array<char, 4096> buffer{};
  while (const size_t count = pipe ? fread(buffer.data(), 1, buffer.size(), pipe.get()) : 0) {
    text.append(buffer.data(), count);
  }
  // The model may print lines before the result.
  const size_t last_line = text.size() < 2 ? 0 : text.rfind('\n', text.size() - 2) + 1;
  sconce::Json json = sconce::Json::parse(text.substr(last_line), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    throw std::runtime_error(command + " ended without a result");
  }
  if (json.is_object() && json.contains("reason")) {
    throw std::runtime_error(json["reason"].get<std::string>());
  }
  return json;
}

// In the child: prints what `measure` returns, or the reason why there is nothing. Returns the exit status.
template <typename Measure>
int answer_parent(const Measure& measure) {
  try {
    std::cout << measure() << std::endl;
  } catch (const std::exception& failure) {
    std::cout << sconce::Json{{"reason", one_line_message(failure)}} << std::endl;
  }
  return 0;
}

}  // namespace sconce::bench
