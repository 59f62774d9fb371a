#include "pipeline/reproducer.h"

#include "ir/text/parse.h"
#include "pipeline/graph_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace sconce {
namespace {

constexpr const char* kFirstLine = "# a graph on which a pass of sconce failed; `sconce replay` runs it again";

}  // namespace

std::string write_reproducer(const Reproducer& reproducer, const std::string& folder) {
  static std::atomic<size_t> written{0};
  const std::string path = folder + "/sconce-" + reproducer.pass + "-" + std::to_string(getpid()) + "-" +
                           std::to_string(written.fetch_add(1)) + ".ir";
  std::ostringstream head;
  head << kFirstLine << "\n# pass: " << reproducer.pass << "\n";
  if (!reproducer.library.empty()) {
    head << "# library: " << reproducer.library << "\n";
  }
  std::string problem = reproducer.problem;
  std::replace(problem.begin(), problem.end(), '\n', ' ');
  head << "# problem: " << problem << "\n";
  write_graph_file(path, head.str(), *reproducer.graph);
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
  TORCH_CHECK(!reproducer.pass.empty(), path,
              ": is no reproducer, which is the file sconce-PASS-PID-N.ir that sconce writes when a pass of yours fails: no "
              "line at its head "
              "says `# pass: NAME`");
  const std::vector<c10::IValue> constants = read_graph_constants(path);
  reproducer.graph = parse(text, {.constants = &constants});
  return reproducer;
}

}  // namespace sconce
