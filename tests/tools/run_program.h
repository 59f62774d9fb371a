// Running the command line as a user does.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace sconce::tests {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out;
  std::string err;
};

// Runs the program with the arguments and, beside this process's environment, `variables`.
ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& variables = {});

// The binary `sconce`: $SCONCE_BINARY, or sconce in $SCONCE_BIN_DIR. Fails the test when neither is set.
std::string sconce_binary();
// A file below $SCONCE_MODELS_DIR (tests/models/write_models.py writes it). Fails the test when it is not there.
std::string model_file(const std::string& name);
// The library of $SCONCE_PLUGINS_DIR that tests/plugins/NAME.cpp became. Fails the test when it is not there.
std::string plugin_file(const std::string& name);

// A folder for the files of one test; removed with it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }
  // Writes a file there and returns its path.
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::string path_;
};

// Returns the folder that the tests are in.
std::filesystem::path repository();
std::string read_file(const std::filesystem::path& path);

}  // namespace sconce::tests
