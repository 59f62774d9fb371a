#include "tools/sconce/train/report.h"

#include "report/number_format.h"
#include "report/table.h"
#include "tools/sconce/report/html.h"
#include "tools/sconce/report/page_facts.h"
#include "tools/sconce/train/curves.h"

#include <cmath>
#include <filesystem>

namespace sconce::cli {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string share_of(uint64_t part, uint64_t whole) {
  return format_count(part) + " of " + format_count(whole) +
         (whole == 0 ? "" : " (" + format_percent(static_cast<double>(part) / static_cast<double>(whole)) + ")");
}

Rows rows_of_plans(const TrainExplanation& explanation) {
  Rows rows = {{"calls by plan", share_of(explanation.by_plan, explanation.by_plan + explanation.eager)}};
  for (const auto& [reason, times] : explanation.reasons) {
    rows.emplace_back("  others", format_count(times) + ": " + reason);
  }
  if (!explanation.reductions.empty()) {
    size_t bytes = 0;
    for (const ReductionExplanation& reduction : explanation.reductions) {
      bytes += reduction.bytes;
    }
    rows.emplace_back("gradients", format_bytes(static_cast<double>(bytes)) + " in " +
                                       std::to_string(explanation.reductions.size()) +
                                       " buckets, summed over processes within the plan");
  }
  if (explanation.state_bytes > 0) {
    rows.emplace_back("optimizer states", format_bytes(static_cast<double>(explanation.state_bytes)) +
                                              " in this process, of its part of the parameters");
  }
  const OptimizerExplanation& optimizer = explanation.optimizer;
  rows.emplace_back("optimizer by plan",
                    optimizer.optimizer + ": " + share_of(optimizer.captured_steps, optimizer.steps) + " steps");
  if (!optimizer.why_eager.empty()) {
    rows.emplace_back("  others", optimizer.why_eager);
  }
  return rows;
}

std::vector<Series> metrics_in(const TrainHistory& history) {
  std::vector<Series> metrics;
  for (const Series& series : history.epochs) {
    if (series.name != TrainHistory::kLoss && series.name != TrainHistory::kValidationLoss) {
      metrics.push_back(series);
    }
  }
  return metrics;
}

// "0.9 in the last epoch, 0.93 in epoch 7, the best"
std::string last_and_best(const Series& series) {
  const BestEpoch best = best_epoch(&series);
  const std::string last = format_number(series.values.back());
  return !best.is_known() || best.epoch + 1 == series.values.size()
             ? last
             : last + " in the last epoch, " + format_number(best.value) + " in epoch " + std::to_string(best.epoch + 1) +
                   ", the best";
}

std::string epochs_done(const Training& training) {
  const Progress& progress = training.progress();
  const auto per_epoch = static_cast<double>(training.steps_per_epoch());
  const double part = progress.example == 0 ? 0 : 1 - static_cast<double>(training.steps_left_in_epoch()) / per_epoch;
  return format_number(static_cast<double>(progress.epoch) + part) + " of " + std::to_string(training.settings().epochs) +
         (training.stops_early() ? ", ended by --early-stopping" : "");
}

Rows rows_of(const TrainRun& run, const Training& training) {
  const TrainHistory& history = training.history();
  const size_t steps = training.progress().step;
  Rows rows = {{"epochs", epochs_done(training)},
               {"steps", format_count(steps) + " of " + format_count(training.steps()) +
                             (run.first_step == 0 ? "" : ", " + format_count(run.first_step) + " of them before")}};
  if (history.steps.count > 0) {
    const std::vector<double> epochs = history.losses_of_epochs();
    rows.emplace_back("loss", format_number(history.first_loss) + " in the first step, " + format_number(history.last_loss) +
                                  " in the last; mean of an epoch " + format_number(epochs.front()) + ", then " +
                                  format_number(epochs.back()));
  }
  if (const Series* validation = history.find(TrainHistory::kValidationLoss)) {
    rows.emplace_back("validation loss", last_and_best(*validation));
  }
  for (const Series& metric : metrics_in(history)) {
    rows.emplace_back(metric.name, last_and_best(metric));
  }
  if (steps > run.first_step) {
    rows.emplace_back("speed", format_rate(run.steps_per_second(training)) + " steps/s");
    const Rows plans = rows_of_plans(training.explain());
    rows.insert(rows.end(), plans.begin(), plans.end());
  }
  rows.insert(rows.end(), run.files.begin(), run.files.end());
  return rows;
}

Json numbers_or_null(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double value : values) {
    json.push_back(number_or_null(value));
  }
  return json;
}

}  // namespace

std::string epoch_line(const Training& training) {
  const TrainHistory& history = training.history();
  const std::string number = std::to_string(training.progress().epoch);
  const std::string last = std::to_string(training.settings().epochs);
  std::string line = "epoch " + std::string(last.size() - std::min(last.size(), number.size()), ' ') + number + "/" + last;
  for (const Series& series : history.epochs) {
    if (!std::isnan(series.values.back())) {
      line += "  " + (series.name == TrainHistory::kValidationLoss ? "validation" : series.name) + " " +
              format_number(series.values.back());
    }
  }
  return line;
}

std::string to_text(const TrainRun& run, const Training& training) {
  Table table({{"training", Align::kLeft}, {std::filesystem::path(run.model).filename().string(), Align::kLeft}});
  for (const auto& [name, value] : rows_of(run, training)) {
    table.add_row({name, value});
  }
  return table.render();
}

Json to_json(const TrainRun& run, const Training& training) {
  const TrainHistory& history = training.history();
  const TrainExplanation explanation = training.explain();
  const Series* validation = history.find(TrainHistory::kValidationLoss);
  Json metrics = Json::object();
  for (const Series& metric : metrics_in(history)) {
    metrics[metric.name] = numbers_or_null(metric.values);
  }
  const std::string& monitor = training.settings().monitor;
  const BestEpoch best = best_epoch(history.find(monitor));
  Json reasons = Json::object();
  for (const auto& [reason, times] : explanation.reasons) {
    reasons[reason] = times;
  }
  Json files = Json::object();
  for (const auto& [what, path] : run.files) {
    files[what] = path;
  }
  const OptimizerExplanation& optimizer = explanation.optimizer;
  Json json{
      {"model", run.model},
      {"data", run.data},
      {"settings", to_json(training.settings())},
      {"complete", run.is_complete},
      {"steps", training.steps()},
      {"steps_per_epoch", training.steps_per_epoch()},
      {"steps_done", training.progress().step},
      {"steps_before", run.first_step},
      {"first_loss", number_or_null(history.first_loss)},
      {"last_loss", number_or_null(history.last_loss)},
      {"epoch_losses", numbers_or_null(history.losses_of_epochs())},
      {"validation_losses", validation == nullptr ? Json::array() : numbers_or_null(validation->values)},
      {"metrics", std::move(metrics)},
      {"best", best.is_known() ? Json{{"epoch", best.epoch + 1}, {"monitor", monitor}, {"value", best.value}} : Json()},
      {"stopped_early", training.stops_early()},
      {"seconds", run.seconds},
      {"steps_per_second", number_or_null(run.steps_per_second(training))},
      {"calls_by_plan", explanation.by_plan},
      {"calls_eager", explanation.eager},
      {"reasons_eager", std::move(reasons)},
      {"optimizer", Json{{"name", optimizer.optimizer},
                         {"steps", optimizer.steps},
                         {"steps_by_plan", optimizer.captured_steps},
                         {"why_eager", optimizer.why_eager}}},
      {"files", std::move(files)}};
  if (!run.is_complete) {
    json["resume"] = run.resume;
  }
  return json;
}

std::string to_page(const TrainRun& run, const Training& training) {
  const auto list = [](const Rows& rows) {
    std::string entries;
    for (const auto& [name, value] : rows) {
      entries += element("dt", escape_html(name)) + element("dd", escape_html(value)) + "\n";
    }
    return element("dl", "\n" + entries) + "\n";
  };
  Rows settings = {{"data", run.data}};
  const Json set = to_json(training.settings());
  for (const auto& [name, value] : set.items()) {
    if (value.is_array()) {
      for (const Json& each : value) {
        settings.emplace_back("--" + name, each.get<std::string>());
      }
    } else if (!value.is_null() && value != "") {
      settings.emplace_back("--" + name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  std::string images = loss_svg(training.history());
  for (const auto& [name, image] : metric_svgs(training.history())) {
    images += element("h2", escape_html(name)) + "\n" + image;
  }
  const std::string title = "Training of " + std::filesystem::path(run.model).filename().string();
  const std::string samples = run.samples ? samples_html(*run.samples, run.vocabulary) : "";
  return html_page(title, std::string("svg { max-width: 60rem; }\n") + kSamplesStyle,
                   element("h1", escape_html(title)) + "\n" + images + element("h2", "Result") + "\n" +
                       list(rows_of(run, training)) + samples + element("h2", "Settings") + "\n" + list(settings) +
                       element("h2", "Machine") + "\n" + list(rows_of(facts_of_this_machine())));
}

}  // namespace sconce::cli
