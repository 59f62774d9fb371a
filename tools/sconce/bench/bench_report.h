// The output of `sconce bench`.
#pragma once

#include "report/json.h"
#include "tools/sconce/bench/baseline.h"
#include "tools/sconce/bench/confidence.h"
#include "tools/sconce/bench/measure.h"
#include "tools/sconce/bench/step_profile.h"
#include "tools/sconce/report/page_facts.h"

#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

struct BenchedModel {
  std::string path;
  MeasureSettings settings;
  int intra_op_threads = 1;
  Json options = Json::object();  // settings that differ from the defaults
  MeasurementTable table;         // sconce's row is the first
  std::optional<StepProfile> profile;
  std::optional<std::vector<BaselineRow>> baseline;  // if one was given
  size_t processes = 1;
};

// Returns the ratio of an executor's time to sconce's; above 1, sconce is faster. NaN if one of them has no time.
struct Ratios {
  double steady = NAN;
  double first_call = NAN;
  double first_calls = NAN;
  std::optional<Interval> steady_interval;  // of 95 %, from round to round; nothing for few rounds and for means
};
Ratios ratios_of(const Measurement& row, const Measurement& sconce);
// Returns geometric means over the models for the executor at `index`. NaN if it did not run all of them.
Ratios mean_ratios(const std::vector<BenchedModel>& models, size_t index);

double total(const std::vector<double>& values);
// "1.46x to 1.53x"; "-" for nothing.
std::string text_of(const std::optional<Interval>& interval);
std::string memory_of(const Measurement& row);
// "float32[8,16], int".
std::string inputs_text(const BenchedModel& model);
// "model.pt: forward(float32[8,16]), 1 calling thread, 2 intra-op".
std::string title_of(const BenchedModel& model);
// Returns lines about executors that cannot run the model or give wrong results, and about conditions that make the
// comparison unfair.
std::string notes_of(const MeasurementTable& table);

// Prints the measurements, ratios first, and the notes.
std::string to_text(const BenchedModel& model);
// Prints a line for each model, with its inputs and threads: sconce's time and the steady ratios.
std::string sweep_of(const std::vector<BenchedModel>& models);
// Prints geometric means of the ratios over the models, for executors that ran all of them.
std::string summary_of(const std::vector<BenchedModel>& models);

// The object that docs/bench_json.md describes.
Json to_json(const std::vector<BenchedModel>& models, const MachineFacts& facts);

}  // namespace sconce::cli
