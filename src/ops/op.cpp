#include "ops/op.h"

#include "ops/foreign.h"
#include "ops/in_place.h"
#include "ops/rows.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <sstream>
#include <string_view>
#include <unordered_map>

namespace sconce {
namespace {

bool is_write(const c10::Argument& argument) { return argument.alias_info() != nullptr && argument.alias_info()->isWrite(); }
bool has_mark(const c10::Argument& argument) { return argument.alias_info() != nullptr; }

// ---- what LibTorch says ---------------------------------------------------------------------------------------------

bool draws_random_numbers(const Op& op) {
  if (!op.dispatched) {
    return false;
  }
  // A composite that takes a generator draws from it through the operators that it calls.
  return op.has_tag(at::Tag::nondeterministic_seeded) ||
         std::ranges::any_of(op.schema->arguments(), [](const auto& argument) { return argument.name() == "generator"; });
}

bool is_trusted(const Op& op) {
  return op.registered != nullptr && op.registered->aliasAnalysisKind() != c10::AliasAnalysisKind::CONSERVATIVE;
}

Effects effects_of(const Op& op) {
  if (op.reads_state) {
    return {};
  }
  if (!is_trusted(op) || op.effects.unknown) {
    return {.unknown = true};
  }
  Effects effects = op.effects;
  for (size_t i = 0; i < op.schema->arguments().size(); ++i) {
    effects.writes |= op.writes_argument(i);
  }
  effects.random |= draws_random_numbers(op);
  effects.external |= op.dispatched && may_do_more_than_compute(*op.dispatched);
  effects.state |= op.schema->returns().empty() && !effects.writes && !effects.external;
  return effects;
}

bool results_may_share_memory(const Op& op) {
  if (op.results != Sharing::kByKind) {
    return op.results == Sharing::kShared;
  }
  if (op.canonical != nullptr) {
    return op.canonical->results_may_share_memory;
  }
  const bool is_composed =
      op.dispatched && (op.dispatched->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
                        op.has_tag(at::Tag::maybe_aliasing_or_mutating));
  // `prim::AutogradAdd` returns one operand when the other is undefined.
  const bool is_special_case =
      op.registered != nullptr && op.registered->aliasAnalysisKind() == c10::AliasAnalysisKind::INTERNAL_SPECIAL_CASE;
  return is_composed || is_special_case;
}

// Returns whether the results are strided tensors where the arguments are, by what LibTorch declares: it is so for
// structured kernels, core operators, pointwise operators and reductions.
bool computes_strided_tensors(const Op& op) {
  return op.dispatched->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         op.has_tag(at::Tag::core) || op.has_tag(at::Tag::pointwise) || op.has_tag(at::Tag::reduction);
}

bool takes_layout(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) { return argument.name() == "layout"; });
}

// Returns whether the row says something that holds for strided results alone: their dtypes, sizes or gradients.
bool has_strided_results(const OpRow& row) {
  const bool has_sizes = !row.result.dtypes.empty() || row.result.keeps_sizes || !row.result.sizes.empty();
  return row.layout != Layout::kUnknown || !row.backward.empty() || !row.forward.empty() || row.recorded_gradient ||
         (has_sizes && !row.result.accepts_sparse && !row.result.differs_on_meta);
}

bool holds_tensors(const c10::Type& type) {
  return type.kind() == c10::TypeKind::TensorType ||
         std::ranges::any_of(type.containedTypes(), [](const c10::TypePtr& part) { return holds_tensors(*part); });
}

// Returns whether the operator makes a result of tensors: one that the schema does not call an argument, or a part of one.
bool makes_result_of_tensors(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& each) { return holds_tensors(*each.type()); }) &&
         std::ranges::any_of(schema.returns(),
                             [](const c10::Argument& each) { return holds_tensors(*each.type()) && !has_mark(each); });
}

bool is_of_namespace(const Op& op, std::string_view name) { return op.schema->name().starts_with(name); }

bool results_may_hold_operands(const Op& op) {
  if (op.canonical != nullptr) {
    return op.canonical->results_may_hold_operands;
  }
  // Operators of `quantized::` hold what they pack in objects, which are containers.
  if (!op.dispatched || !makes_result_of_tensors(*op.schema) || op.results != Sharing::kByKind || has_strided_results(op) ||
      is_of_namespace(op, "quantized::")) {
    return false;
  }
  // A composite with a layout makes tensors of that layout of its arguments.
  return op.dispatched->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ? takes_layout(*op.schema)
                                                                                             : !computes_strided_tensors(op);
}

// Operators of LibTorch and of sconce hold arguments in results alone.
bool may_keep_operands(const Op& op) {
  constexpr std::array<std::string_view, 4> kOwn = {"aten::", "prim::", "quantized::", "sconce::"};
  return std::ranges::none_of(kOwn, [&](std::string_view name) { return is_of_namespace(op, name); });
}

bool may_change_sizes(const Op& op) {
  const auto is_out = [](const c10::Argument& argument) { return argument.kwarg_only() && is_write(argument); };
  return op.resizes || op.has_tag(at::Tag::inplace_view) || std::ranges::any_of(op.schema->arguments(), is_out);
}

// ---- functional variants --------------------------------------------------------------------------------------------

bool casts_under_autocast(const Op& op) {
  return !op.dispatched || op.dispatched->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU) ||
         op.dispatched->hasKernelForDispatchKey(c10::DispatchKey::AutocastCUDA);
}

const Op* find_functional(const Op& op) {
  const Op* variant = find_out_of_place(op);
  return variant != nullptr && !casts_under_autocast(*variant) && !casts_under_autocast(op) ? variant : nullptr;
}

// ---- building a record ----------------------------------------------------------------------------------------------

std::unique_ptr<Op> build(const c10::FunctionSchema& schema) {
  auto op = std::make_unique<Op>();
  if (const OpRow* row = find_op_row(schema.name(), schema.overload_name())) {
    static_cast<OpRow&>(*op) = *row;
  }
  op->kind = c10::Symbol::fromQualString(schema.name());
  op->schema = &schema;
  op->dispatched = c10::Dispatcher::singleton().findSchema(schema.operator_name());
  op->registered = torch::jit::findOperatorFor(schema.operator_name());
  if (schema.is_mutable()) {
    op->autocast = Autocast::kNone;  // autocast leaves in-place and out= variants alone
  }
  if (!op->synonym_of.empty()) {
    const auto registered = torch::jit::findOperatorFor({std::string(op->synonym_of), schema.overload_name()});
    op->canonical = registered == nullptr ? nullptr : &op_of(registered->schema());
  }
  op->all_effects = effects_of(*op);
  op->results_may_share_memory = results_may_share_memory(*op);
  op->results_may_hold_operands = results_may_hold_operands(*op);
  op->may_keep_operands = may_keep_operands(*op);
  op->may_change_sizes = op->all_effects.unknown || may_change_sizes(*op);
  op->functional = find_functional(*op);
  op->cpu_autocast = cpu_autocast_of(*op);
  return op;
}

// Compares what an Op is derived of. Less than FunctionSchema's operator, which compares defaults, too, and is slow.
bool is_same(const c10::FunctionSchema& a, const c10::FunctionSchema& b) {
  const auto are_same = [](const std::vector<c10::Argument>& some, const std::vector<c10::Argument>& others) {
    return std::equal(some.begin(), some.end(), others.begin(), others.end(), [](const auto& x, const auto& y) {
      const bool has_marks = x.alias_info() != nullptr;
      return x.name() == y.name() && has_marks == (y.alias_info() != nullptr) &&
             (!has_marks || *x.alias_info() == *y.alias_info());
    });
  };
  return a.operator_name() == b.operator_name() && are_same(a.arguments(), b.arguments()) &&
         are_same(a.returns(), b.returns());
}

// Records by the address of their schema. Readers take no lock: a bucket is a list that only grows at its head.
class Interned {
 public:
  const Op& get(const c10::FunctionSchema& schema) {
    std::atomic<const Entry*>& head = buckets_[(reinterpret_cast<uintptr_t>(&schema) >> 4) % buckets_.size()];
    for (const Entry* entry = head.load(std::memory_order_acquire); entry != nullptr; entry = entry->next) {
      // A library's operators can leave the registry, and others come to lie at the address of their schemas.
      if (entry->op->schema == &schema && is_same(entry->copy, schema)) {
        return *entry->op;
      }
    }
    auto* made = new Entry{build(schema), schema, head.load(std::memory_order_relaxed)};
    // Two threads may build the same record at once: then both stay, equal.
    while (!head.compare_exchange_weak(made->next, made, std::memory_order_release, std::memory_order_relaxed)) {
    }
    return *made->op;
  }

 private:
  struct Entry {
    std::unique_ptr<const Op> op;
    c10::FunctionSchema copy;
    const Entry* next;
  };
  std::array<std::atomic<const Entry*>, 4096> buckets_{};
};

using RowsByName = std::unordered_map<std::string_view, std::vector<const OpRow*>>;

const RowsByName& rows_by_name() {
  static const auto map = [] {
    RowsByName rows;
    for_each_row([&](const OpRow& row) { rows[row.name].push_back(&row); });
    return rows;
  }();
  return map;
}

}  // namespace

bool Op::is_marked_as_written(size_t index) const { return is_write(schema->arguments()[index]); }

bool Op::writes_unmarked(size_t index) const {
  return !written.empty() && std::ranges::find(written, schema->arguments()[index].name()) != written.end();
}

std::optional<size_t> Op::argument_index(std::string_view argument) const {
  for (size_t i = 0; schema != nullptr && i < schema->arguments().size(); ++i) {
    if (schema->arguments()[i].name() == argument) {
      return i;
    }
  }
  return std::nullopt;
}

const Op& op_of(const c10::FunctionSchema& schema) {
  static auto& interned = *new Interned();  // nodes may outlive static objects
  return interned.get(schema);
}

const Op* language_op(c10::Symbol kind) {
  static const auto& ops = *[] {
    auto* made = new std::vector<std::unique_ptr<const Op>>();
    for (const OpRow& row : language_rows()) {
      auto op = std::make_unique<Op>();
      static_cast<OpRow&>(*op) = row;
      op->kind = c10::Symbol::fromQualString(std::string(row.name));
      op->all_effects = row.effects;
      op->may_change_sizes = row.effects.unknown;
      op->results_may_hold_operands = false;  // analyses know what these nodes hold
      op->may_keep_operands = false;
      const auto index = static_cast<size_t>(static_cast<c10::unique_t>(op->kind));
      made->resize(std::max(made->size(), index + 1));
      (*made)[index] = std::move(op);
    }
    return made;
  }();
  const auto index = static_cast<size_t>(static_cast<c10::unique_t>(kind));
  return index < ops.size() ? ops[index].get() : nullptr;
}

const Op& unresolved_op() {
  static const auto& op = *[] {
    auto* made = new Op();
    made->all_effects = {.unknown = true};
    made->may_change_sizes = true;
    return made;
  }();
  return op;
}

const Op& composite_op(c10::FunctionSchema schema, Opcode opcode, Effects effects) {
  static std::mutex mutex;
  static auto& made = *new std::unordered_map<std::string, std::unique_ptr<const Op>>();
  std::ostringstream text;
  text << static_cast<int>(opcode);
  for (const bool effect : {effects.writes, effects.random, effects.external, effects.state, effects.unknown}) {
    text << (effect ? "!" : ".");
  }
  text << schema;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<const Op>& op = made[text.str()];
  if (op == nullptr) {
    auto composite = std::make_unique<Op>();
    composite->own_schema = std::make_shared<const c10::FunctionSchema>(std::move(schema));
    composite->schema = composite->own_schema.get();
    composite->kind = c10::Symbol::fromQualString(composite->schema->name());
    composite->opcode = opcode;
    composite->all_effects = effects;
    composite->may_change_sizes = effects.unknown;
    composite->results = Sharing::kFresh;
    composite->results_may_share_memory = false;
    composite->results_may_hold_operands = false;
    composite->may_keep_operands = false;
    op = std::move(composite);
  }
  return *op;
}

const Op& op_under_autocast(const Op& op) {
  static std::mutex mutex;
  static auto& made = *new std::unordered_map<const Op*, std::unique_ptr<const Op>>();
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<const Op>& record = made[&op];
  if (record == nullptr) {
    auto unknown = std::make_unique<Op>(op);
    static_cast<OpRow&>(*unknown) = {.name = op.name,
                                     .effects = op.effects,
                                     .reads_state = true,
                                     .differentiates = op.differentiates,
                                     .raises = op.raises,
                                     .written = op.written,
                                     .written_if = op.written_if,
                                     .results = op.results,
                                     .may_overlap = op.may_overlap,
                                     .resizes = op.resizes,
                                     .returns_existing = op.returns_existing,
                                     .makes_container = op.makes_container,
                                     .reads_identity = op.reads_identity};
    unknown->functional = nullptr;
    unknown->canonical = nullptr;
    unknown->runs_under_autocast = true;
    record = std::move(unknown);
  }
  return *record;
}

const Op& autocast_cast_op() {
  static const auto& op = *[] {
    auto* made = new Op();
    made->own_schema = std::make_shared<const c10::FunctionSchema>(
        torch::jit::parseSchema("sconce::autocast_cast(Tensor(a) self, int dtype) -> Tensor(a)"));
    made->schema = made->own_schema.get();
    made->kind = c10::Symbol::fromQualString(made->schema->name());
    made->opcode = Opcode::kAutocastCast;
    made->results_may_share_memory = false;  // but for the marked argument
    made->results_may_hold_operands = false;
    made->may_keep_operands = false;
    return made;
  }();
  return op;
}

const OpRow* find_op_row(std::string_view name, std::string_view overload) {
  const auto found = rows_by_name().find(name);
  const OpRow* any = nullptr;
  if (found != rows_by_name().end()) {
    for (const OpRow* row : found->second) {
      if (std::ranges::find(row->overloads, overload) != row->overloads.end()) {
        return row;
      }
      any = row->overloads.empty() ? row : any;
    }
  }
  return any;
}

}  // namespace sconce
