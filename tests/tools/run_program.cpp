#include "tests/tools/run_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

extern char** environ;

namespace sconce::tests {
namespace {

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& each : strings) {
    result.push_back(each.data());
  }
  result.push_back(nullptr);
  return result;
}

}  // namespace

ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& variables) {
  const ScratchFolder scratch;
  const std::string out = scratch.path() + "/out";
  const std::string err = scratch.path() + "/err";
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> settings;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (variables.count(text.substr(0, text.find('='))) == 0) {
      settings.push_back(text);
    }
  }
  for (const auto& [name, value] : variables) {
    settings.push_back(name + "=" + value);
  }

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, program.c_str(), &actions, nullptr, pointers(words).data(), pointers(settings).data());
  posix_spawn_file_actions_destroy(&actions);
  ProgramResult result;
  EXPECT_EQ(error, 0) << program << " cannot be started";
  if (error != 0) {
    return result;
  }
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_file(out);
  result.err = read_file(err);
  return result;
}

std::string sconce_binary() {
  const std::string binary = environment_variable("SCONCE_BINARY");
  const std::string folder = environment_variable("SCONCE_BIN_DIR");
  EXPECT_FALSE(binary.empty() && folder.empty()) << "set SCONCE_BINARY to the binary `sconce`";
  return binary.empty() ? folder + "/sconce" : binary;
}

namespace {

std::string file_in(const char* variable, const std::string& name, const std::string& maker) {
  const std::string folder = environment_variable(variable);
  EXPECT_FALSE(folder.empty()) << "set " << variable << " to the folder that " << maker << " writes";
  const std::string path = folder + "/" + name;
  EXPECT_TRUE(std::filesystem::exists(path)) << path << " is missing; " << maker << " writes it";
  return path;
}

}  // namespace

std::string model_file(const std::string& name) {
  return file_in("SCONCE_MODELS_DIR", name, "tests/models/write_models.py");
}
std::string plugin_file(const std::string& name) { return file_in("SCONCE_PLUGINS_DIR", name + ".so", "the build"); }

ScratchFolder::ScratchFolder() {
  std::string path = std::filesystem::temp_directory_path() / "sconce-test-XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  path_ = path;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ScratchFolder::write(const std::string& name, const std::string& content) const {
  const std::string path = path_ + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::filesystem::path repository() {
  const std::string tests = environment_variable("SCONCE_TESTS_DIR");
  return std::filesystem::absolute(tests.empty() ? "tests" : tests).lexically_normal().parent_path();
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace sconce::tests
