// Finds the operator of LibTorch's registry that a node calls.
#pragma once

#include "ir/graph.h"

#include <string>

namespace sconce {

// Whether nodes of the kind belong to the language itself (control flow, construction, attribute access): they have no
// schema, and each of them is known to the printer, the verifier and the lowering.
bool is_language_kind(c10::Symbol kind);

// The schema, of all overloads registered for the node's kind, whose arguments take the node's inputs by position.
// Null when there is none. The first match in the order of registration wins, as in LibTorch.
const c10::FunctionSchema* match_schema(const Node& node);

// The type that the schema of the node gives its result, type variables replaced by what the inputs make of them. Null when
// they say nothing about a variable of it. Requires a schema, and a result that it has.
c10::TypePtr result_type(const Node& node, size_t output);

// Why `match_schema` found nothing: the types given, and the overloads that exist.
std::string explain_no_match(const Node& node);

}  // namespace sconce
