#include "tools/sconce/bench/baseline.h"

#include "report/number_format.h"
#include "report/table.h"
#include "tools/sconce/bench/bench_report.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/read_file.h"

#include <algorithm>
#include <filesystem>
#include <optional>

namespace sconce::cli {
namespace {

// The error of a ratio without an interval, which is of few rounds.
constexpr double kGuessedError = 0.1;
// Ratios of two processes differ by so much although nothing changed: their memory lies elsewhere.
constexpr double kProcessError = 0.05;

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

const char* name_of(Verdict verdict) {
  return verdict == Verdict::kSlower ? "slower" : verdict == Verdict::kFaster ? "faster" : "same";
}

Interval interval_around(double ratio) { return {ratio * (1 - kGuessedError), ratio * (1 + kGuessedError)}; }

BaselineRow row_of(const Json& executor, const Ratios& now) {
  BaselineRow row{.executor = executor.at("executor").get<std::string>(),
                  .then = executor.at("ratio_steady").get<double>(),
                  .now = now.steady};
  row.then_interval = interval_around(row.then);
  if (const auto known = executor.find("ratio_steady_interval"); known != executor.end()) {
    row.then_interval = {known->at(0).get<double>(), known->at(1).get<double>()};
  }
  row.now_interval = now.steady_interval.value_or(interval_around(row.now));
  const bool is_below = row.now < row.then * (1 - kProcessError) && row.now_interval.high < row.then_interval.low;
  const bool is_above = row.now * (1 - kProcessError) > row.then && row.now_interval.low > row.then_interval.high;
  row.verdict = is_below ? Verdict::kSlower : is_above ? Verdict::kFaster : Verdict::kSame;
  return row;
}

}  // namespace

Baseline::Baseline(const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    throw UserError(path + ": " + what + "; --baseline takes what `sconce bench --json` wrote");
  };
  const Json json = Json::parse(read_text_file(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.value("calls", Json()).is_array()) {
    refuse(json.is_discarded() ? "not valid JSON" : "not an object with `calls`");
  }
  calls_ = json["calls"];
  for (const Json& call : calls_) {
    const bool is_call = call.is_object() && call.value("model", Json()).is_string() &&
                         call.value("method", Json()).is_string() && call.value("executors", Json()).is_array();
    if (!is_call) {
      refuse("a call without `model`, `method` and `executors`");
    }
    for (const Json& executor : call["executors"]) {
      if (!executor.is_object() || !executor.value("executor", Json()).is_string()) {
        refuse("an executor has no name");
      }
    }
  }
}

std::vector<BaselineRow> Baseline::compare(const BenchedModel& model) const {
  const std::string inputs = inputs_text(model);
  const auto found = std::ranges::find_if(calls_, [&](const Json& each) {
    return file_name(each["model"].get<std::string>()) == file_name(model.path) && each["method"] == model.settings.method &&
           each.value("threads", Json(model.settings.threads)) == model.settings.threads &&
           each.value("inputs", inputs) == inputs && each.value("settings", model.options) == model.options;
  });
  std::vector<BaselineRow> rows;
  if (found == calls_.end()) {
    return rows;
  }
  const std::vector<Measurement>& measured = model.table.rows;
  for (const Json& executor : (*found)["executors"]) {
    const auto row = std::ranges::find(measured, executor["executor"].get<std::string>(), &Measurement::name);
    if (row == measured.begin() || row == measured.end() || !executor.value("ratio_steady", Json()).is_number()) {
      continue;
    }
    if (const Ratios now = ratios_of(*row, measured.front()); std::isfinite(now.steady)) {
      rows.push_back(row_of(executor, now));
    }
  }
  return rows;
}

std::string to_text(const std::vector<BaselineRow>& rows) {
  if (rows.empty()) {
    return "note: the baseline has no such model with these inputs, or no executor that ran now\n";
  }
  Table table({{"baseline", Align::kLeft}, {"then"}, {"95 % interval"}, {"now"}, {"95 % interval"}, {"sconce is"}});
  for (const BaselineRow& row : rows) {
    table.add_row({row.executor, format_ratio(row.then), text_of(row.then_interval), format_ratio(row.now),
                   text_of(row.now_interval), name_of(row.verdict)});
  }
  return table.render();
}

Json to_json(const std::vector<BaselineRow>& rows) {
  Json json = Json::array();
  for (const BaselineRow& row : rows) {
    json.push_back(Json{{"executor", row.executor},
                        {"ratio_steady_then", row.then},
                        {"ratio_steady_then_interval", {row.then_interval.low, row.then_interval.high}},
                        {"ratio_steady", row.now},
                        {"verdict", name_of(row.verdict)}});
  }
  return json;
}

bool is_slower(const std::vector<BaselineRow>& rows) {
  return std::ranges::any_of(rows, [](const BaselineRow& row) { return row.verdict == Verdict::kSlower; });
}

}  // namespace sconce::cli
