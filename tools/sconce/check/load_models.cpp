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

bool changes_mode(const CheckSettings& settings) {
  if (autocast_of_calls() || !settings.train) {
    return autocast_of_calls().has_value();
  }
  const torch::jit::Module saved = load_script_module(settings.model, settings.options.device());
  for (const torch::jit::Module& each : saved.modules()) {
    if (each.hasattr("training") && each.is_training() != *settings.train) {
      return true;
    }
  }
  return false;
}

}  // namespace sconce::cli
