#include "tools/sconce/train/report.h"

#include "report/number_format.h"
#include "report/table.h"
#include "tools/sconce/report/html.h"
#include "tools/sconce/report/page_facts.h"
#include "tools/sconce/train/loss_curve.h"

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
  const OptimizerExplanation& optimizer = explanation.optimizer;
  rows.emplace_back("optimizer by plan",
                    optimizer.optimizer + ": " + share_of(optimizer.captured_steps, optimizer.steps) + " steps");
  if (!optimizer.why_eager.empty()) {
    rows.emplace_back("  others", optimizer.why_eager);
  }
  return rows;
}

Rows rows_of(const TrainRun& run, const Training& training) {
  const TrainHistory& history = training.history();
  Rows rows = {{"epochs",
                format_number(static_cast<double>(training.steps_done()) / static_cast<double>(training.steps_per_epoch())) +
                    " of " + std::to_string(training.settings().epochs)},
               {"steps", format_count(training.steps_done()) + " of " + format_count(training.steps()) +
                             (run.first_step == 0 ? "" : ", " + format_count(run.first_step) + " of them before")}};
  if (!history.losses.empty()) {
    const std::vector<double> epochs = losses_of_epochs(training);
    rows.emplace_back("loss", format_number(history.losses.front()) + " in the first step, " +
                                  format_number(history.losses.back()) + " in the last; mean of an epoch " +
                                  format_number(epochs.front()) + ", then " + format_number(epochs.back()));
  }
  if (!history.validation_losses.empty()) {
    rows.emplace_back("validation loss", format_number(history.validation_losses.back()));
  }
  if (training.steps_done() > run.first_step) {
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
  const size_t epochs = training.steps_done() / training.steps_per_epoch();
  const std::vector<double>& validations = training.history().validation_losses;
  const std::string number = std::to_string(epochs);
  const std::string last = std::to_string(training.settings().epochs);
  return "epoch " + std::string(last.size() - number.size(), ' ') + number + "/" + last + "  loss " +
         format_number(loss_of_epoch(training, epochs - 1)) +
         (validations.size() == epochs ? "  validation " + format_number(validations.back()) : "");
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
  const bool is_complete = training.steps_done() == training.steps();
  Json reasons = Json::object();
  for (const auto& [reason, times] : explanation.reasons) {
    reasons[reason] = times;
  }
  Json files = Json::object();
  for (const auto& [what, path] : run.files) {
    files[what] = path;
  }
  const OptimizerExplanation& optimizer = explanation.optimizer;
  Json json{{"model", run.model},
            {"data", run.data},
            {"settings", to_json(training.settings())},
            {"complete", is_complete},
            {"steps", training.steps()},
            {"steps_per_epoch", training.steps_per_epoch()},
            {"steps_done", training.steps_done()},
            {"steps_before", run.first_step},
            {"first_loss", history.losses.empty() ? Json() : Json(history.losses.front())},
            {"last_loss", history.losses.empty() ? Json() : Json(history.losses.back())},
            {"epoch_losses", numbers_or_null(losses_of_epochs(training))},
            {"validation_losses", numbers_or_null(history.validation_losses)},
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
  if (!is_complete) {
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
    if (!value.is_null() && value != "") {
      settings.emplace_back("--" + name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  const std::string title = "Training of " + std::filesystem::path(run.model).filename().string();
  return html_page(title, "svg { max-width: 60rem; }\n",
                   element("h1", escape_html(title)) + "\n" + loss_svg(training) + element("h2", "Result") + "\n" +
                       list(rows_of(run, training)) + element("h2", "Settings") + "\n" + list(settings) +
                       element("h2", "Machine") + "\n" + list(rows_of(facts_of_this_machine())));
}

}  // namespace sconce::cli
