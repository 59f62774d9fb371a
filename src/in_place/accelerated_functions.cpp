#include "in_place/accelerated_functions.h"

#include "report/json.h"

#include <sconce/status.h>

#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>

namespace sconce {

AcceleratedFunctions& AcceleratedFunctions::get() {
  static auto* functions = new AcceleratedFunctions;  // never destroyed: other threads may still run when the process ends
  return *functions;
}

void AcceleratedFunctions::add(const std::shared_ptr<AcceleratedFunction>& function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (functions_.size() == functions_.capacity()) {
    std::erase_if(functions_, [](const auto& each) { return each.expired(); });
  }
  functions_.push_back(function);
}

void AcceleratedFunctions::forget_destroyed() {
  for (const auto& function : all()) {
    function->forget_destroyed();
  }
}

void AcceleratedFunctions::note_immortal_code_of(c10::ivalue::Object& module) {
  const std::lock_guard<std::mutex> lock(mutex_);
  immortal_ = module.compilation_unit();
}

bool AcceleratedFunctions::is_immortal(const torch::jit::GraphFunction& function) {
  const auto& arguments = function.getSchema().arguments();
  const auto self = arguments.empty() ? nullptr : arguments.front().type()->cast<c10::ClassType>();
  const std::lock_guard<std::mutex> lock(mutex_);
  return self != nullptr && immortal_ != nullptr && self->compilation_unit() == immortal_;
}

std::string AcceleratedFunctions::status() {
  forget_destroyed();
  Json functions = Json::array();
  for (const auto& function : all()) {
    if (function->calls() > 0) {
      functions.push_back(
          Json{{"function", function->qualified_name()}, {"calls", function->calls()}, {"refusal", function->refusal()}});
    }
  }
  Json status = Json::parse(to_json(sconce::status()));
  status["accelerated"] = std::move(functions);
  return json_text(status);
}

std::vector<std::shared_ptr<AcceleratedFunction>> AcceleratedFunctions::all() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<AcceleratedFunction>> all;
  for (const auto& each : functions_) {
    if (auto function = each.lock()) {
      all.push_back(std::move(function));
    }
  }
  return all;
}

}  // namespace sconce
