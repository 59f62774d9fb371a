// The text form of a GradientSignature (ir/gradient_signature.h), by positions of the forward graph's inputs x, outputs y
// and intermediates t:
//
//   {grad(y0) reaches x0, x1; saves x0 (y0 to x1), y0, t0; double backward adds grad(t0)}
//   {grad(y0) reaches x0; grad(y2) reaches x0, x1 else x1; nothing reaches x3; saves x1}
//
//   else LIST       what the output depends on where its condition is false
//   saves x0 (…)    the paths, from outputs to inputs, that read the value; without them, all that some gradient takes
//   nothing         an empty list; and no gradient of an output reaches these inputs, whose gradients are always undefined
//   adds grad(…)    the differentiable intermediates
#pragma once

#include "ir/gradient_signature.h"
#include "ir/text/lexer.h"

#include <string>

namespace sconce {

// Returns the text, with its braces.
std::string print_gradient(const GradientSignature& signature);
// Parses it, from the opening to the closing brace.
GradientSignature parse_gradient(Lexer& cursor);

}  // namespace sconce
