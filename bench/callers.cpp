// Threads that call one model at a time, as in a server, with LibTorch's default number of threads.
//
// A row is a model and a number of callers. `one_thread`: calls a second, divided by those of the same model with one thread
// for each operator (Options::intra_op_threads); bar: 0.95, since callers share the cores. `eager`: the same, divided by
// eager LibTorch's, with all threads or one, whichever makes more calls; bar: 1.5. `p99_ms`: what a hundredth of the calls
// exceed, and `eager_p99_ms` that of eager's faster setting. Contestants take turns of half a second in each
// iteration; ratios are medians over the iterations. SCONCE_BENCH_SMOKE: one iteration of short turns.
#include "bench/measuring.h"
#include "plan/intra_op_threads.h"
#include "tools/peers/peer.h"
#include "tools/sconce/ui/percentile.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/fit_arguments.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/jit/serialization/import.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace {

using sconce::bench::median;
using sconce::bench::model_file;
using Call = std::function<void()>;

using Clock = std::chrono::steady_clock;

struct Turn {
  double calls_per_second = 0;
  std::vector<double> milliseconds;  // of each call
};

// Lets that many threads call for half a second. `make_call` is called on each.
Turn take_turn(size_t threads, const std::function<Call()>& make_call) {
  std::vector<std::vector<double>> times(threads);
  std::barrier start(static_cast<std::ptrdiff_t>(threads) + 1);
  std::atomic<bool> stop = false;
  Clock::time_point begin;
  {
    std::vector<std::jthread> running;
    for (std::vector<double>& of_thread : times) {
      running.emplace_back([&] {
        const at::NoGradGuard no_grad;
        at::get_num_threads();  // sets the thread up; sconce does that itself, LibTorch's executor does not
        const Call call = make_call();
        call();
        start.arrive_and_wait();
        while (!stop.load(std::memory_order_relaxed)) {
          const auto before = Clock::now();
          call();
          of_thread.push_back(std::chrono::duration<double, std::milli>(Clock::now() - before).count());
        }
      });
    }
    start.arrive_and_wait();
    begin = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(sconce::bench::is_smoke() ? 20 : 500));
    stop = true;
  }  // joins
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  Turn turn;
  for (const std::vector<double>& of_thread : times) {
    turn.milliseconds.insert(turn.milliseconds.end(), of_thread.begin(), of_thread.end());
  }
  turn.calls_per_second = static_cast<double>(turn.milliseconds.size()) / seconds;
  return turn;
}

void run_callers(benchmark::State& state, const std::string& name, size_t threads) {
  const std::string file = model_file(name);
  const auto cases = std::get<sconce::cli::ModelCases>(
      sconce::cli::read_cases(std::filesystem::path(file).replace_extension(".cases.pt").string()));
  torch::jit::Module script = torch::jit::load(file);
  script.eval();
  const std::vector<c10::IValue> arguments = sconce::cli::fit_arguments(script, cases.method, cases.inputs.front());
  const auto peer = sconce::peers::make_peer("eager");
  if (const auto reason = peer->prepare(script, cases.method)) {
    state.SkipWithError(reason->c_str());
    return;
  }
  const auto of_sconce = [&](int intra_op_threads) {
    return [&, module = sconce::accelerate(script, sconce::Options().intra_op_threads(intra_op_threads))]() -> Call {
      return [&] { benchmark::DoNotOptimize(module.run_method(cases.method, arguments)); };
    };
  };
  const auto of_eager = [&](int intra_op_threads) {
    return [&, intra_op_threads]() -> Call {
      auto limit = std::make_shared<sconce::IntraOpThreads>(intra_op_threads);
      std::shared_ptr<sconce::peers::Peer::Session> session = peer->session();
      return [&, limit, session] { benchmark::DoNotOptimize(session->run(arguments)); };
    };
  };
  const std::vector<std::function<Call()>> contestants = {of_sconce(0), of_sconce(1), of_eager(0), of_eager(1)};
  std::vector<std::vector<Turn>> turns(contestants.size());
  const auto call_in_turns = [&] {
    for (size_t i = 0; i < contestants.size(); ++i) {
      turns[i].push_back(take_turn(threads, contestants[i]));
    }
  };
  call_in_turns();  // compiles
  turns.assign(contestants.size(), {});
  for (auto _ : state) {
    call_in_turns();
  }
  std::vector<double> over_one_thread;
  std::vector<double> over_eager;
  std::vector<double> p99;
  std::vector<double> eager_p99;
  for (size_t i = 0; i < turns.front().size(); ++i) {
    const Turn& own = turns[0][i];
    const Turn& eager = turns[2][i].calls_per_second > turns[3][i].calls_per_second ? turns[2][i] : turns[3][i];
    over_one_thread.push_back(own.calls_per_second / turns[1][i].calls_per_second);
    over_eager.push_back(own.calls_per_second / eager.calls_per_second);
    p99.push_back(sconce::ui::percentile(own.milliseconds, 0.99));
    eager_p99.push_back(sconce::ui::percentile(eager.milliseconds, 0.99));
  }
  state.counters["one_thread"] = median(over_one_thread);
  state.counters["eager"] = median(over_eager);
  state.counters["p99_ms"] = median(p99);
  state.counters["eager_p99_ms"] = median(eager_p99);
}

const bool registered = [] {
  for (const char* model : {"dlrm", "small_encoder", "mlp", "lstm", "transformer_encoder", "resnet18"}) {
    for (const size_t threads : {1, 2, 4}) {
      benchmark::RegisterBenchmark((std::string(model) + "/" + std::to_string(threads)).c_str(),
                                   [=](benchmark::State& state) { run_callers(state, model, threads); })
          ->Iterations(sconce::bench::is_smoke() ? 1 : 10)
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
