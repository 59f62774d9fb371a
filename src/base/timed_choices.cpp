#include "base/timed_choices.h"

#include "base/environment.h"
#include "base/processor_name.h"

#include <sconce/version.h>

#include <ATen/Version.h>
#include <torch/version.h>

#include <sstream>

namespace sconce {

TimedChoices::TimedChoices(const std::string& folder)
    : files_(folder, ".choice"),
      machine_("sconce " SCONCE_VERSION ", LibTorch " TORCH_VERSION ", " + at::get_cpu_capability() + ", " +
               processor_name() + "\n") {}

TimedChoices& TimedChoices::of_process() {
  static auto& choices = *new TimedChoices(environment().kernel_cache);  // jobs may outlive static objects
  return choices;
}

std::optional<TimedChoices::Times> TimedChoices::find(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = known_.find(key);
  if (known != known_.end()) {
    return known->second;
  }
  const auto text = files_.find(key_of_file(key));
  Times times;
  if (!text || !(std::istringstream(*text) >> times.kernel >> times.op) || times.kernel <= 0 || times.op <= 0) {
    return std::nullopt;
  }
  known_.emplace(key, times);
  return times;
}

void TimedChoices::note(const std::string& key, Times times) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    known_[key] = times;
  }
  std::ostringstream text;
  text << times.kernel << " " << times.op << "\n";
  files_.keep(key_of_file(key), text.str());
}

}  // namespace sconce
