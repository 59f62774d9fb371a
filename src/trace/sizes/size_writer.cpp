// Writes sizes as nodes of a graph.
#include "base/assert.h"
#include "ir/schema_match.h"
#include "trace/sizes/symbolic_facts.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

using SizeOperation = SizeArithmetic::Operation;
using FloatOperation = FloatOfSizes::Operation;

class SizeWriter {
 public:
  SizeWriter(Graph& graph, SizeArithmetic& arithmetic) : graph_(graph), arithmetic_(arithmetic) {}

  Value* write(Dim dim) {
    if (dim.is_unknown()) {
      return nullptr;
    }
    if (dim.is_known()) {
      return constant(dim.value());
    }
    Value* total = nullptr;
    for (const SizeArithmetic::Term& term : arithmetic_.terms_of(dim)) {
      Value* product = term.coefficient != 1 || term.factors.empty() ? constant(term.coefficient) : nullptr;
      for (const SizeArithmetic::Factor& factor : term.factors) {
        product = join(aten::mul, product, write_factor(factor));
      }
      total = join(aten::add, total, product);
      if (is_impossible_) {
        return nullptr;
      }
    }
    return total;
  }

  Value* write(const FloatOfSizes& number) {
    if (number.operation == FloatOperation::kNumber) {
      return constant(number.number);
    }
    if (number.operation == FloatOperation::kSize) {
      Value* size = write(number.size);
      return size == nullptr ? nullptr : node(aten::Float, {size}, c10::FloatType::get());
    }
    Value* a = write(*number.a);
    Value* b = write(*number.b);
    return a == nullptr || b == nullptr ? nullptr : node(kind_of(number.operation), {a, b}, c10::FloatType::get());
  }

 private:
  static c10::Symbol kind_of(FloatOperation operation) {
    switch (operation) {
      case FloatOperation::kAdd: return aten::add;
      case FloatOperation::kSubtract: return aten::sub;
      case FloatOperation::kMultiply: return aten::mul;
      default: return aten::div;
    }
  }

  Value* constant(const c10::IValue& number) { return graph_.insert_constant(number, graph_.body().return_node()); }

  Value* node(c10::Symbol kind, c10::ArrayRef<Value*> operands, const c10::TypePtr& type = c10::IntType::get()) {
    Node* made = graph_.create(kind, operands, 0);
    Value* result = made->add_output(type);
    SCONCE_ASSERT(resolve(*made), kind.toQualString());
    made->append_to(graph_.body());
    return result;
  }

  Value* join(c10::Symbol kind, Value* first, Value* second) {
    return first == nullptr || second == nullptr ? (first == nullptr ? second : first) : node(kind, {first, second});
  }

  Value* write_factor(const SizeArithmetic::Factor& factor) {
    static const auto maximum = c10::Symbol::fromQualString("prim::max");
    static const auto minimum = c10::Symbol::fromQualString("prim::min");
    switch (factor.operation) {
      case SizeOperation::kGiven: return graph_.inputs()[static_cast<size_t>(factor.a.value() - 1)];
      case SizeOperation::kFloorDivide: return binary(aten::floordiv, factor);
      case SizeOperation::kRemainder: return binary(aten::remainder, factor);
      case SizeOperation::kMaximum: return binary(maximum, factor);
      case SizeOperation::kMinimum: return binary(minimum, factor);
      case SizeOperation::kIsLess:
      case SizeOperation::kIsEqual:
      case SizeOperation::kPair:
      case SizeOperation::kChoice: break;
    }
    is_impossible_ = true;
    return nullptr;
  }

  Value* binary(c10::Symbol kind, const SizeArithmetic::Factor& factor) {
    Value* a = write(factor.a);
    Value* b = write(factor.b);
    is_impossible_ = is_impossible_ || a == nullptr || b == nullptr;
    return is_impossible_ ? nullptr : node(kind, {a, b});
  }

  Graph& graph_;
  SizeArithmetic& arithmetic_;
  bool is_impossible_ = false;
};

}  // namespace

Value* SymbolicFacts::write(Graph& graph, Dim dim) {
  Value* written = SizeWriter(graph, sizes_->arithmetic()).write(dim);
  if (written != nullptr) {
    set_number(*written, dim);
  }
  return written;
}

Value* SymbolicFacts::write(Graph& graph, const FloatOfSizes& number) {
  return SizeWriter(graph, sizes_->arithmetic()).write(number);
}

}  // namespace sconce
