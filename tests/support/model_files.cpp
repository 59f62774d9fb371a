#include "tests/support/model_files.h"

#include "tests/support/graphs.h"
#include "tests/support/part.h"

#include <algorithm>
#include <cstdlib>

namespace sconce::testing {

std::vector<std::string> model_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code missing;  // reported by ModelFiles.AreThere
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(models_dir()) / folder, missing)) {
    const std::string name = (std::filesystem::path(folder) / entry.path().stem()).string();
    if (entry.path().extension() == ".pt" && std::filesystem::exists(cases_file(name))) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> models_in_part(const std::string& folder) {
  std::vector<std::string> names = model_names(folder);
  uint64_t large = 0;
  std::erase_if(names, [&, part = part_of_run()](const std::string& name) {
    return std::filesystem::file_size(model_file(name)) >= 1'000'000 && !part.has(large++);
  });
  return names;
}

std::string model_file(const std::string& name) { return models_dir() + "/" + name + ".pt"; }
std::string cases_file(const std::string& name) { return models_dir() + "/" + name + ".cases.pt"; }

}  // namespace sconce::testing
