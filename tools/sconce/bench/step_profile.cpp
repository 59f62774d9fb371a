#include "tools/sconce/bench/step_profile.h"

#include "report/explanation_text.h"
#include "report/number_format.h"
#include "report/table.h"
#include "tools/sconce/bench/device_waits.h"
#include "tools/sconce/bench/muted_output.h"
#include "tools/sconce/bench/sconce_peer.h"
#include "tools/sconce/bench/training_peer.h"
#include "tools/sconce/commands/trace_file.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/ui/interruption.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

#include "plan/autograd/differentiable_function.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

namespace sconce::cli {
namespace {

constexpr size_t kRowsOfSteps = 15;
constexpr size_t kRowsOfLines = 10;
constexpr size_t kRowsOfOperators = 15;
// The first calls ask for specialized plans; the arena grows in the first calls of each plan.
constexpr size_t kCallsBefore = 3;
// Of the time of all steps: more than this that is not known gets a note.
constexpr double kShareThatMatters = 0.02;

double seconds_of(const StepProfile& profile) {
  return std::accumulate(profile.steps.begin(), profile.steps.end(), 0.0,
                         [](double sum, const StepTiming& step) { return sum + step.seconds; });
}

// Returns the time that shares are shares of: all of a training step, but of a call only its steps, because the rest is the
// recording.
double whole_of(const StepProfile& profile) { return profile.trains ? profile.seconds : seconds_of(profile); }

// Returns the time of training steps that no step of a plan took. Forked tasks run at the same time.
double seconds_outside_of_plans(const StepProfile& profile) { return std::max(0.0, profile.seconds - seconds_of(profile)); }

double backward_seconds_of(const StepProfile& profile) {
  return std::accumulate(profile.steps.begin(), profile.steps.end(), 0.0, [](double sum, const StepTiming& step) {
    return sum + (is_backward_plan(step.plan) ? step.seconds : 0);
  });
}

// The plan of a recorded step is neither.
bool has_forward_and_backward(const StepProfile& profile) { return profile.trains && !profile.is_one_plan; }

// What the steps have to do in all runs, as far as it is known.
struct WorkOfSteps {
  double flops = 0;
  double bytes = 0;
  double limit = 0;            // seconds: the least that the machine takes for it
  double unknown_seconds = 0;  // that the other steps took
};

// The bytes of constants in one call.
double constant_bytes_of(const StepProfile& profile) {
  double bytes = 0;
  for (const StepTiming& step : profile.steps) {
    bytes += step.work ? step.work->constant_bytes * static_cast<double>(step.runs) : 0;
  }
  return bytes / static_cast<double>(std::max<uint64_t>(1, profile.calls));
}

// Returns the least time of all runs of the step.
std::optional<double> limit_of(const StepTiming& step, const StepProfile& profile, double constant_bytes) {
  const auto seconds = step.work && profile.limits ? profile.limits->seconds_of(*step.work, constant_bytes) : std::nullopt;
  return seconds ? std::optional(*seconds * static_cast<double>(step.runs)) : std::nullopt;
}

WorkOfSteps work_of(const StepProfile& profile) {
  WorkOfSteps all;
  const double constant_bytes = constant_bytes_of(profile);
  for (const StepTiming& step : profile.steps) {
    if (const auto limit = limit_of(step, profile, constant_bytes)) {
      all.flops += step.work->flops * static_cast<double>(step.runs);
      all.bytes += step.work->bytes * static_cast<double>(step.runs);
      all.limit += *limit;
    } else {
      all.unknown_seconds += step.seconds;
    }
  }
  return all;
}

// "92 %": of the machine's limit; "-" where it is not known, or the step does nothing.
std::string limit_cell(const StepTiming& step, const StepProfile& profile, double constant_bytes) {
  const auto limit = limit_of(step, profile, constant_bytes);
  return limit && *limit > 0 ? format_percent(*limit / step.seconds) : "-";
}

std::string rate_cell(const StepTiming& step) {
  return step.work && step.work->flops > 0
             ? format_si(step.work->flops * static_cast<double>(step.runs) / step.seconds) + "FLOP/s"
             : "-";
}

// Returns the line about the work of a call. Empty without limits.
std::string text_of_work(const StepProfile& profile) {
  if (!profile.limits) {
    return "";
  }
  const auto calls = static_cast<double>(profile.calls);
  const WorkOfSteps work = work_of(profile);
  const MachineLimits& limits = *profile.limits;
  const double known = seconds_of(profile) - work.unknown_seconds;
  std::string text = std::string("work of a ") + (profile.trains ? "step" : "call") + ": " + format_si(work.flops / calls) +
                     "FLOP and " + format_bytes(work.bytes / calls) + ", at least " + format_duration(work.limit / calls) +
                     " on this machine: the steps run at " + format_percent(work.limit / known) + " of its limit\n";
  text += "limit with " + std::to_string(limits.threads) + (limits.threads == 1 ? " thread: " : " threads: ") +
          format_si(limits.float_flops) + "FLOP/s of float32; " + format_bytes(limits.bandwidths.front().bytes_per_second) +
          "/s from caches and " + format_bytes(limits.bandwidths.back().bytes_per_second) + "/s from memory\n";
  if (work.unknown_seconds > kShareThatMatters * seconds_of(profile)) {
    text += "note: the work of steps that take " + format_percent(work.unknown_seconds / seconds_of(profile)) +
            " of the time is not known\n";
  }
  return text;
}

// Returns "prepared", "ordinary", or the share of prepared runs.
std::string form_of(uint64_t prepared, uint64_t runs) {
  return prepared == 0      ? "ordinary"
         : prepared == runs ? "prepared"
                            : format_percent(static_cast<double>(prepared) / static_cast<double>(runs)) + " prepared";
}

std::string source_cell(const std::string& source) { return source.empty() ? "-" : short_source(source); }

// Adds a row for the entries after the first `rows`.
template <typename Timing>
void add_rest(Table& table, const std::vector<Timing>& timings, size_t rows, double all, double calls,
              bool has_backward_column = false) {
  if (timings.size() <= rows) {
    return;
  }
  double seconds = 0;
  double runs = 0;
  for (size_t i = rows; i < timings.size(); ++i) {
    seconds += timings[i].seconds;
    runs += static_cast<double>(timings[i].runs);
  }
  std::vector<std::string> cells = {format_percent(seconds / all), format_duration(seconds / calls),
                                    format_rate(runs / calls), format_duration(seconds / runs),
                                    std::to_string(timings.size() - rows) + " others"};
  if (has_backward_column) {
    cells.insert(cells.begin() + 2, "");
  }
  table.add_row(std::move(cells));
}

// Adds a row for what is no step of a plan: checks of arguments; unless one plan runs all, loss, optimizer, and operators
// that autograd runs one by one.
void add_outside(Table& table, const StepProfile& profile, bool has_backward_column = false) {
  if (!profile.trains) {
    return;
  }
  const double seconds = seconds_outside_of_plans(profile);
  std::vector<std::string> cells = {format_percent(seconds / profile.seconds),
                                    format_duration(seconds / static_cast<double>(profile.calls)), "", "",
                                    "outside of plans"};
  if (has_backward_column) {
    cells.insert(cells.begin() + 2, "");
  }
  table.add_row(std::move(cells));
}

std::string table_of_steps(const StepProfile& profile) {
  std::vector<Column> columns = {{"share"},
                                 {"per call"},
                                 {"runs/call"},
                                 {"per run"},
                                 {"operator", Align::kLeft},
                                 {"how", Align::kLeft},
                                 {"of limit"},
                                 {"rate", Align::kRight, 2},
                                 {"step", Align::kRight, 1},
                                 {"source line", Align::kLeft}};
  if (has_forward_and_backward(profile)) {
    columns.push_back({"plan", Align::kLeft});
  }
  Table table(std::move(columns));
  const double all = whole_of(profile);
  const auto calls = static_cast<double>(profile.calls);
  const double constant_bytes = constant_bytes_of(profile);
  for (size_t i = 0; i < std::min(kRowsOfSteps, profile.steps.size()); ++i) {
    const StepTiming& step = profile.steps[i];
    const auto runs = static_cast<double>(step.runs);
    std::vector<std::string> cells = {format_percent(step.seconds / all),
                                      format_duration(step.seconds / calls),
                                      format_rate(runs / calls),
                                      format_duration(step.seconds / runs),
                                      step.op,
                                      form_of(step.prepared_runs, step.runs),
                                      limit_cell(step, profile, constant_bytes),
                                      rate_cell(step),
                                      std::to_string(step.position),
                                      source_cell(step.source)};
    if (has_forward_and_backward(profile)) {
      cells.emplace_back(is_backward_plan(step.plan) ? "backward" : "forward");
    }
    table.add_row(std::move(cells));
  }
  add_rest(table, profile.steps, kRowsOfSteps, all, calls);
  add_outside(table, profile);
  return table.render(std::max<size_t>(output_width(), 80));
}

template <typename Timing>
void sort_by_time(std::vector<Timing>& timings) {
  std::stable_sort(timings.begin(), timings.end(), [](const Timing& a, const Timing& b) { return a.seconds > b.seconds; });
}

// Adds up the steps of each operator.
std::string table_of_operators(const StepProfile& profile) {
  std::map<std::string, StepTiming> sums;
  for (const StepTiming& step : profile.steps) {
    StepTiming& sum = sums[step.op];
    sum.op = step.op;
    sum.runs += step.runs;
    sum.prepared_runs += step.prepared_runs;
    sum.seconds += step.seconds;
  }
  std::vector<StepTiming> operators;
  for (auto& [name, sum] : sums) {
    operators.push_back(std::move(sum));
  }
  sort_by_time(operators);
  Table table({{"share"}, {"per call"}, {"runs/call"}, {"per run"}, {"operator", Align::kLeft}, {"how", Align::kLeft}});
  const double all = whole_of(profile);
  const auto calls = static_cast<double>(profile.calls);
  for (size_t i = 0; i < std::min(kRowsOfOperators, operators.size()); ++i) {
    const StepTiming& sum = operators[i];
    const auto runs = static_cast<double>(sum.runs);
    table.add_row({format_percent(sum.seconds / all), format_duration(sum.seconds / calls), format_rate(runs / calls),
                   format_duration(sum.seconds / runs), sum.op, form_of(sum.prepared_runs, sum.runs)});
  }
  add_rest(table, operators, kRowsOfOperators, all, calls);
  add_outside(table, profile);
  return table.render(std::max<size_t>(output_width(), 80));
}

std::string table_of_lines(const StepProfile& profile) {
  std::vector<Column> columns = {{"share"},
                                 {"per call"},
                                 {"steps/call"},
                                 {"per step"},
                                 {"source line", Align::kLeft},
                                 {"how", Align::kLeft},
                                 {"operators", Align::kLeft}};
  if (has_forward_and_backward(profile)) {
    columns.insert(columns.begin() + 2, {"backward"});
  }
  Table table(std::move(columns));
  const double all = whole_of(profile);
  const auto calls = static_cast<double>(profile.calls);
  const std::vector<LineTiming> lines = lines_of(profile.steps);
  for (size_t i = 0; i < std::min(kRowsOfLines, lines.size()); ++i) {
    const LineTiming& line = lines[i];
    const auto runs = static_cast<double>(line.runs);
    constexpr size_t kOperators = 3;
    std::string ops;
    for (size_t op = 0; op < std::min(kOperators, line.ops.size()); ++op) {
      ops += (op == 0 ? "" : ", ") + line.ops[op];
    }
    ops += line.ops.size() > kOperators ? ", ..." : "";
    std::vector<std::string> cells = {format_percent(line.seconds / all),
                                      format_duration(line.seconds / calls),
                                      format_rate(runs / calls),
                                      format_duration(line.seconds / runs),
                                      source_cell(line.source),
                                      form_of(line.prepared_runs, line.runs),
                                      ops};
    if (has_forward_and_backward(profile)) {
      cells.insert(cells.begin() + 2, format_duration(line.backward_seconds / calls));
    }
    table.add_row(std::move(cells));
  }
  add_rest(table, lines, kRowsOfLines, all, calls, has_forward_and_backward(profile));
  add_outside(table, profile, has_forward_and_backward(profile));
  return table.render(std::max<size_t>(output_width(), 80));
}

// Returns how many calls like this one a trace has room for.
size_t calls_in_a_trace(const std::function<void()>& call) {
  StepTrace trace;
  call();
  size_t steps = 0;
  for (const StepTiming& step : trace.timings()) {
    steps += step.runs;
  }
  return StepTrace::kMaxSteps / std::max<size_t>(1, 2 * steps);  // each step could be a run of its own
}

}  // namespace

StepProfile profile_steps(const MeasureSettings& settings, const Options& options, const std::string& trace_out,
                          const std::function<void()>& progress) {
  const torch::autograd::AutoGradMode grad_mode(settings.with_grad);
  MutedOutput muted;
  const MutedOutput::OnThread muted_here(muted);
  const torch::jit::Module module = settings.load();
  std::unique_ptr<peers::Peer> peer;
  std::unique_ptr<peers::Peer::Session> session;
  const std::vector<c10::IValue> arguments = fit_arguments(module, settings.method, settings.arguments);
  const DeviceWaits devices(module, arguments);
  double seconds = 0;  // without the copies of the arguments
  const auto call = [&] {
    std::vector<c10::IValue> copies = deep_copy(arguments);
    devices.wait();
    const auto start = std::chrono::steady_clock::now();
    session->run(std::move(copies));
    devices.wait();
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // Calls a peer until its plans are made. Returns why its calls are not what its name says.
  const auto begin_with = [&](std::unique_ptr<peers::Peer> made) {
    session.reset();
    peer = std::move(made);
    at::manual_seed(settings.seed);
    auto why_not = peer->prepare(module, settings.method);
    for (int phase = 0; phase < 2 && !why_not; ++phase) {
      session = peer->session();  // waits for the plans that calls have asked for
      for (size_t i = 0; i < kCallsBefore; ++i) {
        call();
      }
    }
    return why_not ? why_not : peer->remark();
  };
  StepProfile profile;
  profile.trains = settings.train.has_value();
  profile.is_one_plan = profile.trains && !begin_with(make_step_peer(options, *settings.train));
  if (!profile.is_one_plan) {
    auto plain = with_autocast_of_calls(std::make_unique<SconcePeer>(options));
    if (profile.trains) {
      plain = make_training_peer(std::move(plain), *settings.train);
    }
    if (const auto reason = begin_with(std::move(plain))) {
      throw RefusedError(*reason);
    }
  }
  const size_t max_calls = calls_in_a_trace(call);
  StepTrace trace;
  seconds = 0;
  const auto begin = std::chrono::steady_clock::now();
  size_t calls = 0;
  size_t pieces = 0;
  double share = 0;  // of the time
  do {
    call();
    ++calls;
    share = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / settings.seconds;
    for (; pieces < kPiecesOfProfile && share * static_cast<double>(kPiecesOfProfile) >= static_cast<double>(pieces + 1);
         ++pieces) {
      progress();
    }
  } while (share < 1 && calls < max_calls && !trace.is_full() && !interrupted());
  // Backward plans run outside of the call of the model.
  profile.calls = profile.trains ? calls : trace.calls();
  profile.seconds = profile.trains ? seconds : trace.seconds();
  profile.dropped_steps = trace.dropped_steps();
  profile.steps = trace.timings();
  sort_by_time(profile.steps);
  if (!devices.any()) {
    profile.limits = limits_of_this_machine(at::get_num_threads());
  }
  if (!trace_out.empty()) {
    write_trace(trace, trace_out);
  }
  return profile;
}

std::vector<LineTiming> lines_of(const std::vector<StepTiming>& steps) {
  std::map<std::string, LineTiming> lines;
  for (const StepTiming& step : steps) {
    const std::string line = step.source.substr(0, step.source.rfind(':'));  // without the column
    LineTiming& sum = lines[line];
    sum.source = line;
    if (std::find(sum.ops.begin(), sum.ops.end(), step.op) == sum.ops.end()) {
      sum.ops.push_back(step.op);
    }
    sum.runs += step.runs;
    sum.prepared_runs += step.prepared_runs;
    sum.seconds += step.seconds;
    sum.backward_seconds += is_backward_plan(step.plan) ? step.seconds : 0;
  }
  std::vector<LineTiming> sorted;
  for (auto& [source, line] : lines) {
    sorted.push_back(std::move(line));
  }
  sort_by_time(sorted);
  return sorted;
}

std::string to_text(const StepProfile& profile) {
  const auto calls = static_cast<double>(profile.calls);
  const double backward = backward_seconds_of(profile);
  const auto per_call = [&](double seconds) { return format_duration(seconds / calls); };
  const std::string what = profile.is_one_plan ? " recorded training steps" : profile.trains ? " training steps" : " calls";
  std::string text = "profile of " + format_count(profile.calls) + what + " on one thread: " + per_call(profile.seconds) +
                     (profile.trains ? " a step" : " a call") + ", of which ";
  text += has_forward_and_backward(profile)
              ? "forward plans take " + per_call(seconds_of(profile) - backward) + " and backward plans " +
                    per_call(backward) +
                    "; the rest, outside of plans, is the loss, LibTorch's autograd and optimizer, and the recording\n"
              : std::string(profile.is_one_plan ? "the steps of the plan" : "the steps") + " take " +
                    per_call(seconds_of(profile)) + "; the rest is the recording, mostly\n";
  if (profile.dropped_steps > 0) {
    text +=
        "note: a call has more steps than the trace has room for; " + format_count(profile.dropped_steps) + " are missing\n";
  }
  text += text_of_work(profile);
  // A recording knows no lines of the model's source.
  text += table_of_steps(profile) + "\n";
  return text + (profile.is_one_plan ? table_of_operators(profile) : table_of_lines(profile));
}

Json to_json(const StepProfile& profile) {
  Json steps = Json::array();
  const double constant_bytes = constant_bytes_of(profile);
  for (const StepTiming& step : profile.steps) {
    const auto limit = limit_of(step, profile, constant_bytes);
    steps.push_back(Json{{"plan", step.plan},
                         {"step", step.position},
                         {"operator", step.op},
                         {"node", step.node},
                         {"source", step.source},
                         {"runs", step.runs},
                         {"prepared_runs", step.prepared_runs},
                         {"is_backward", is_backward_plan(step.plan)},
                         {"flops", step.work ? Json(step.work->flops) : Json()},
                         {"bytes", step.work ? Json(step.work->bytes) : Json()},
                         {"limit_seconds", limit ? Json(*limit) : Json()},
                         {"seconds", step.seconds}});
  }
  const WorkOfSteps work = work_of(profile);
  Json lines = Json::array();
  for (const LineTiming& line : lines_of(profile.steps)) {
    lines.push_back(Json{{"source", line.source},
                         {"operators", line.ops},
                         {"runs", line.runs},
                         {"prepared_runs", line.prepared_runs},
                         {"backward_seconds", line.backward_seconds},
                         {"seconds", line.seconds}});
  }
  return Json{{"calls", profile.calls},
              {"trains", profile.trains},
              {"is_one_plan", profile.is_one_plan},
              {"seconds", profile.seconds},
              {"step_seconds", seconds_of(profile)},
              {"backward_seconds", backward_seconds_of(profile)},
              {"outside_of_plans_seconds", seconds_outside_of_plans(profile)},
              {"dropped_steps", profile.dropped_steps},
              {"flops", work.flops},
              {"bytes", work.bytes},
              {"limit_seconds", profile.limits ? Json(work.limit) : Json()},
              {"unknown_work_seconds", work.unknown_seconds},
              {"machine_limits", profile.limits ? to_json(*profile.limits) : Json()},
              {"steps", std::move(steps)},
              {"lines", std::move(lines)}};
}

}  // namespace sconce::cli
