// Acceleration of modules that nobody can name: a simulation code may run a clone of a clone of what it was given.
#include <sconce/in_place.h>

#include "base/environment.h"
#include "base/exception_message.h"
#include "base/log.h"
#include "in_place/operands.h"

#include <ATen/record_function.h>
#include <torch/csrc/jit/api/module.h>

#include <mutex>
#include <optional>
#include <string>

namespace sconce {
namespace {

struct AcceleratesAll {
  std::mutex mutex;
  std::optional<Options> options;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;

  static AcceleratesAll& of_process() {
    static auto* const accelerates = new AcceleratesAll;  // calls may outlive static objects
    return *accelerates;
  }
};

// LibTorch's Method::operator() tells of a call before it asks the function for its executor: this call runs on sconce, too.
std::unique_ptr<at::ObserverContext> before_call(const at::RecordFunction& call) {
  const auto inputs = call.inputs();
  if (inputs.empty() || !inputs.front().isObject() || !inputs.front().toObjectRef().type()->is_module()) {
    return nullptr;
  }
  const torch::jit::Module module(inputs.front().toObject());
  AcceleratesAll& all = AcceleratesAll::of_process();
  if (!is_accelerated(module)) {
    const std::lock_guard<std::mutex> lock(all.mutex);  // one thread replaces executors
    if (all.options && !is_accelerated(module)) {
      accelerate_in_place(module, *all.options);
    }
  }
  return nullptr;
}

// Reads SCONCE_ACCELERATE when the library is loaded, for programs that cannot be changed.
const bool kAsEnvironmentSays = [] {
  const std::string& asked = environment().accelerate;
  if (!asked.empty()) {
    try {
      accelerate_all(asked == "1" ? Options() : Options::from_json(asked));
    } catch (const std::exception& failure) {
      log(LogLevel::kWarning, "SCONCE_ACCELERATE: nothing is accelerated: " + message_of(failure));
    }
  }
  return true;
}();

}  // namespace

void accelerate_all(const Options& options) {
  expect_to_fit_in_place(options);
  AcceleratesAll& all = AcceleratesAll::of_process();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.options = options;
  if (all.callback == at::INVALID_CALLBACK_HANDLE) {
    all.callback = at::addGlobalCallback(
        at::RecordFunctionCallback(before_call).needsInputs(true).scopes({at::RecordScope::TORCHSCRIPT_FUNCTION}));
  }
}

bool stop_accelerating_all() {
  AcceleratesAll& all = AcceleratesAll::of_process();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.options.reset();
  if (all.callback == at::INVALID_CALLBACK_HANDLE) {
    return false;
  }
  at::removeCallback(all.callback);
  all.callback = at::INVALID_CALLBACK_HANDLE;
  return true;
}

}  // namespace sconce
