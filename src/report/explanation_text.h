// An executor's explanation, as text for people and as JSON for programs.
#pragma once

#include "report/json.h"

#include <sconce/explanation.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

struct ExplanationDetail {
  bool steps = false;  // show the steps of every plan
  bool specs = false;  // show the specs that each plan serves, in full
};
// `inputs`: a line for each argument of the calls, if they are known.
std::string to_text(const Explanation& explanation, const std::optional<std::vector<std::string>>& inputs,
                    const ExplanationDetail& detail);
Json json_of(const Explanation& explanation);
Json json_of(const PlanExplanation& plan);

// The name of a tier in reports and on the command line: "tier0" for the generic plan.
std::string name_of(Tier tier);

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

// Returns "arena of 12.0 KiB for 8 slots, lower bound 12.0 KiB (1.00x)".
std::string describe_memory(const MemoryExplanation& memory);

// Returns "model.py:12:8" without folders, which would make a table too wide.
std::string short_source(const std::string& source);

}  // namespace sconce
