#include "tools/sconce/bench/measure.h"

#include "base/exception_message.h"
#include "tools/sconce/bench/device_waits.h"
#include "tools/sconce/bench/muted_output.h"
#include "tools/sconce/bench/resident_memory.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/ui/interruption.h"
#include "tools/sconce/ui/percentile.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <latch>
#include <thread>

namespace sconce::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSliceSeconds = 0.05;
constexpr size_t kLeastRounds = 6;  // an interval needs as many (confidence.h)
// A model whose call takes longer than this is loaded once, and called less often before the steady state.
constexpr double kSlowCall = 0.3;
constexpr size_t kFirstCallsOfSlowModels = 3;
constexpr size_t kRoundsForSpread = 5;
// The limit for tiny models: enough for percentiles, few enough to keep.
constexpr size_t kMaxSamples = 2'000'000;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

size_t rounds_of(const MeasureSettings& settings) {
  return std::max(kLeastRounds, static_cast<size_t>(std::lround(settings.seconds / kSliceSeconds)));
}

// The results that are compared.
struct Results {
  c10::IValue first;
  c10::IValue last;
};

struct FirstCalls {
  std::vector<double> seconds;
  Results results;
  double memory_bytes = 0;
};

class Bench {
 public:
  Bench(const std::vector<Contestant>& contestants, const MeasureSettings& settings, const MeasureProgress& progress)
      : contestants_(contestants),
        settings_(settings),
        progress_(progress),
        peers_(contestants.size()),
        arguments_(contestants.size()),
        rows_(contestants.size()) {}

  MeasurementTable run() {
    const torch::autograd::AutoGradMode grad_mode(settings_.with_grad);
    const MutedOutput::OnThread muted(muted_);
    find_reference();
    for (size_t i = 0; i < contestants_.size(); ++i) {
      rows_[i].name = contestants_[i].name;
    }
    measure_first_calls();
    const bool complete = measure_steady_state();
    return {std::move(rows_), muted_.count(), complete};
  }

 private:
  // Eager LibTorch's results, and whether the model writes its arguments.
  void find_reference() {
    const auto eager = caller_of({"eager", [] { return peers::make_peer("eager"); }}, settings_);
    const torch::jit::Module module = settings_.load();
    if (const auto reason = eager->prepare(module, settings_.method)) {
      throw RefusedError("LibTorch cannot run the model: " + *reason);
    }
    const auto session = eager->session();
    const std::vector<c10::IValue> own = fit_arguments(module, settings_.method, settings_.arguments);
    devices_ = DeviceWaits(module, own);
    std::vector<c10::IValue> arguments = deep_copy(own);
    at::manual_seed(settings_.seed);
    const auto start = Clock::now();
    try {
      reference_.first = deep_copy(session->run(arguments));
    } catch (const std::exception&) {
      throw_as_sconce();
      throw;
    }
    if (seconds_since(start) > kSlowCall) {
      first_calls_ = kFirstCallsOfSlowModels;
      loads_ = 1;
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      mutates_ = mutates_ || !compare(arguments[i], own[i], {0, 0, false}, "", 1).empty();
    }
    for (size_t call = 2; call <= first_calls_; ++call) {
      at::manual_seed(settings_.seed);
      reference_.last = deep_copy(session->run(deep_copy(own)));
    }
  }

  // Makes the call that LibTorch rejects, in sconce, whose error names the node and the line of the model.
  void throw_as_sconce() const {
    const auto peer = caller_of(contestants_.front(), settings_);
    const torch::jit::Module module = settings_.load();
    if (!peer->prepare(module, settings_.method)) {
      at::manual_seed(settings_.seed);
      peer->session()->run(deep_copy(fit_arguments(module, settings_.method, settings_.arguments)));
    }
  }

  void measure_first_calls() {
    std::vector<std::vector<FirstCalls>> loads(contestants_.size());
    for (size_t load = 0; load < settings_.loads; ++load) {
      for (size_t i = 0; i < contestants_.size(); ++i) {
        progress_(contestants_[i].name);
        if (interrupted()) {
          throw Interrupted();
        }
        if (rows_[i].not_available || load >= loads_) {
          continue;
        }
        try {
          loads[i].push_back(first_calls_of(i));
        } catch (const std::exception& failure) {
          rows_[i].not_available = "raises: " + one_line_message(failure);
        }
      }
    }
    for (size_t i = 0; i < contestants_.size(); ++i) {
      if (!rows_[i].not_available) {
        summarize(loads[i], rows_[i]);
      }
    }
  }

  FirstCalls first_calls_of(size_t i) {
    peers_[i].reset();
    FirstCalls calls;
    const double memory_before = resident_bytes();
    const torch::jit::Module module = settings_.load();
    const auto prepare_start = Clock::now();
    peers_[i] = caller_of(contestants_[i], settings_);
    if (const auto reason = peers_[i]->prepare(module, settings_.method)) {
      rows_[i].not_available = *reason;
      return calls;
    }
    const auto session = peers_[i]->session();
    double not_in_calls = seconds_since(prepare_start);
    arguments_[i] = fit_arguments(module, settings_.method, settings_.arguments);
    for (size_t call = 1; call <= first_calls_; ++call) {
      std::vector<c10::IValue> arguments = deep_copy(arguments_[i]);
      at::manual_seed(settings_.seed);
      devices_.wait();
      const auto start = Clock::now();
      const c10::IValue output = session->run(std::move(arguments));
      devices_.wait();
      calls.seconds.push_back(seconds_since(start) + not_in_calls);
      not_in_calls = 0;
      // Compared later, but copied now: an executor may reuse its outputs' memory.
      if (call == 1 || call == first_calls_) {
        (call == 1 ? calls.results.first : calls.results.last) = deep_copy(output);
      }
    }
    calls.memory_bytes = resident_bytes() - memory_before;
    return calls;
  }

  void summarize(const std::vector<FirstCalls>& loads, Measurement& row) {
    for (size_t call = 0; call < first_calls_; ++call) {
      std::vector<double> seconds;
      for (const FirstCalls& load : loads) {
        seconds.push_back(load.seconds[call]);
      }
      row.first_calls.push_back(ui::median(seconds));
    }
    if (loads.back().memory_bytes >= kMemoryResolution) {
      row.memory_bytes = loads.back().memory_bytes;
    }
    for (const FirstCalls& load : loads) {
      auto found = compare(load.results.first, reference_.first, settings_.tolerance, "out", 1);
      size_t call = 1;
      if (found.empty()) {
        found = compare(load.results.last, reference_.last, settings_.tolerance, "out", 1);
        call = first_calls_;
      }
      if (!found.empty() && !row.wrong) {
        row.wrong = "call " + std::to_string(call) + ", " + to_string(found.front());
      }
    }
  }

  // Returns whether it was not ended early.
  bool measure_steady_state() {
    const size_t rounds = rounds_of(settings_);
    std::vector<double> wall(contestants_.size(), 0);
    std::vector<size_t> calls(contestants_.size(), 0);
    std::vector<Slice> steady(contestants_.size());
    size_t round = 0;
    for (; round < rounds && (round == 0 || !interrupted()); ++round) {
      for (size_t i = 0; i < contestants_.size(); ++i) {
        if (interrupted() && round == 0) {
          throw Interrupted();
        }
        progress_(contestants_[i].name);
        if (rows_[i].not_available) {
          continue;
        }
        try {
          const auto start = Clock::now();
          const Slice slice = run_slice(*peers_[i], arguments_[i], settings_.seconds / static_cast<double>(rounds));
          wall[i] += seconds_since(start);
          calls[i] += slice.calls.size();
          rows_[i].rounds.push_back(ui::median(slice.calls));
          if (steady[i].calls.size() < kMaxSamples) {
            steady[i].append(slice);
          }
        } catch (const std::exception& failure) {
          rows_[i].not_available = "raises: " + one_line_message(failure);
        }
      }
    }
    for (size_t i = 0; i < contestants_.size(); ++i) {
      rows_[i].steady = std::move(steady[i].calls);
      for (const std::vector<double>& part : steady[i].parts) {
        if (!part.empty()) {
          rows_[i].parts.push_back(ui::median(part));
        }
      }
      rows_[i].remark = peers_[i] != nullptr ? peers_[i]->remark() : std::nullopt;
      rows_[i].calls_per_second = wall[i] > 0 ? static_cast<double>(calls[i]) / wall[i] : 0;
      const std::vector<double>& medians = rows_[i].rounds;
      if (medians.size() >= kRoundsForSpread) {
        rows_[i].spread = spread_of(medians);
      }
    }
    return round == rounds;
  }

  // The times of the calls of all threads, and of their parts.
  struct Slice {
    std::vector<double> calls;
    std::array<std::vector<double>, peers::parts_of_steps.size()> parts;

    void append(const Slice& other) {
      calls.insert(calls.end(), other.calls.begin(), other.calls.end());
      for (size_t part = 0; part < parts.size(); ++part) {
        parts[part].insert(parts[part].end(), other.parts[part].begin(), other.parts[part].end());
      }
    }
  };

  Slice run_slice(peers::Peer& peer, const std::vector<c10::IValue>& shared, double seconds) {
    std::vector<Slice> slices(settings_.threads);
    std::vector<std::exception_ptr> failures(settings_.threads);
    std::latch start(static_cast<std::ptrdiff_t>(settings_.threads));
    const auto guarded = [&](size_t thread, const auto& piece) {
      try {
        piece();
      } catch (const std::exception&) {
        failures[thread] = std::current_exception();
      }
    };
    const auto work = [&](size_t thread) {
      const torch::autograd::AutoGradMode grad_mode(settings_.with_grad);
      const MutedOutput::OnThread muted(muted_);
      at::get_num_threads();  // initializes the thread with the number of intra-op threads; LibTorch's executors may not
      std::vector<c10::IValue> own;
      std::unique_ptr<peers::Peer::Session> session;
      guarded(thread, [&] {
        own = deep_copy(shared);
        session = peer.session();
      });
      start.arrive_and_wait();
      if (session) {
        guarded(thread, [&] { call_for(*session, own, seconds, slices[thread]); });
      }
    };
    std::vector<std::thread> others;
    for (size_t thread = 1; thread < settings_.threads; ++thread) {
      others.emplace_back(work, thread);
    }
    work(0);
    for (std::thread& other : others) {
      other.join();
    }
    Slice all;
    for (size_t thread = 0; thread < settings_.threads; ++thread) {
      if (failures[thread]) {
        std::rethrow_exception(failures[thread]);
      }
      all.append(slices[thread]);
    }
    return all;
  }

  void call_for(peers::Peer::Session& session, const std::vector<c10::IValue>& own, double seconds, Slice& slice) const {
    const auto begin = Clock::now();
    do {
      std::vector<c10::IValue> arguments = mutates_ ? deep_copy(own) : own;
      devices_.wait();
      const auto start = Clock::now();
      const c10::IValue output = session.run(std::move(arguments));
      devices_.wait();
      slice.calls.push_back(seconds_since(start));
      const std::vector<double> parts = session.seconds_of_parts();
      for (size_t part = 0; part < parts.size(); ++part) {
        slice.parts[part].push_back(parts[part]);
      }
    } while (seconds_since(begin) < seconds && !interrupted());
  }

  const std::vector<Contestant>& contestants_;
  const MeasureSettings& settings_;
  const MeasureProgress& progress_;
  MutedOutput muted_;
  std::vector<std::unique_ptr<peers::Peer>> peers_;
  std::vector<std::vector<c10::IValue>> arguments_;  // by peer
  std::vector<Measurement> rows_;
  Results reference_;
  DeviceWaits devices_;
  bool mutates_ = false;
  size_t first_calls_ = kFirstCalls;
  size_t loads_ = settings_.loads;
};

}  // namespace

std::unique_ptr<peers::Peer> caller_of(const Contestant& contestant, const MeasureSettings& settings) {
  if (contestant.runs_steps) {
    return contestant.make();
  }
  auto called = with_autocast_of_calls(contestant.make());
  return settings.train ? make_training_peer(std::move(called), *settings.train) : std::move(called);
}

double spread_of(const std::vector<double>& rounds) {
  return (ui::percentile(rounds, 0.9) - ui::percentile(rounds, 0.1)) / ui::median(rounds);
}

size_t pieces_of_work(size_t contestants, const MeasureSettings& settings) {
  return contestants * (settings.loads + rounds_of(settings));
}

MeasurementTable measure(const std::vector<Contestant>& contestants, const MeasureSettings& settings,
                         const MeasureProgress& progress) {
  return Bench(contestants, settings, progress).run();
}

}  // namespace sconce::cli
