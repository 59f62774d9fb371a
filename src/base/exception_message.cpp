#include "base/exception_message.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

namespace sconce {

std::string message_of(const std::exception& failure) {
  const auto* error = dynamic_cast<const c10::Error*>(&failure);
  return error != nullptr ? error->what_without_backtrace() : failure.what();
}

std::string message_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& failure) {
    return message_of(failure);
  } catch (...) {
    return "a value of type " + c10::demangle(std::current_exception().__cxa_exception_type()->name());
  }
}

}  // namespace sconce
