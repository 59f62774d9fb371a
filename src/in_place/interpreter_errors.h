// Errors of a call, as LibTorch's interpreter reports them.
#pragma once

#include <c10/util/FunctionRef.h>

#include <string>

namespace sconce {

// Calls `run`. What it throws becomes what LibTorch's interpreter throws where an operator fails so: JITException for an
// exception that the script raises, c10::NotImplementedError for that, std::runtime_error for others; with the script's
// stack in front of the message. Within a call that LibTorch's interpreter runs, which adds this itself, the error has the
// bare message. `function`: the name of what runs.
void with_interpreter_errors(const std::string& function, c10::function_ref<void()> run);

}  // namespace sconce
