// The memory of a process that calls a model with arguments of many sizes from several threads: sconce beside torch::jit.
//
//   build/release/bench/shape_memory                       # transformer_encoder of build/models
//   build/release/bench/shape_memory my/model.pt resnet18  # these, with CASES files beside them; a name: of build/models
//   build/release/bench/shape_memory --threads=8 --calls=3000 --rounds=2 --least=1 --most=64 --json
//
// Each thread makes its share of the calls of a round, without gradients and with one intra-op thread. Dimensions of
// arguments that differ between the recorded cases have random sizes, from --least to --most; equal sizes stay equal. A
// model whose cases do not differ so is called with the cases themselves. A row is the growth of the process since before
// the model was loaded: after each round; after the model was unloaded, while the threads live on; after the threads ended.
//
// resident: pages, after the allocator returned those that it does not use. in use: bytes that are allocated. The difference
// is what the allocator cannot return. Each measurement has a process of its own; the executors take turns (--turns).
// SCONCE_BENCH_SMOKE: few calls.
#include "bench/child_process.h"
#include "bench/measuring.h"
#include "report/number_format.h"
#include "report/table.h"
#include "tools/sconce/bench/resident_memory.h"
#include "tools/sconce/bench/sconce_peer.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/fit_arguments.h"

#include "load/load_module.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <thread>

namespace {

using sconce::bench::is_smoke;
using sconce::bench::model_file;
using namespace sconce::cli;
using namespace sconce;

struct Settings {
  int threads = 4;
  int calls = is_smoke() ? 40 : 1500;  // of a round, by all threads together
  int rounds = is_smoke() ? 2 : 4;
  int least = 1;
  int most = is_smoke() ? 8 : 48;
  int turns = 1;
};

struct Setting {
  const char* name;
  int Settings::* value;
};
constexpr std::array kSettings = {Setting{"--threads=", &Settings::threads}, Setting{"--calls=", &Settings::calls},
                                  Setting{"--rounds=", &Settings::rounds},   Setting{"--least=", &Settings::least},
                                  Setting{"--most=", &Settings::most},       Setting{"--turns=", &Settings::turns}};

// Takes the settings out of the arguments.
Settings take_settings(std::vector<std::string>& arguments) {
  Settings settings;
  std::erase_if(arguments, [&](const std::string& argument) {
    return std::ranges::any_of(kSettings, [&](const Setting& setting) {
      const std::string_view name = setting.name;
      return argument.starts_with(name) &&
             std::from_chars(argument.data() + name.size(), argument.data() + argument.size(), settings.*setting.value).ec ==
                 std::errc();
    });
  });
  return settings;
}

std::vector<std::string> as_arguments(const Settings& settings) {
  std::vector<std::string> arguments;
  for (const Setting& setting : kSettings) {
    arguments.push_back(setting.name + std::to_string(settings.*setting.value));
  }
  return arguments;
}

// Makes arguments of random sizes like those of the recorded cases.
class RandomArguments {
 public:
  explicit RandomArguments(std::vector<std::vector<c10::IValue>> cases) : cases_(std::move(cases)) {
    // A dimension is open if cases of the same kind differ in it. Dimensions that have equal sizes in all cases are one.
    for (size_t i = 0; i < cases_.front().size(); ++i) {
      const c10::IValue& first = cases_.front()[i];
      for (int64_t dim = 0; first.isTensor() && dim < first.toTensor().dim(); ++dim) {
        std::vector<int64_t> sizes;
        for (const auto& each : cases_) {
          if (i < each.size() && each[i].isTensor() && each[i].toTensor().dim() == first.toTensor().dim()) {
            sizes.push_back(each[i].toTensor().size(dim));
          }
        }
        if (std::ranges::any_of(sizes, [&](int64_t size) { return size != sizes.front(); })) {
          open_[{i, dim}] = sizes;
        }
      }
    }
  }

  std::vector<c10::IValue> make(std::mt19937_64& random, const Settings& settings) const {
    if (open_.empty()) {
      return cases_[random() % cases_.size()];
    }
    std::map<std::vector<int64_t>, int64_t> chosen;  // by the sizes in the cases
    std::vector<c10::IValue> arguments = cases_.front();
    for (const auto& [place, sizes] : open_) {
      chosen.emplace(sizes, std::uniform_int_distribution<int64_t>(settings.least, settings.most)(random));
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].isTensor()) {
        std::vector<int64_t> sizes = arguments[i].toTensor().sizes().vec();
        for (size_t dim = 0; dim < sizes.size(); ++dim) {
          const auto found = open_.find({i, static_cast<int64_t>(dim)});
          sizes[dim] = found == open_.end() ? sizes[dim] : chosen[found->second];
        }
        arguments[i] = at::zeros(sizes, arguments[i].toTensor().options());
      }
    }
    return arguments;
  }

 private:
  const std::vector<std::vector<c10::IValue>> cases_;
  std::map<std::pair<size_t, int64_t>, std::vector<int64_t>> open_;  // the sizes in the cases, by argument and dimension
};

// What the process holds at one time.
Json held() {
  const double resident = resident_bytes();
  const auto info = mallinfo2();
  return {{"resident", resident}, {"in_use", static_cast<double>(info.uordblks + info.hblkhd)}};
}

Json difference(const Json& after, const Json& before) {
  Json grown;
  for (const char* what : {"resident", "in_use"}) {
    grown[what] = after[what].get<double>() - before[what].get<double>();
  }
  return grown;
}

Json memory_of(const std::string& model, const std::string& executor, const Settings& settings) {
  at::set_num_threads(1);
  const auto cases = std::get<ModelCases>(read_cases(std::filesystem::path(model).replace_extension(".cases.pt").string()));
  Json rows = Json::array();
  std::barrier turn(settings.threads + 1);
  std::optional<torch::jit::Module> module;
  std::unique_ptr<sconce::peers::Peer> peer;
  std::optional<RandomArguments> random_arguments;
  const auto call_in_rounds = [&](int thread) {
    const at::NoGradGuard no_grad;
    std::mt19937_64 random(static_cast<uint64_t>(thread));
    for (int round = 0; round < settings.rounds; ++round) {
      turn.arrive_and_wait();
      const auto session = peer->session();
      for (int call = thread; call < settings.calls; call += settings.threads) {
        session->run(random_arguments->make(random, settings));
      }
      turn.arrive_and_wait();
    }
    turn.arrive_and_wait();  // the model is unloaded
  };
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < settings.threads; ++thread) {
    threads.emplace_back(call_in_rounds, thread);
  }
  const Json before = held();
  const auto add_row = [&](const std::string& when) {
    Json row = difference(held(), before);
    row["when"] = when;
    rows.push_back(row);
  };
  module = sconce::load_script_module(model, std::nullopt);
  std::vector<std::vector<c10::IValue>> inputs;
  for (const auto& each : cases.inputs) {
    inputs.push_back(fit_arguments(*module, cases.method, each));
  }
  random_arguments.emplace(std::move(inputs));
  peer = executor == "sconce" ? std::make_unique<SconcePeer>(sconce::Options()) : sconce::peers::make_peer(executor);
  if (peer == nullptr) {
    throw std::runtime_error("there is no executor " + executor);
  }
  if (const auto reason = peer->prepare(*module, cases.method)) {
    throw std::runtime_error(*reason);
  }
  for (int round = 1; round <= settings.rounds; ++round) {
    turn.arrive_and_wait();
    turn.arrive_and_wait();
    add_row(format_count(static_cast<uint64_t>(round) * static_cast<uint64_t>(settings.calls)) + " calls");
  }
  random_arguments.reset();
  peer.reset();
  module.reset();
  add_row("unloaded");
  turn.arrive_and_wait();
  threads.clear();
  add_row("threads ended");
  return rows;
}

// Adds rows of a model to the table, and an object to the JSON.
void measure(const std::string& name, const Settings& settings, Table& table, Json& json) {
  const std::string model = name.ends_with(".pt") ? name : model_file(name);
  for (int turn = 0; turn < settings.turns; ++turn) {
    std::map<std::string, Json> rows;
    for (const char* executor : {turn % 2 == 0 ? "sconce" : "jit", turn % 2 == 0 ? "jit" : "sconce"}) {
      std::vector<std::string> arguments = {"--measure", model, executor};
      std::ranges::copy(as_arguments(settings), std::back_inserter(arguments));
      rows[executor] = sconce::bench::measure_in_child(arguments);
    }
    for (size_t i = 0; i < rows["sconce"].size(); ++i) {
      const Json& ours = rows["sconce"][i];
      const Json& theirs = rows["jit"][i];
      table.add_row({i == 0 ? std::filesystem::path(model).stem().string() : "", ours["when"],
                     format_bytes(ours["resident"]), format_bytes(theirs["resident"]),
                     format_ratio(ours["resident"].get<double>() / theirs["resident"].get<double>()),
                     format_bytes(ours["in_use"]), format_bytes(theirs["in_use"])});
    }
    json.push_back(Json{{"model", model}, {"sconce", rows["sconce"]}, {"jit", rows["jit"]}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const Settings settings = take_settings(arguments);
  if (arguments.size() == 3 && arguments.front() == "--measure") {
    return sconce::bench::answer_parent([&] { return memory_of(arguments[1], arguments[2], settings); });
  }
  std::erase_if(arguments, [](const std::string& argument) { return argument.starts_with("--benchmark_"); });
  const bool as_json = std::erase(arguments, "--json") > 0;
  if (arguments.empty()) {
    arguments.emplace_back("transformer_encoder");
  }
  Table table(
      {{"model", Align::kLeft}, {"growth after", Align::kLeft}, {"resident"}, {"jit"}, {"sconce/jit"}, {"in use"}, {"jit"}});
  Json json = Json::array();
  try {
    for (const std::string& name : arguments) {
      measure(name, settings, table, json);
    }
  } catch (const std::exception& failure) {
    std::cerr << sconce::one_line_message(failure) << "\n";
    return 1;
  }
  std::cout << (as_json ? json_text(json) : table.render()) << std::flush;
  return 0;
}
