#include "report/training_json.h"

#include "report/explanation_text.h"

#include <utility>

namespace sconce {
namespace {

Json json_of(const std::vector<std::pair<std::string, uint64_t>>& reasons) {
  Json json = Json::object();
  for (const auto& [reason, times] : reasons) {
    json[reason] = times;
  }
  return json;
}

Json json_of(const std::vector<Explanation>& plans) {
  Json json = Json::array();
  for (const Explanation& each : plans) {
    json.push_back(json_of(each));
  }
  return json;
}

Json json_of(const std::vector<ReductionExplanation>& reductions) {
  Json json = Json::array();
  for (const ReductionExplanation& each : reductions) {
    json.push_back({{"bytes", each.bytes},
                    {"parameters", each.parameters},
                    {"begins_after", each.begins_after},
                    {"waits_after", each.waits_after}});
  }
  return json;
}

}  // namespace

Json json_of(const BackwardExplanation& explanation) {
  return Json{{"by_plan", explanation.by_plan},
              {"recorded", explanation.recorded},
              {"by_engine", explanation.by_engine},
              {"reasons", json_of(explanation.reasons)},
              {"why_sizes_are_fixed", explanation.why_sizes_are_fixed},
              {"plans", json_of(explanation.plans)}};
}

Json json_of(const OptimizerExplanation& explanation) {
  Json reasons = Json::object();
  for (const OptimizerExplanation::EagerSteps& each : explanation.eager_steps) {
    reasons[each.reason] = each.steps;
  }
  return Json{{"optimizer", explanation.optimizer},
              {"why_eager", explanation.why_eager},
              {"steps", explanation.steps},
              {"captured_steps", explanation.captured_steps},
              {"captured_updates", explanation.captured_updates},
              {"reasons", std::move(reasons)},
              {"plans", json_of(explanation.plans)}};
}

Json json_of(const TrainExplanation& explanation) {
  return Json{{"by_plan", explanation.by_plan},
              {"updated_by_plan", explanation.updated_by_plan},
              {"eager", explanation.eager},
              {"reasons", json_of(explanation.reasons)},
              {"why_sizes_are_fixed", explanation.why_sizes_are_fixed},
              {"plans", json_of(explanation.plans)},
              {"reductions", json_of(explanation.reductions)},
              {"optimizer", json_of(explanation.optimizer)},
              {"state_bytes", explanation.state_bytes}};
}

}  // namespace sconce
