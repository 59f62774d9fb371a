#include "autodiff/rules/generalize.h"

#include "base/assert.h"
#include "ir/schema_match.h"

#include <ATen/core/jit_type.h>
#include <ATen/ops/equal.h>

#include <cmath>
#include <optional>

namespace sconce {
namespace {

// A number as it is in both traces.
struct Pair {
  int64_t first;
  int64_t second;
  friend bool operator==(const Pair&, const Pair&) = default;
};

bool are_equal(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensor() && b.isTensor() && a.toTensor().defined() && b.toTensor().defined()) {
    return a.toTensor().scalar_type() == b.toTensor().scalar_type() && at::equal(a.toTensor(), b.toTensor());
  }
  return a.tagKind() == b.tagKind() && a == b;
}

// Inserts what computes numbers from sizes.
class SizeSearch {
 public:
  SizeSearch(Graph& graph, const std::vector<SizeSource>& sources) : graph_(graph), sources_(sources) {}

  // Returns null if it is not found.
  Value* insert(const c10::IValue& first, const c10::IValue& second, Node* position) {
    position_ = position;
    if (first.isInt() && second.isInt()) {
      return find_int({first.toInt(), second.toInt()});
    }
    if (first.isDouble() && second.isDouble()) {
      return find_double(first.toDouble(), second.toDouble());
    }
    if (first.isIntList() && second.isIntList() && first.toIntVector().size() == second.toIntVector().size()) {
      return find_list(first.toIntVector(), second.toIntVector());
    }
    return nullptr;
  }

 private:
  Value* constant(c10::IValue value) { return graph_.insert_constant(std::move(value), position_); }

  Value* node(c10::Symbol kind, c10::ArrayRef<Value*> operands, const c10::TypePtr& type) {
    Node* made = graph_.create(kind, operands, 0);
    Value* result = made->add_output(type);
    SCONCE_ASSERT(resolve(*made), kind.toQualString());
    made->insert_before(position_);
    return result;
  }

  Value* size(const SizeSource& source) {
    return node(aten::size, {graph_.inputs()[source.input], constant(source.dim)}, c10::IntType::get());
  }

  Value* find_list(const std::vector<int64_t>& first, const std::vector<int64_t>& second) {
    std::vector<Value*> elements;
    for (size_t i = 0; i < first.size(); ++i) {
      elements.push_back(first[i] == second[i] ? constant(first[i]) : find_int({first[i], second[i]}));
      if (elements.back() == nullptr) {
        return nullptr;
      }
    }
    return node(prim::ListConstruct, elements, c10::ListType::ofInts());
  }

  Value* find_int(Pair wanted) {
    if (Value* found = find_product(wanted, 4)) {
      return found;
    }
    if (wanted.first < 0) {
      Value* found = find_product({-wanted.first, -wanted.second}, 4);
      return found == nullptr ? nullptr : node(aten::neg, {found}, c10::IntType::get());
    }
    for (const SizeSource& source : sources_) {
      if (wanted.first - source.first == wanted.second - source.second) {
        return node(aten::add, {size(source), constant(wanted.first - source.first)}, c10::IntType::get());
      }
    }
    for (const SizeSource& source : sources_) {
      const int64_t divisor = wanted.first > 0 ? source.first / wanted.first : 0;
      if (divisor > 1 && wanted == Pair{source.first / divisor, source.second / divisor}) {
        return node(aten::floordiv, {size(source), constant(divisor)}, c10::IntType::get());
      }
    }
    return find_sum(wanted);
  }

  Value* find_sum(Pair wanted) {
    for (const SizeSource& a : sources_) {
      for (const SizeSource& b : sources_) {
        if (wanted == Pair{a.first + b.first, a.second + b.second}) {
          return node(aten::add, {size(a), size(b)}, c10::IntType::get());
        }
        if (wanted == Pair{a.first - b.first, a.second - b.second}) {
          return node(aten::sub, {size(a), size(b)}, c10::IntType::get());
        }
      }
    }
    return nullptr;
  }

  // Finds a product of up to `factors` sizes, the last of which may be a constant.
  Value* find_product(Pair wanted, size_t factors) {
    for (const SizeSource& source : sources_) {
      if (wanted == Pair{source.first, source.second}) {
        return size(source);
      }
    }
    for (const SizeSource& source : sources_) {
      if (factors > 1 && source.first > 1 && wanted.first % source.first == 0 && wanted.second % source.second == 0) {
        const Pair rest{wanted.first / source.first, wanted.second / source.second};
        if (Value* other = rest.first == rest.second ? constant(rest.first) : find_product(rest, factors - 1)) {
          return node(aten::mul, {size(source), other}, c10::IntType::get());
        }
      }
    }
    return nullptr;
  }

  // Finds a product of sizes, or its inverse.
  Value* find_double(double first, double second) {
    const auto as_int = [](double value) -> std::optional<int64_t> {
      const double rounded = std::round(value);
      const bool is_int = std::abs(rounded) < 1e15 && std::abs(value - rounded) <= 1e-9 * std::abs(value);
      return is_int ? std::optional(static_cast<int64_t>(rounded)) : std::nullopt;
    };
    const auto insert_float = [&](double a, double b) -> Value* {
      if (!as_int(a) || !as_int(b)) {
        return nullptr;
      }
      Value* found = find_int({*as_int(a), *as_int(b)});
      return found == nullptr ? nullptr : node(aten::Float, {found}, c10::FloatType::get());
    };
    if (Value* found = insert_float(first, second)) {
      return found;
    }
    Value* divisor = insert_float(1 / first, 1 / second);
    return divisor == nullptr ? nullptr : node(aten::div, {constant(1.0), divisor}, c10::FloatType::get());
  }

  Graph& graph_;
  const std::vector<SizeSource>& sources_;
  Node* position_ = nullptr;
};

}  // namespace

bool generalize(Graph& first, const Graph& second, const std::vector<SizeSource>& sources) {
  FlatMap<const Value*, const Value*> counterparts;  // of values of `second`
  for (size_t i = 0; i < first.inputs().size(); ++i) {
    counterparts[second.inputs()[i]] = first.inputs()[i];
  }
  SizeSearch search(first, sources);
  const Node* other = second.body().first();
  std::vector<std::pair<Node*, Value*>> replaced;
  for (Node* node : first.body().nodes()) {
    if (other == nullptr || node->kind() != other->kind() || node->schema() != other->schema() ||
        node->inputs().size() != other->inputs().size() || node->outputs().size() != other->outputs().size()) {
      return false;
    }
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (counterparts[other->input(i)] != node->input(i)) {
        return false;
      }
    }
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      counterparts[other->output(i)] = node->output(i);
    }
    if (node->opcode() == Opcode::kConstant && !are_equal(*node->output()->constant(), *other->output()->constant())) {
      Value* computed = search.insert(*node->output()->constant(), *other->output()->constant(), node);
      if (computed == nullptr) {
        return false;
      }
      replaced.emplace_back(node, computed);
    }
    other = other->next();
  }
  for (size_t i = 0; i < first.outputs().size(); ++i) {
    if (i >= second.outputs().size() || counterparts[second.outputs()[i]] != first.outputs()[i]) {
      return false;
    }
  }
  for (const auto& [node, computed] : replaced) {
    node->output()->replace_all_uses_with(computed);
    node->erase();
  }
  return other == nullptr && first.outputs().size() == second.outputs().size();
}

}  // namespace sconce
