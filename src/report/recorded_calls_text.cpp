#include "report/recorded_calls_text.h"

#include "report/number_format.h"

namespace sconce {

std::string recorded_calls_text(const Explanation::Recorded& recorded) {
  if (recorded.recorded == 0) {
    return {};
  }
  std::string text = "\ncalls with gradients: " + format_count(recorded.recorded) + " recorded with backward, " +
                     format_count(recorded.by_plan) + " run by such recordings\n";
  if (recorded.slower > 0) {
    text += "  " + format_count(recorded.slower) + " of them slower than the plans above, and not run any more\n";
  }
  text +=
      "  the optimizer's step is none of them: sconce::CapturedOptimizer and sconce::TrainStep compile it "
      "(docs/training.md)\n";
  for (const auto& [reason, times] : recorded.reasons) {
    text += "  not served by a recording, " + format_count(times) + ": " + reason + "\n";
  }
  for (const std::string& why : recorded.why_sizes_are_fixed) {
    text += "  sizes are fixed: " + why + "\n";
  }
  return text;
}

Json recorded_calls_json(const Explanation::Recorded& recorded) {
  Json reasons = Json::object();
  for (const auto& [reason, times] : recorded.reasons) {
    reasons[reason] = times;
  }
  return Json{{"by_plan", recorded.by_plan},
              {"recorded", recorded.recorded},
              {"slower", recorded.slower},
              {"reasons", std::move(reasons)},
              {"why_sizes_are_fixed", recorded.why_sizes_are_fixed}};
}

}  // namespace sconce
