// Prints the literals of the text form: constants and attributes. Error messages use it, too.
#pragma once

#include "ir/attributes.h"

#include <string>
#include <string_view>
#include <vector>

namespace sconce {

// Returns the string with quotes and escapes, like the frontend's string literals.
std::string quote(std::string_view text);

// Returns the shortest text that parses to the same double; it always has a '.' or an exponent, or is "inf" or "nan".
std::string print_double(double value);

// Returns the type as LibTorch prints it, but an interface by its qualified name, not as InterfaceType<LastPart>.
std::string type_text(const c10::Type& type);

// Appends a prim::Constant's value. `constants` as in PrintOptions.
void print_constant(std::string& out, const c10::IValue& value, std::vector<c10::IValue>* constants);

// Appends an attribute's value. Subgraphs are left out: the printer puts them after the graph.
void print_attribute_value(std::string& out, const AttributeValue& value, std::vector<c10::IValue>* constants);

}  // namespace sconce
