// Finds the operator of LibTorch's registry that a node calls.
#pragma once

#include "ir/graph.h"

#include <string>

namespace sconce {

// Whether nodes of the kind belong to the language itself (control flow, construction, attribute access): they have no
// schema, and each of them is known to the printer, the verifier and the lowering.
bool is_language_kind(c10::Symbol kind);

// The schema, of all overloads registered for the node's kind, whose arguments take the node's inputs by position.
// Null when there is none. The first match in the order of registration wins, as in LibTorch; of several, the first that
// gives results of the node's types (prim::EnumValue).
const c10::FunctionSchema* match_schema(const Node& node);

// Whether the schema gives as many results as the node has, of types that may be theirs: a node may know more than the
// schema says, or keep less.
bool produces_results_of(const c10::FunctionSchema& schema, const Node& node);

// Why `match_schema` found nothing: the types given, and the overloads that exist.
std::string explain_no_match(const Node& node);

}  // namespace sconce
