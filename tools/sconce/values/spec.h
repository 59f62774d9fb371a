// SPECs: arguments written on the command line.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <string>

namespace sconce::cli {

// Parses a SPEC. The grammar, with blanks allowed between all parts:
//
//   SPEC    = TENSOR | NUMBER | true | false | none | "text" | ( SPEC, … ) | [ SPEC, … ] | { SPEC: SPEC, … }
//   DTYPE   = float32 | int8 | …: what spec_dtypes.h lists
//   TENSOR  = DTYPE[SIZE, …]             random: normal if floating or complex, 0 or 1 if bool, else from 0 to 9
//           | DTYPE[SIZE, …]=LOW..HIGH   random: uniform, LOW <= x < HIGH
//           | DTYPE[SIZE, …]=zeros | =ones | =arange | =NUMBER | =true | =false
//
// (a, b) is a tuple, [a, b] a list, {"k": v} a dict; a list of one kind gets that as its type. A number that the
// dtype does not have is an error, never wrapped around or cut off. Random numbers come from
// `generator`, never from LibTorch's default one. Throws UserError with one line that names the place and the remedy.
c10::IValue parse_spec(const std::string& spec, at::Generator& generator);

// For --help.
extern const char* const kSpecHelp;

}  // namespace sconce::cli
