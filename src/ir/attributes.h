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

// One alternative per form of the text; a `prim::Constant`'s value is an IValue, whose printed form its output's
// type decides. Subgraphs are owned: copying an attribute shares them, `Graph::clone` deep-copies them.
using AttributeValue =
    std::variant<int64_t, double, std::string, c10::TypePtr, std::vector<int64_t>, std::vector<double>,
                 std::vector<std::string>, std::vector<c10::TypePtr>, c10::IValue, std::shared_ptr<Graph>>;

struct Attribute {
  c10::Symbol name;
  AttributeValue value;
};

// Whether they are the same in number, names and values, in the same order. Values that are IValues are so if they are one
// object or equal numbers, subgraphs if they are one.
bool equal_attributes(c10::ArrayRef<Attribute> a, c10::ArrayRef<Attribute> b);

namespace attr {
// The attribute names that sconce itself reads.
inline const c10::Symbol kName = c10::Symbol::attr("name");
inline const c10::Symbol kTypes = c10::Symbol::attr("types");
inline const c10::Symbol kSubgraph = c10::Symbol::attr("Subgraph");
inline const c10::Symbol kValue = c10::Symbol::attr("value");
// Of a constant tensor, 1: code outside of the graph holds it too, and may write it.
inline const c10::Symbol kShared = c10::Symbol::attr("shared");
}  // namespace attr

}  // namespace sconce
