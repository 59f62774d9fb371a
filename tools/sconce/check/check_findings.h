// The findings of a check.
#pragma once

#include "report/json.h"
#include "tools/sconce/values/compare.h"

#include <set>
#include <string>
#include <vector>

namespace sconce::cli {

struct Finding {
  std::string case_name;
  std::string plan;     // "tier0"
  size_t call = 1;      // from 1
  std::string against;  // "recorded answer", "LibTorch", "the list of passes"
  Mismatch mismatch;
};

// Collects findings, at most a few per call: the first ones are the most useful.
class Findings {
 public:
  void begin_case(std::string name, std::string plan);
  void begin_call(size_t call) { call_ = call; }
  size_t call() const { return call_; }

  void add(const std::string& against, Mismatch mismatch);
  void add(const std::string& against, const std::string& path, const std::string& what);
  void add_all(const std::string& against, std::vector<Mismatch> mismatches);
  // Notes what was not checked in this case, once for all plans.
  void add_note(const std::string& text);
  void count_gradients(size_t count) { gradients_ += count; }

  const std::vector<Finding>& all() const { return findings_; }
  // Returns the names of the cases with findings, in their order.
  std::vector<std::string> failing_cases() const;
  size_t cases() const { return cases_.size(); }
  // Returns how many gradients were compared, in all cases and calls.
  size_t gradients() const { return gradients_; }

  struct Note {
    std::string case_name;
    std::string text;
  };
  const std::vector<Note>& notes() const { return notes_; }

 private:
  std::vector<Finding> findings_;
  std::vector<Note> notes_;
  std::set<std::string> cases_;
  std::string case_name_;
  std::string plan_;
  size_t call_ = 1;
  size_t gradients_ = 0;
};

// Returns "FAILED case 2", a line for each finding, then the notes.
std::string to_text(const Findings& findings);
Json to_json(const Finding& finding);

}  // namespace sconce::cli
