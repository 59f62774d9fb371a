// Finds the operator that a node calls.
#pragma once

#include "ir/graph.h"

#include <string>

namespace sconce {

// Gives the node its operator's record: the one that match_op() finds, or for a delegate one of its own. Does nothing to the
// language's own kinds. Returns false, and leaves the node unresolved, when there is no such operator.
bool resolve(Node& node);

// Lets the node run with the caller's autocast on, in a plan that runs without it (attr::kAutocast). An operator then has a
// record that says nothing of what it computes (op_under_autocast).
void run_under_autocast(Node& node);

// Returns the operator, of all overloads registered for the node's kind, whose arguments take the node's inputs by position.
// Null when there is none. The first match in the order of registration wins, as in LibTorch; of several matches, the first
// whose results have the node's types (prim::EnumValue).
const Op* match_op(const Node& node);

// Whether the schema gives as many results as the node has, of types that may be theirs: a node may know more than the
// schema says, or keep less.
bool produces_results_of(const c10::FunctionSchema& schema, const Node& node);

// Explains why `match_op` found nothing: the types given, and the overloads that exist.
std::string explain_no_match(const Node& node);

}  // namespace sconce
