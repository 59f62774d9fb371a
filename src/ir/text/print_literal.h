// Literals of the text form: constants and attributes. Shared by the printer and its error messages.
#pragma once

#include "ir/attributes.h"

#include <string>
#include <string_view>
#include <vector>

namespace sconce {

// "text" with quotes and escapes, as the frontend's string literals.
std::string quote(std::string_view text);

// Shortest text that reads back as the same double; always with a '.', an exponent, "inf" or "nan".
std::string print_double(double value);

// As LibTorch prints it, but interfaces by their qualified name, as classes, not as InterfaceType<LastPart>.
std::string type_text(const c10::Type& type);

// Appends a prim::Constant's value. `constants` as in PrintOptions.
void print_constant(std::string& out, const c10::IValue& value, std::vector<c10::IValue>* constants);

// Appends an attribute's value, except subgraphs (which the printer places behind the graph).
void print_attribute_value(std::string& out, const AttributeValue& value, std::vector<c10::IValue>* constants);

}  // namespace sconce
