// The generic plan beside every executor of LibTorch, in one run: the calls are interleaved, so that what disturbs the
// machine disturbs all of them. Counters: ns per operator of each executor, and
//   vs_fastest_jit     fastest of LibTorch's graph executors / sconce   (above 1: sconce is faster)
//   vs_static          Static Runtime / sconce
// SCONCE_BENCH_SMOKE: one iteration.
#include "bench/chains.h"
#include "bench/measuring.h"
#include "tools/peers/peer.h"

#include <sconce/sconce.h>

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>

namespace sconce::bench {
namespace {

using sconce::bench::median;

using Clock = std::chrono::steady_clock;

template <typename Run>
double nanoseconds_per_op(const Run& run) {
  constexpr int kCalls = 20;
  const auto start = Clock::now();
  for (int i = 0; i < kCalls; ++i) {
    run();
  }
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kCalls / kChainLength;
}

void run_chain(benchmark::State& state) {
  const Chain& chain = chains()[static_cast<size_t>(state.range(0))];
  const c10::NoGradGuard no_grad;
  at::set_num_threads(1);
  const torch::jit::Module module = make_chain(chain);
  const Module ours = accelerate(module);
  const at::Tensor x = at::randn(chain.input);

  std::map<std::string, std::unique_ptr<peers::Peer>> others;
  for (const peers::PeerInfo& info : peers::peer_list()) {
    auto peer = peers::make_peer(info.name);
    if (!peer->prepare(module, "forward")) {
      others.emplace(info.name, std::move(peer));
    }
  }
  const auto run_ours = [&] { benchmark::DoNotOptimize(ours.forward({x})); };
  std::map<std::string, std::vector<double>> samples;
  for (auto _ : state) {
    samples["sconce"].push_back(nanoseconds_per_op(run_ours));
    for (const auto& [name, peer] : others) {
      const auto session = peer->session();
      session->run({x});
      samples[name].push_back(nanoseconds_per_op([&] { benchmark::DoNotOptimize(session->run({x})); }));
    }
  }
  const double sconce_time = median(samples["sconce"]);
  double fastest_jit = std::numeric_limits<double>::infinity();
  for (const auto& [name, times] : samples) {
    const double time = median(times);
    state.counters[name] = time;
    if (name != "sconce" && name != "static") {
      fastest_jit = std::min(fastest_jit, time);
    }
  }
  state.counters["vs_fastest_jit"] = fastest_jit / sconce_time;
  if (samples.contains("static")) {
    state.counters["vs_static"] = median(samples["static"]) / sconce_time;
  }
  state.SetLabel(chain.name);
}
const int iterations = std::getenv("SCONCE_BENCH_SMOKE") != nullptr ? 1 : 50;
BENCHMARK(run_chain)->DenseRange(0, 4)->Unit(benchmark::kMillisecond)->Iterations(iterations);

}  // namespace
}  // namespace sconce::bench
