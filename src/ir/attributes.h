// A node's attributes: named, typed constants that are part of the node (`prim::GetAttr[name="weight"]`).
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type_base.h>
#include <ATen/core/symbol.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace sconce {

class Graph;
struct GradientSignature;

// One alternative per literal of the text form. The value of a `prim::Constant` is an IValue, printed according to the type
// of the node's output. Copying an attribute shares its subgraph; `Graph::clone` copies it.
using AttributeValue = std::variant<int64_t, double, std::string, c10::TypePtr, std::vector<int64_t>, std::vector<double>,
                                    std::vector<std::string>, std::vector<c10::TypePtr>, c10::IValue, std::shared_ptr<Graph>,
                                    std::shared_ptr<const GradientSignature>>;

struct Attribute {
  c10::Symbol name;
  AttributeValue value;
};

// Returns whether both have the same names and values in the same order. Two IValues are equal if they are one object or
// equal numbers, two subgraphs only if they are one graph.
bool equal_attributes(c10::ArrayRef<Attribute> a, c10::ArrayRef<Attribute> b);

namespace attr {
// The attribute names that sconce itself reads.
inline const c10::Symbol kName = c10::Symbol::attr("name");
inline const c10::Symbol kTypes = c10::Symbol::attr("types");
inline const c10::Symbol kSubgraph = c10::Symbol::attr("Subgraph");
inline const c10::Symbol kValue = c10::Symbol::attr("value");
// 1 on a constant tensor that code outside the graph also holds, and may write.
inline const c10::Symbol kShared = c10::Symbol::attr("shared");
// 1 on a node that runs with the caller's autocast on, in a plan that runs without it.
inline const c10::Symbol kAutocast = c10::Symbol::attr("autocast");
// 1 on a node that runs for its error alone (passes/simplify/keep_errors.h).
inline const c10::Symbol kKeptError = c10::Symbol::attr("kept_error");
// 1 on an aten::copy_ into an input of the graph. Nothing else reads or writes the elements between the begin of the run and
// this node, so that the copied value may be computed in their place.
inline const c10::Symbol kHome = c10::Symbol::attr("home");
// The key of the gradient that was recorded for a node (autodiff/rules/gradient_rule.h). It is not printed.
inline const c10::Symbol kRecordedGradient = c10::Symbol::attr("recorded_gradient");
}  // namespace attr

}  // namespace sconce
