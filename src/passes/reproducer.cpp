#include "passes/reproducer.h"

#include "ir/parse.h"
#include "ir/print.h"
#include "load/load_module.h"

#include <torch/csrc/jit/serialization/pickle.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace sconce {
namespace {

constexpr const char* kFirstLine = "# a graph on which a pass of sconce failed; `sconce replay` runs it again";

// Or nothing: half a file would be taken for a whole one.
void write_whole(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file.good()) {
    const int reason = errno;
    std::error_code there_was_none;
    std::filesystem::remove(path, there_was_none);
    TORCH_CHECK(false, path, ": cannot be written: ", std::strerror(reason));
  }
}

std::string constants_path(const std::string& path) { return path + ".constants.pt"; }

}  // namespace

std::string write_reproducer(const Reproducer& reproducer, const std::string& folder) {
  static std::atomic<size_t> written{0};
  const std::string path = folder + "/sconce-" + reproducer.pass + "-" + std::to_string(getpid()) + "-" +
                           std::to_string(written.fetch_add(1)) + ".ir";
  std::vector<c10::IValue> constants;
  std::ostringstream text;
  text << kFirstLine << "\n# pass: " << reproducer.pass << "\n";
  if (!reproducer.library.empty()) {
    text << "# library: " << reproducer.library << "\n";
  }
  std::string problem = reproducer.problem;
  std::replace(problem.begin(), problem.end(), '\n', ' ');
  text << "# problem: " << problem << "\n" << print(*reproducer.graph, {.constants = &constants});
  if (!constants.empty()) {
    const std::vector<char> bytes = torch::jit::pickle_save(c10::ivalue::Tuple::create(std::move(constants)));
    write_whole(constants_path(path), {bytes.begin(), bytes.end()});
  }
  write_whole(path, text.str());  // last: with it the reproducer is whole
  return path;
}

Reproducer read_reproducer(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file.good(), path, ": cannot be read: ", std::strerror(errno));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  Reproducer reproducer;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && line.starts_with("#");) {
    const auto take = [&](std::string_view key, std::string& field) {
      const std::string prefix = "# " + std::string(key) + ": ";
      field = line.starts_with(prefix) ? line.substr(prefix.size()) : field;
    };
    take("pass", reproducer.pass);
    take("library", reproducer.library);
    take("problem", reproducer.problem);
  }
  TORCH_CHECK(!reproducer.pass.empty(), path, ": is no reproducer: no line says `# pass: NAME`");
  std::vector<c10::IValue> constants;
  if (std::filesystem::exists(constants_path(path))) {
    constants = load_arguments(constants_path(path));
  }
  ParseOptions options;
  options.constants = &constants;
  reproducer.graph = parse(text, options);
  return reproducer;
}

}  // namespace sconce
