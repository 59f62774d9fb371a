// Baseline: compares measured ratios with those in the JSON of an earlier run (`sconce bench --baseline`).
#pragma once

#include "report/json.h"
#include "tools/sconce/bench/confidence.h"

#include <string>
#include <vector>

namespace sconce::cli {

struct BenchedModel;

enum class Verdict { kSame, kFaster, kSlower };

struct BaselineRow {
  std::string executor;
  double then = 0;  // its time divided by sconce's
  double now = 0;
  Interval then_interval;
  Interval now_interval;
  // Slower: the ratio fell by more than processes differ anyway, and its interval lies below the earlier one.
  Verdict verdict = Verdict::kSame;
};

class Baseline {
 public:
  // Throws UserError for a file that `sconce bench --json` did not write, naming what is wrong.
  explicit Baseline(const std::string& path);

  // Compares a model with the one of the same file name, method, inputs, calling threads and settings. Returns a row for
  // each executor that has ratios in both; none if the file has no such model.
  std::vector<BaselineRow> compare(const BenchedModel& model) const;

 private:
  Json calls_;
};

// Prints a table of the rows, or that there is nothing to compare with.
std::string to_text(const std::vector<BaselineRow>& rows);
Json to_json(const std::vector<BaselineRow>& rows);
// Returns whether sconce is slower than then, compared with an executor.
bool is_slower(const std::vector<BaselineRow>& rows);

}  // namespace sconce::cli
