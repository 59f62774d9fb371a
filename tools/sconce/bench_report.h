// What sconce bench shows.
#pragma once

#include "tools/sconce/json.h"
#include "tools/sconce/measure.h"

#include <string>
#include <vector>

namespace sconce::cli {

struct BenchedModel {
  std::string path;
  MeasureSettings settings;
  int intra_op_threads = 1;
  MeasurementTable table;  // sconce's row is the first
};

// What was measured, ratios first, and notes on what stands in the way of a fair comparison.
std::string to_text(const BenchedModel& model);
// Geometric means of the ratios over the models, of executors that ran them all.
std::string summary_of(const std::vector<BenchedModel>& models);

// An object for each model, with "executors". Of several models, one more: its "model" is null, and its executors have the
// geometric means of their ratios.
Json to_json(const std::vector<BenchedModel>& models);

}  // namespace sconce::cli
