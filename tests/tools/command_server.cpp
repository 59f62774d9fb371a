#include "tests/tools/command_server.h"

#include "tools/sconce/commands/command_line.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace sconce::tests {
namespace {

// Messages are JSON, one per packet.
void send_message(int connection, const nlohmann::json& message) {
  const std::string text = message.dump();
  if (send(connection, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("the process that runs command lines is gone");
  }
}

// Empty when the other side has closed the connection.
nlohmann::json receive_message(int connection) {
  std::string text(1 << 16, '\0');
  const ssize_t size = recv(connection, text.data(), text.size(), 0);
  return size > 0 ? nlohmann::json::parse(text.substr(0, static_cast<size_t>(size))) : nlohmann::json();
}

void redirect(int descriptor, const std::string& path, int flags) {
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) {
    _exit(126);
  }
  close(file);
}

// What main() does.
[[noreturn]] void run_here(const nlohmann::json& request) {
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, request.at("out"), O_WRONLY | O_CREAT);
  redirect(STDERR_FILENO, request.at("err"), O_WRONLY | O_CREAT);
  for (const auto& [name, value] : request.at("variables").items()) {
    setenv(name.c_str(), value.get<std::string>().c_str(), 1);
  }
  cli::end_program(cli::run_command_line(request.at("arguments")));
}

[[noreturn]] void serve(int connection) {
  for (nlohmann::json request = receive_message(connection); !request.empty(); request = receive_message(connection)) {
    const pid_t child = fork();
    if (child == 0) {
      close(connection);
      run_here(request);
    }
    int status = 0;
    waitpid(child, &status, 0);
    send_message(connection, child < 0 ? 128 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  _exit(0);
}

}  // namespace

CommandServer::CommandServer() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 || (process_ = fork()) < 0) {
    throw std::runtime_error("no process that runs command lines");
  }
  if (process_ == 0) {
    close(ends[0]);
    serve(ends[1]);
  }
  close(ends[1]);
  connection_ = ends[0];
}

CommandServer::~CommandServer() {
  close(connection_);
  waitpid(process_, nullptr, 0);
}

ProgramResult CommandServer::run(const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& variables) {
  const ScratchFolder scratch;
  const std::string out = scratch.path() + "/out";
  const std::string err = scratch.path() + "/err";
  send_message(connection_, {{"arguments", arguments}, {"variables", variables}, {"out", out}, {"err", err}});
  const nlohmann::json exit_code = receive_message(connection_);
  if (!exit_code.is_number()) {
    throw std::runtime_error("the process that runs command lines is gone");
  }
  return {.exit_code = exit_code, .out = read_file(out), .err = read_file(err)};
}

}  // namespace sconce::tests
