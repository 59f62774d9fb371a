// The scripts of clients' modules: one of a dozen bodies, with lines that do other things than compute.
#pragma once

#include "tests/clients/client_program.h"

#include <string>

namespace sconce::clients {

// Returns the source of `forward`. It takes a tensor, or a list or a dict with one ("x"), and returns a tensor [n, kWidth],
// or a tuple that begins with one.
std::string script_of(const ClientProgram& program);

}  // namespace sconce::clients
