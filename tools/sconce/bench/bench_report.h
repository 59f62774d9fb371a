// What sconce bench shows.
#pragma once

#include "tools/sconce/bench/measure.h"
#include "tools/sconce/report/json.h"

#include <string>
#include <vector>

namespace sconce::cli {

struct BenchedModel {
  std::string path;
  MeasureSettings settings;
  int intra_op_threads = 1;
  MeasurementTable table;  // sconce's row is the first
};

// How the time of an executor relates to sconce's: above 1, sconce is faster. NaN where one of them has none.
struct Ratios {
  double steady = NAN;
  double first_call = NAN;
  double first_calls = NAN;
};
Ratios ratios_of(const Measurement& row, const Measurement& sconce);
// Geometric means over the models for the executor at `index`; NaN when it did not run them all.
Ratios mean_ratios(const std::vector<BenchedModel>& models, size_t index);

double total(const std::vector<double>& values);
std::string memory_of(const Measurement& row);
// "model.pt: forward(float32[8,16]), 1 calling thread, 2 intra-op".
std::string title_of(const BenchedModel& model);
// Lines about executors that cannot run the model or are wrong, and about what makes the comparison unfair.
std::string notes_of(const MeasurementTable& table);

// What was measured, ratios first, and notes on what stands in the way of a fair comparison.
std::string to_text(const BenchedModel& model);
// Geometric means of the ratios over the models, of executors that ran them all.
std::string summary_of(const std::vector<BenchedModel>& models);

// An object for each model, with "executors". Of several models, one more: its "model" is null, and its executors have the
// geometric means of their ratios.
Json to_json(const std::vector<BenchedModel>& models);

}  // namespace sconce::cli
