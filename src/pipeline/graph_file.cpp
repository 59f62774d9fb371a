#include "pipeline/graph_file.h"

#include "ir/text/print.h"
#include "load/load_module.h"

#include <torch/csrc/jit/serialization/pickle.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace sconce {
namespace {

// Writes the whole file or nothing, because half a file could be mistaken for a whole one.
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

void write_graph_file(const std::string& path, const std::string& head, const Graph& graph) {
  std::vector<c10::IValue> constants;
  const std::string text = head + print(graph, {.constants = &constants});
  if (!constants.empty()) {
    const std::vector<char> bytes = torch::jit::pickle_save(c10::ivalue::Tuple::create(std::move(constants)));
    write_whole(constants_path(path), {bytes.begin(), bytes.end()});
  }
  write_whole(path, text);  // last, so that an existing text has its constants
}

std::vector<c10::IValue> read_graph_constants(const std::string& path) {
  const std::string constants = constants_path(path);
  return std::filesystem::exists(constants) ? load_arguments(constants) : std::vector<c10::IValue>{};
}

}  // namespace sconce
