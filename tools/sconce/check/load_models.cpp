#include "tools/sconce/check/load_models.h"

#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/values/autocast_region.h"

#include "load/load_module.h"

namespace sconce::cli {

Module load_checked(const CheckSettings& settings) {
  Module module = load_model(settings.model, settings.options);
  if (settings.train) {
    module.train(*settings.train);
  }
  return module;
}

torch::jit::Module load_reference(const CheckSettings& settings) {
  torch::jit::Module module = load_script_module(settings.model, settings.options.device());
  if (settings.train) {
    module.train(*settings.train);
  }
  return module;
}

std::string why_unlike_recorded(const CheckSettings& settings) {
  if (autocast_of_calls()) {
    return "the case was recorded without autocast";
  }
  if (!settings.train) {
    return {};
  }
  const torch::jit::Module saved = load_script_module(settings.model, settings.options.device());
  for (const torch::jit::Module& each : saved.modules()) {
    if (each.hasattr("training") && each.is_training() != *settings.train) {
      return "the recorded answer is of another mode";
    }
  }
  return {};
}

}  // namespace sconce::cli
