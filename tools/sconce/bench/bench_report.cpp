#include "tools/sconce/bench/bench_report.h"

#include "report/number_format.h"
#include "report/table.h"
#include "tools/sconce/ui/percentile.h"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <set>

namespace sconce::cli {
namespace {

// Above this spread the machine is busy otherwise, and small differences mean nothing.
constexpr double kNoisySpread = 0.15;
constexpr size_t kFewCalls = 10;

Json json_of(const Ratios& ratios) {
  Json json{{"ratio_steady", number_or_null(ratios.steady)},
            {"ratio_first_call", number_or_null(ratios.first_call)},
            {"ratio_first_calls", number_or_null(ratios.first_calls)}};
  if (ratios.steady_interval) {
    json["ratio_steady_interval"] = {ratios.steady_interval->low, ratios.steady_interval->high};
  }
  return json;
}

Json json_of(const Measurement& row, const Measurement& sconce) {
  Json json{{"executor", row.name}};
  if (row.not_available) {
    json["not_available"] = *row.not_available;
    return json;
  }
  json.update(json_of(ratios_of(row, sconce)));
  json["median_seconds"] = number_or_null(ui::median(row.steady));
  json["min_seconds"] = number_or_null(ui::percentile(row.steady, 0));
  json["p90_seconds"] = number_or_null(ui::percentile(row.steady, 0.9));
  json["p99_seconds"] = number_or_null(ui::percentile(row.steady, 0.99));
  json["spread"] = number_or_null(row.spread);
  json["calls"] = row.steady.size();
  json["first_calls_seconds"] = row.first_calls;
  json["calls_per_second"] = number_or_null(row.calls_per_second);
  if (!row.cold_calls.empty()) {
    json["cold_calls_seconds"] = row.cold_calls;
    json["process_bytes"] = number_or_null(row.process_bytes.value_or(NAN));
  }
  json["memory_bytes"] = row.memory_bytes ? Json(*row.memory_bytes) : Json();
  json["correct"] = !row.wrong;
  for (size_t part = 0; part < row.parts.size(); ++part) {
    json[std::string(peers::parts_of_steps[part]) + "_seconds"] = row.parts[part];
  }
  if (row.remark) {
    json["remark"] = *row.remark;
  }
  if (row.wrong) {
    json["wrong"] = *row.wrong;
  }
  return json;
}

Json json_of(const BenchedModel& model) {
  Json executors = Json::array();
  for (const Measurement& row : model.table.rows) {
    executors.push_back(json_of(row, model.table.rows.front()));
  }
  Json json{{"model", model.path},
            {"method", model.settings.method},
            {"inputs", inputs_text(model)},
            {"threads", model.settings.threads},
            {"intra_op_threads", model.intra_op_threads},
            {"processes", model.processes},
            {"settings", model.options},
            {"complete", model.table.complete},
            {"muted_messages", model.table.muted},
            {"executors", std::move(executors)}};
  if (model.baseline) {
    json["baseline"] = to_json(*model.baseline);
  }
  if (model.profile) {
    json["profile"] = to_json(*model.profile);
  }
  return json;
}

// Returns a line with eager LibTorch's times of the first training steps as multiples of sconce's, which compiles plans in
// the background meanwhile. Empty if they were not measured.
std::string first_steps_of(const BenchedModel& model) {
  constexpr size_t kSteps = 5;
  const Measurement& sconce = model.table.rows.front();
  std::string text;
  for (const Measurement& row : model.table.rows) {
    const size_t steps = std::min({kSteps, row.first_calls.size(), sconce.first_calls.size()});
    for (size_t i = 0; model.settings.train && row.name == "eager" && i < steps; ++i) {
      text += (i == 0 ? "eager, steps 1 to " + std::to_string(steps) + ":" : "") + " " +
              format_ratio(row.first_calls[i] / sconce.first_calls[i]);
    }
  }
  return text.empty() ? "" : text + "\n";
}

// Returns a table of the parts of training steps, ratios first. Empty if no executor's steps have parts.
std::string parts_of(const MeasurementTable& measured) {
  Table table(
      {{"in a step", Align::kLeft}, {"forward"}, {"backward"}, {"both"}, {"|"}, {"forward"}, {"backward"}, {"optimizer"}});
  const std::vector<double>& sconce = measured.rows.front().parts;
  for (const Measurement& row : measured.rows) {
    if (row.parts.size() == 3 && sconce.size() == 3) {
      const double both = (row.parts[0] + row.parts[1]) / (sconce[0] + sconce[1]);
      table.add_row({row.name, format_ratio(row.parts[0] / sconce[0]), format_ratio(row.parts[1] / sconce[1]),
                     format_ratio(both), "|", format_duration(row.parts[0]), format_duration(row.parts[1]),
                     format_duration(row.parts[2])});
    }
  }
  return sconce.empty() ? "" : table.render(std::max<size_t>(output_width(), 80));
}

// Returns a note if LibTorch's optimizer takes much of sconce's step. Empty if it does not.
std::string optimizer_of(const MeasurementTable& measured) {
  constexpr double kMuch = 0.2;
  const std::vector<double>& parts = measured.rows.front().parts;
  const double share = parts.size() == 3 ? parts[2] / (parts[0] + parts[1] + parts[2]) : 0;
  return share < kMuch ? ""
                       : "note: LibTorch's optimizer takes " + format_percent(share) +
                             " of sconce's step. sconce::CapturedOptimizer(optimizer) steps it by one\n      kernel a "
                             "parameter, and sconce::TrainStep records the whole step (docs/training.md)\n";
}

// Returns a table of first calls in processes that did nothing before. Empty if there were none.
std::string cold_calls_of(const MeasurementTable& measured) {
  Table table({{"in a new process", Align::kLeft}, {"first call"}, {"|"}, {"median"}, {"least"}, {"most"}, {"memory"}});
  const Measurement& sconce = measured.rows.front();
  for (const Measurement& row : measured.rows) {
    if (!row.cold_calls.empty()) {
      table.add_row({row.name, format_ratio(ui::median(row.cold_calls) / ui::median(sconce.cold_calls)), "|",
                     format_duration(ui::median(row.cold_calls)), format_duration(ui::percentile(row.cold_calls, 0)),
                     format_duration(ui::percentile(row.cold_calls, 1)), format_bytes(row.process_bytes.value_or(NAN))});
    }
  }
  return sconce.cold_calls.empty() ? "" : table.render(std::max<size_t>(output_width(), 80));
}

// Returns a note on executors whose difference from sconce is within what rounds differ by.
std::string equals_of(const MeasurementTable& table) {
  std::string names;
  for (size_t i = 1; i < table.rows.size(); ++i) {
    const auto interval = ratios_of(table.rows[i], table.rows.front()).steady_interval;
    if (interval && interval->contains(1)) {
      names += (names.empty() ? "" : ", ") + table.rows[i].name;
    }
  }
  return names.empty() ? "" : "note: neither faster nor slower than sconce, within the interval: " + names + "\n";
}

// Returns a note on ratios of so few calls that they say little.
std::string rare_calls_of(const MeasurementTable& table) {
  std::string names;
  for (const Measurement& row : table.rows) {
    if (!row.not_available && row.steady.size() < kFewCalls) {
      names += (names.empty() ? "" : ", ") + row.name + " " + std::to_string(row.steady.size());
    }
  }
  return names.empty() ? "" : "note: few calls were measured (" + names + "); measure longer with --seconds\n";
}

}  // namespace

double total(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

Ratios ratios_of(const Measurement& row, const Measurement& sconce) {
  if (row.not_available || sconce.not_available) {
    return {};
  }
  const std::vector<double> rounds = ratios_of_rounds(row.rounds, sconce.rounds);
  const auto interval = &row == &sconce ? std::nullopt : interval_of_median(rounds);
  return {interval ? ui::median(rounds) : ui::median(row.steady) / ui::median(sconce.steady),
          row.first_calls[0] / sconce.first_calls[0], total(row.first_calls) / total(sconce.first_calls), interval};
}

Ratios mean_ratios(const std::vector<BenchedModel>& models, size_t index) {
  Ratios logs = {0, 0, 0};
  for (const BenchedModel& model : models) {
    const Ratios ratios = ratios_of(model.table.rows[index], model.table.rows.front());
    logs = {logs.steady + std::log(ratios.steady), logs.first_call + std::log(ratios.first_call),
            logs.first_calls + std::log(ratios.first_calls)};
  }
  const auto count = static_cast<double>(models.size());
  return {std::exp(logs.steady / count), std::exp(logs.first_call / count), std::exp(logs.first_calls / count)};
}

std::string inputs_text(const BenchedModel& model) {
  std::string inputs;
  for (const c10::IValue& argument : model.settings.arguments) {
    inputs += inputs.empty() ? "" : ", ";
    inputs += argument.isTensor() ? describe_tensor_type(argument.toTensor()) : kind_of_value(argument);
  }
  return inputs;
}

std::string title_of(const BenchedModel& model) {
  const size_t threads = model.settings.threads;
  return model.path + ": " + model.settings.method + "(" + inputs_text(model) + "), " + std::to_string(threads) +
         (threads == 1 ? " calling thread, " : " calling threads, ") + std::to_string(model.intra_op_threads) + " intra-op" +
         (model.processes == 1 ? "" : ", " + std::to_string(model.processes) + " processes");
}

std::string text_of(const std::optional<Interval>& interval) {
  return interval ? format_ratio(interval->low) + " to " + format_ratio(interval->high) : "-";
}

std::string memory_of(const Measurement& row) {
  return row.memory_bytes ? format_bytes(*row.memory_bytes) : "< " + format_bytes(kMemoryResolution);
}

std::string notes_of(const MeasurementTable& table) {
  std::string notes;
  for (const Measurement& row : table.rows) {
    if (row.not_available) {
      notes += row.name + ": n/a: " + *row.not_available + "\n";
    } else if (row.wrong) {
      notes += row.name + ": WRONG RESULT: " + *row.wrong + "\n";
    }
    if (row.remark) {
      notes += "note: " + row.name + ": " + *row.remark + "\n";
    }
  }
  if (table.muted > 0) {
    notes += "note: the model printed or warned " + format_count(table.muted) + " times; not shown while measuring\n";
  }
  const Measurement& sconce = table.rows.front();
  if (!sconce.not_available && sconce.spread > kNoisySpread) {
    notes += "note: the machine is noisy: sconce's own median moved by " + format_percent(sconce.spread) +
             " between rounds; smaller\n      differences mean nothing. Close other programs, or measure longer with "
             "--seconds\n";
  }
  notes += equals_of(table) + rare_calls_of(table);
  if (!table.complete) {
    notes += "note: interrupted: the steady state was measured for less time than asked\n";
  }
  return notes;
}

std::string to_text(const BenchedModel& model) {
  Table table({{"executor", Align::kLeft},
               {"steady"},
               {"95 % interval", Align::kRight, 3},
               {"first call"},
               {"first calls", Align::kRight, 4},
               {"|"},
               {"median"},
               {"min", Align::kRight, 7},
               {"p90", Align::kRight, 2},
               {"p99", Align::kRight, 6},
               {"first call", Align::kRight, 1},
               {"first calls", Align::kRight, 5},
               {"calls/s", Align::kRight, 8},
               {"memory", Align::kRight, 1}});
  for (const Measurement& row : model.table.rows) {
    if (row.not_available) {
      table.add_row({row.name, "n/a"});
      continue;
    }
    const Ratios ratios = ratios_of(row, model.table.rows.front());
    table.add_row({row.name, format_ratio(ratios.steady), text_of(ratios.steady_interval), format_ratio(ratios.first_call),
                   format_ratio(ratios.first_calls), "|", format_duration(ui::median(row.steady)),
                   format_duration(ui::percentile(row.steady, 0)), format_duration(ui::percentile(row.steady, 0.9)),
                   format_duration(ui::percentile(row.steady, 0.99)), format_duration(row.first_calls[0]),
                   format_duration(total(row.first_calls)), format_rate(row.calls_per_second), memory_of(row)});
  }
  return title_of(model) + "\n" + table.render(std::max<size_t>(output_width(), 80)) + parts_of(model.table) +
         optimizer_of(model.table) + cold_calls_of(model.table) + first_steps_of(model) + notes_of(model.table) +
         (model.baseline ? to_text(*model.baseline) : "") + (model.profile ? "\n" + to_text(*model.profile) : "");
}

std::string sweep_of(const std::vector<BenchedModel>& models) {
  const bool is_of_one =
      std::ranges::all_of(models, [&](const BenchedModel& each) { return each.path == models.front().path; });
  std::vector<Column> columns = {{"inputs", Align::kLeft}, {"threads"}, {"sconce"}, {"calls/s"}};
  for (const Measurement& row : models.front().table.rows | std::views::drop(1)) {
    columns.push_back({row.name});
  }
  Table table(std::move(columns));
  for (const BenchedModel& model : models) {
    const Measurement& sconce = model.table.rows.front();
    std::vector<std::string> cells = {(is_of_one ? "" : model.path + ": ") + inputs_text(model),
                                      std::to_string(model.settings.threads), format_duration(ui::median(sconce.steady)),
                                      format_rate(sconce.calls_per_second)};
    for (const Measurement& row : model.table.rows | std::views::drop(1)) {
      cells.push_back(format_ratio(ratios_of(row, sconce).steady));
    }
    table.add_row(std::move(cells));
  }
  return table.render();
}

std::string summary_of(const std::vector<BenchedModel>& models) {
  std::set<std::string> paths;
  std::ranges::transform(models, std::inserter(paths, paths.end()), &BenchedModel::path);
  const bool is_sweep = paths.size() < models.size();
  Table table({{"all " + std::to_string(models.size()) + (is_sweep ? " calls" : " models"), Align::kLeft},
               {"steady"},
               {"first call"},
               {"first calls"}});
  const std::vector<Measurement>& names = models.front().table.rows;
  for (size_t i = 1; i < names.size(); ++i) {
    const Ratios ratios = mean_ratios(models, i);
    table.add_row(
        {names[i].name, format_ratio(ratios.steady), format_ratio(ratios.first_call), format_ratio(ratios.first_calls)});
  }
  return table.render();
}

Json to_json(const std::vector<BenchedModel>& models, const MachineFacts& facts) {
  Json json{{"schema", "sconce bench, 1"}, {"machine", to_json(facts)}, {"calls", Json::array()}};
  for (const BenchedModel& model : models) {
    json["calls"].push_back(json_of(model));
  }
  if (models.size() > 1) {
    Json executors = Json::array();
    const std::vector<Measurement>& names = models.front().table.rows;
    for (size_t i = 1; i < names.size(); ++i) {
      Json mean{{"executor", names[i].name}};
      mean.update(json_of(mean_ratios(models, i)));
      executors.push_back(std::move(mean));
    }
    json["geometric_means"] = std::move(executors);
  }
  return json;
}

}  // namespace sconce::cli
