// An executor's explanation, as text for people and as JSON for programs.
#pragma once

#include "tools/sconce/report/json.h"

#include <sconce/explanation.h>

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <string>
#include <vector>

namespace sconce::cli {

struct ExplanationDetail {
  bool steps = false;  // show the steps of every plan
  bool specs = false;  // show the specs that each plan serves, in full
};
// `inputs`: a line for each argument of the calls.
std::string to_text(const Explanation& explanation, const std::vector<std::string>& inputs, const ExplanationDetail& detail);
Json to_json(const Explanation& explanation);
Json to_json(const PlanExplanation& plan);

// Returns each line of the text with the indent.
std::string indented(const std::string& text, const std::string& indent);

// Returns "1 step" or "3 steps".
std::string counted(size_t count, const std::string& what);

// Returns a line "remedy if REASON: …" for each reason of the entries that has one.
template <class Entry>
std::string remedies_text(const std::vector<Entry>& entries) {
  std::string text;
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    const std::string remedy = remedy_for(entry->reason);
    const bool is_known =
        std::any_of(entries.begin(), entry, [&](const auto& earlier) { return earlier.reason == entry->reason; });
    if (!remedy.empty() && !is_known) {
      text += std::string("remedy if ") + to_string(entry->reason) + ": " + remedy + "\n";
    }
  }
  return text;
}

// Returns "model.py:12:8" without folders, which would make a table too wide.
std::string short_source(const std::string& source);

// Returns "float32 [8, 16] contiguous", "int 3", "list of 4".
std::string describe_argument(const c10::IValue& argument);

}  // namespace sconce::cli
