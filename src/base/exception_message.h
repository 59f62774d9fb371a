// Messages of exceptions, for errors that quote them.
#pragma once

#include <exception>
#include <string>

namespace sconce {

// Without LibTorch's stack of C++ frames.
std::string message_of(const std::exception& failure);

// The above, or "a value of type T" for what is no std::exception.
std::string message_of(const std::exception_ptr& thrown);

}  // namespace sconce
