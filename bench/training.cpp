// Forward and backward of models that train: sconce beside LibTorch's executors. No loss and no optimizer: every output gets
// a gradient of ones.
//
// jit: time of LibTorch's fastest torch::jit executor over sconce's; eager: the same of eager LibTorch. Medians of steps
// that take turns, on warm plans. SCONCE_BENCH_SMOKE: few steps.
#include "bench/measuring.h"
#include "tools/peers/peer.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using sconce::bench::is_smoke;
using sconce::bench::median;
using sconce::bench::model_file;

struct Subject {
  const char* model;
  std::vector<c10::IValue> (*arguments)();
};
const Subject kSubjects[] = {
    {"mlp", [] { return std::vector<c10::IValue>{at::ones({4, 16})}; }},
    {"lstm_loop", [] { return std::vector<c10::IValue>{at::ones({5, 3, 10})}; }},
    {"lstm_states",
     [] {
       return std::vector<c10::IValue>{at::ones({3, 12, 10}),
                                       c10::ivalue::Tuple::create({at::zeros({3, 16}), at::zeros({3, 16})})};
     }},
    {"sequence_classifier", [] { return std::vector<c10::IValue>{at::ones({4, 12}, at::kLong)}; }},
    {"transformer_encoder_train", [] { return std::vector<c10::IValue>{at::ones({2, 7, 64}), c10::IValue()}; }},
    {"decoder", [] { return std::vector<c10::IValue>{at::ones({2, 8}, at::kLong)}; }},
    {"gru_train", [] { return std::vector<c10::IValue>{at::ones({2, 6, 10}), c10::IValue()}; }},
    {"convnext", [] { return std::vector<c10::IValue>{at::ones({1, 3, 64, 64})}; }},
    {"resnet18_train", [] { return std::vector<c10::IValue>{at::ones({4, 3, 64, 64})}; }},
};

void collect_outputs(const c10::IValue& value, std::vector<at::Tensor>& outputs) {
  value.visit([&](const c10::IValue& each) {
    if (each.isTensor() && each.toTensor().requires_grad()) {
      outputs.push_back(each.toTensor());
    }
    return false;
  });
}

using Run = std::function<c10::IValue(std::vector<c10::IValue>)>;

double seconds_of_step(const Run& run, const Subject& subject, const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    parameter.mutable_grad().reset();
  }
  std::vector<c10::IValue> arguments = subject.arguments();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<at::Tensor> outputs;
  collect_outputs(run(std::move(arguments)), outputs);
  std::vector<at::Tensor> ones;
  for (const at::Tensor& output : outputs) {
    ones.push_back(at::ones_like(output));
  }
  torch::autograd::backward(outputs, ones);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// One executor, with the parameters that it trains.
struct Entry {
  std::string name;
  torch::jit::Module module;
  std::vector<at::Tensor> parameters;
  std::unique_ptr<sconce::peers::Peer> peer;  // null: sconce
  std::vector<double> seconds;
};

void training(benchmark::State& state, const Subject& subject) {
  at::set_num_threads(1);
  const sconce::Module ours =
      sconce::load(model_file(subject.model), sconce::Options().compile(sconce::CompileMode::kBlocking));
  std::vector<Entry> entries;
  entries.push_back({"sconce", {}, {}, nullptr, {}});
  for (const at::Tensor& parameter : ours.parameters()) {
    entries[0].parameters.push_back(parameter);
  }
  for (const char* name : {"jit", "jit-legacy", "eager"}) {
    Entry entry{name, torch::jit::load(model_file(subject.model)), {}, sconce::peers::make_peer(name), {}};
    for (const at::Tensor& parameter : entry.module.parameters()) {
      entry.parameters.push_back(parameter);
    }
    if (const auto reason = entry.peer->prepare(entry.module, "forward")) {
      state.SkipWithError((std::string(name) + ": " + *reason).c_str());
      return;
    }
    entries.push_back(std::move(entry));
  }
  const size_t warm = is_smoke() ? 2 : 30;
  const size_t steps = is_smoke() ? 2 : 20;
  const auto take = [&](Entry& entry, size_t count, bool counts) {
    const auto session = entry.peer == nullptr ? nullptr : entry.peer->session();
    const Run run = [&](std::vector<c10::IValue> arguments) {
      return session == nullptr ? ours.forward(std::move(arguments)) : session->run(std::move(arguments));
    };
    for (size_t i = 0; i < count; ++i) {
      const double seconds = seconds_of_step(run, subject, entry.parameters);
      if (counts) {
        entry.seconds.push_back(seconds);
      }
    }
  };
  for (Entry& entry : entries) {
    take(entry, warm, /*counts=*/false);
  }
  for (auto _ : state) {
    for (size_t round = 0; round < (is_smoke() ? 1 : 10); ++round) {
      for (Entry& entry : entries) {
        take(entry, 2, /*counts=*/false);
        take(entry, steps, /*counts=*/true);
      }
    }
  }
  const double own = median(entries[0].seconds);
  state.counters["jit"] = std::min(median(entries[1].seconds), median(entries[2].seconds)) / own;
  state.counters["eager"] = median(entries[3].seconds) / own;
  state.counters["own_us"] = own * 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const Subject& subject : kSubjects) {
    benchmark::RegisterBenchmark(subject.model, training, subject)->Iterations(1)->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
