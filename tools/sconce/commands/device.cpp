#include "tools/sconce/commands/device.h"

#include "base/exception_message.h"
#include "plan/device/device.h"
#include "tools/sconce/report/errors.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

namespace sconce::cli {

c10::Device parse_device(const std::string& name) {
  const std::string message = "no device '" + name + "'; there are cpu, cuda and cuda:N";
  try {
    const c10::Device device(name);
    // Of other kinds, LibTorch knows those whose back end is in the process.
    if (device.is_cpu() || device.is_cuda() || c10::impl::hasDeviceGuardImpl(device.type())) {
      return device;
    }
  } catch (const c10::Error&) {
    throw UserError(message);
  }
  throw UserError(message);
}

void make_available(const c10::Device& device) {
  try {
    sconce::make_available(device);
  } catch (const c10::Error& failure) {
    throw UserError(plain_message(failure) + "; use --device cpu");
  }
}

}  // namespace sconce::cli
