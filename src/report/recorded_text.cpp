#include "report/recorded_text.h"

#include "report/explanation_text.h"

#include <utility>

namespace sconce {

// CUDA graph of 33 operators and 5 groups (model.py:12:8): recorded once, replayed 98 times; run 2 times without it
//   once: warm-up
std::string recorded_to_text(const std::vector<RecordedExplanation>& ranges) {
  const auto times = [](uint64_t count) { return count == 1 ? std::string("once") : counted(count, "time"); };
  std::string text;
  for (const RecordedExplanation& range : ranges) {
    const PlanExplanation& plan = range.plan.front();
    uint64_t runs = 0;
    std::string reasons;
    for (const RecordedExplanation::Unrecorded& each : range.unrecorded) {
      runs += each.runs;
      reasons += "  " + times(each.runs) + ": " + each.reason + "\n";
    }
    text += "CUDA graph of " + counted(plan.prepared_steps + plan.ordinary_steps, "operator") + " and " +
            counted(plan.groups, "group") + (range.source.empty() ? "" : " (" + short_source(range.source) + ")") +
            ": recorded " + times(range.recordings) + ", replayed " + times(range.replays) + "; run " + times(runs) +
            " without it\n" + reasons;
  }
  return text;
}

Json json_of(const std::vector<RecordedExplanation>& ranges) {
  Json json = Json::array();
  for (const RecordedExplanation& range : ranges) {
    Json unrecorded = Json::array();
    for (const RecordedExplanation::Unrecorded& each : range.unrecorded) {
      unrecorded.push_back(Json{{"reason", each.reason}, {"runs", each.runs}});
    }
    json.push_back(Json{{"node", range.node},
                        {"source", range.source},
                        {"recordings", range.recordings},
                        {"replays", range.replays},
                        {"unrecorded", std::move(unrecorded)},
                        {"plan", json_of(range.plan.front())}});
  }
  return json;
}

}  // namespace sconce
