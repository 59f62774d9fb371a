#include "tools/sconce/bench/processes.h"

#include "tools/sconce/bench/muted_output.h"
#include "tools/sconce/bench/resident_memory.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/ui/interruption.h"
#include "tools/sconce/ui/percentile.h"
#include "tools/sconce/values/fit_arguments.h"

#include <ATen/Context.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>

extern char** environ;

namespace sconce::cli {
namespace {

// Options of the parent alone, and whether a value follows.
struct ParentOption {
  std::string_view name;
  bool has_value;
};
constexpr ParentOption kParentOptions[] = {{"--processes", true}, {"--html", true},     {"--baseline", true},
                                           {"--trace-out", true}, {"--profile", false}, {"--progress", false},
                                           {"--json", false}};

// Runs the program, and returns what it prints to stdout.
std::string output_of(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  TORCH_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "cannot make a pipe: ", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);  // the answer has the error
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));  // posix_spawn does not write them
  }
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  std::array<char, 1 << 16> buffer{};
  for (ssize_t count = 1; error == 0 && count != 0;) {
    count = ::read(ends[0], buffer.data(), buffer.size());
    if (count > 0) {
      text.append(buffer.data(), static_cast<size_t>(count));
    } else if (count < 0 && errno != EINTR) {
      break;
    }
  }
  ::close(ends[0]);
  TORCH_CHECK(error == 0, "cannot start a process: ", std::strerror(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return text;
}

Json answer_of(std::vector<std::string> command, const std::vector<std::string>& more) {
  command.insert(command.end(), more.begin(), more.end());
  command.emplace_back("--json");
  const Json answer = Json::parse(output_of(command), nullptr, /*allow_exceptions=*/false);
  if (interrupted()) {
    throw Interrupted();
  }
  if (answer.is_discarded()) {
    throw RefusedError("a process that measured ended without a result");
  }
  if (answer.contains("error")) {
    const std::string reason = answer["error"].get<std::string>();
    answer.value("exit_code", 0) == kUsageOrBadInput ? throw UserError(reason) : throw RefusedError(reason);
  }
  return answer;
}

std::optional<std::string> optional_text(const Json& json, const char* key) {
  return json.contains(key) ? std::optional(json[key].get<std::string>()) : std::nullopt;
}

Measurement measurement_of(const Json& json) {
  Measurement row;
  row.name = json["executor"];
  row.not_available = optional_text(json, "not_available");
  row.wrong = optional_text(json, "wrong");
  row.remark = optional_text(json, "remark");
  row.first_calls = json["first_calls"].get<std::vector<double>>();
  row.steady = json["steady"].get<std::vector<double>>();
  row.rounds = json["rounds"].get<std::vector<double>>();
  row.calls_per_second = json["calls_per_second"];
  row.parts = json["parts"].get<std::vector<double>>();
  if (!json["memory_bytes"].is_null()) {
    row.memory_bytes = json["memory_bytes"].get<double>();
  }
  return row;
}

// The values that `get` returns for each of the rows, as their median.
template <typename Get>
double median_of(const std::vector<Measurement>& rows, const Get& get) {
  std::vector<double> values;
  std::ranges::transform(rows, std::back_inserter(values), get);
  return ui::median(values);
}

// The row of all processes, of which each has given one.
Measurement joined(const std::vector<Measurement>& rows) {
  Measurement all = rows.front();
  for (const Measurement& row : rows) {
    if (row.not_available) {
      return row;
    }
    all.wrong = all.wrong ? all.wrong : row.wrong;
  }
  all.steady.clear();
  all.rounds.clear();
  for (const Measurement& row : rows) {
    all.steady.insert(all.steady.end(), row.steady.begin(), row.steady.end());
    all.rounds.push_back(ui::median(row.rounds));  // what rounds of one process differ by is no part of what users see
  }
  for (size_t call = 0; call < all.first_calls.size(); ++call) {
    all.first_calls[call] = median_of(rows, [&](const Measurement& row) {
      return call < row.first_calls.size() ? row.first_calls[call] : row.first_calls.back();
    });
  }
  for (size_t part = 0; part < all.parts.size(); ++part) {
    all.parts[part] = median_of(rows, [&](const Measurement& row) { return row.parts.at(part); });
  }
  all.calls_per_second = median_of(rows, [](const Measurement& row) { return row.calls_per_second; });
  all.memory_bytes = median_of(rows, [](const Measurement& row) { return row.memory_bytes.value_or(0); });
  if (*all.memory_bytes == 0) {
    all.memory_bytes.reset();
  }
  all.spread = spread_of(all.rounds);
  return all;
}

}  // namespace

size_t count_of_processes(size_t processes, size_t executors) { return processes * (executors + 1); }

MeasurementTable measure_in_processes(const std::vector<std::string>& command, size_t processes,
                                      const ProcessProgress& progress) {
  MeasurementTable table;
  std::vector<std::vector<Measurement>> rows;  // by executor, then process
  std::vector<std::vector<double>> first_calls;
  std::vector<std::vector<double>> bytes;
  for (size_t process = 0; process < processes; ++process) {
    progress("all executors");
    const Json answer = answer_of(command, {kAnswersOption});
    const Json& executors = answer["executors"];
    rows.resize(executors.size());
    first_calls.resize(executors.size());
    bytes.resize(executors.size());
    table.muted += answer["muted"].get<size_t>();
    table.complete = table.complete && answer["complete"].get<bool>();
    for (size_t i = 0; i < executors.size(); ++i) {
      rows[i].push_back(measurement_of(executors[i]));
      progress(rows[i].back().name);
      if (!rows[i].back().not_available) {
        const Json cold = answer_of(command, {kColdOption, rows[i].back().name});
        first_calls[i].push_back(cold["seconds"]);
        bytes[i].push_back(cold["bytes"]);
      }
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    table.rows.push_back(joined(rows[i]));
    if (!table.rows.back().not_available) {
      table.rows.back().cold_calls = first_calls[i];
      table.rows.back().process_bytes = ui::median(bytes[i]);
    }
  }
  return table;
}

std::vector<std::string> command_for_children(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"sconce"};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* option = std::ranges::find_if(kParentOptions, [&](const ParentOption& each) {
      return arguments[i] == each.name || (each.has_value && arguments[i].starts_with(std::string(each.name) + "="));
    });
    if (option == std::end(kParentOptions)) {
      command.push_back(arguments[i]);
    } else if (option->has_value && arguments[i] == option->name) {
      ++i;  // its value
    }
  }
  return command;
}

Json answer_with(const MeasurementTable& table) {
  Json executors = Json::array();
  for (const Measurement& row : table.rows) {
    Json json{{"executor", row.name},
              {"first_calls", row.first_calls},
              {"steady", row.steady},
              {"rounds", row.rounds},
              {"calls_per_second", row.calls_per_second},
              {"parts", row.parts},
              {"memory_bytes", row.memory_bytes ? Json(*row.memory_bytes) : Json()}};
    for (const auto& [key, text] :
         {std::pair("not_available", row.not_available), std::pair("wrong", row.wrong), std::pair("remark", row.remark)}) {
      if (text) {
        json[key] = *text;
      }
    }
    executors.push_back(std::move(json));
  }
  return Json{{"executors", std::move(executors)}, {"muted", table.muted}, {"complete", table.complete}};
}

Json answer_with_cold_call(const Contestant& contestant, const MeasureSettings& settings) {
  const torch::autograd::AutoGradMode grad_mode(settings.with_grad);
  MutedOutput muted;
  const MutedOutput::OnThread muted_here(muted);
  const torch::jit::Module module = settings.load();
  const std::vector<c10::IValue> arguments = fit_arguments(module, settings.method, settings.arguments);
  const auto peer = caller_of(contestant, settings);
  at::manual_seed(settings.seed);
  const auto begin = std::chrono::steady_clock::now();
  if (const auto reason = peer->prepare(module, settings.method)) {
    throw RefusedError(*reason);
  }
  peer->session()->run(arguments);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return Json{{"seconds", seconds.count()}, {"bytes", resident_bytes()}};
}

}  // namespace sconce::cli
