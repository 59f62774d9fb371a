// How graph_generator.h makes its graphs: one class, its parts in files by theme.
#pragma once

#include "tests/support/graph_generator.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <set>

namespace sconce::testing::generator {

using Sizes = std::vector<int64_t>;

enum class Kind { kFloats, kLongs, kBools, kInt, kBool, kFloat };

// What is known about a value of the program. A root is memory that was allocated once.
struct Variable {
  std::string name;
  Kind kind = Kind::kFloats;
  Sizes sizes = {};
  std::set<int> roots = {};  // the memory it may be a view of
  bool overlapping = false;  // two elements may be one place in memory
  bool is_tensor() const { return kind <= Kind::kBools; }
};

struct ListVariable {
  std::vector<std::string> names;  // a write gives the list back under another
  std::vector<Variable> elements;  // those it had when it was made: it may have grown since
  bool grows = false;
  int block = 0;  // in which it was made
};

bool intersect(const std::set<int>& a, const std::set<int>& b);
std::optional<Sizes> broadcast(const Sizes& a, const Sizes& b);
int64_t elements_in(const Sizes& sizes);

class Generator {
 public:
  Generator(uint64_t seed, const GeneratorSettings& settings) : settings_(settings), random_(seed) { result_.seed = seed; }

  GeneratedGraph run();

 private:
  using InputKind = GeneratedInput::Kind;
  using Emitter = bool (Generator::*)();  // false: nothing here to apply it to

  // ---- chance -----------------------------------------------------------------------------------------------------------
  // std's distributions differ between libraries; seeds must not.
  int pick(size_t bound) { return static_cast<int>(random_() % bound); }
  bool chance(int percent) { return pick(100) < percent; }
  template <typename Container>
  const auto& any_of(const Container& container) {
    return *(std::begin(container) + pick(std::size(container)));
  }

  // ---- text -------------------------------------------------------------------------------------------------------------
  static const char* type_of(InputKind kind) {
    switch (kind) {
      case InputKind::kInt: return "int";
      case InputKind::kBool: return "bool";
      case InputKind::kOptional: return "Tensor?";
      case InputKind::kTensor:
      case InputKind::kIndices: return "Tensor";
    }
    return "Tensor";
  }
  static const char* type_of(Kind kind) {
    switch (kind) {
      case Kind::kInt: return "int";
      case Kind::kBool: return "bool";
      case Kind::kFloat: return "float";
      default: return "Tensor";
    }
  }

  void line(const std::string& text) { lines_ += std::string(2 * static_cast<size_t>(indent_), ' ') + text + "\n"; }
  std::string new_name() { return "%v" + std::to_string(next_name_++); }

  std::string define(const std::string& type, const std::string& expression) {
    const std::string name = new_name();
    line(name + " : " + type + " = " + expression);
    return name;
  }
  std::string constant(int64_t value) { return define("int", "prim::Constant[value=" + std::to_string(value) + "]()"); }
  std::string constant(bool value) {
    return define("bool", value ? "prim::Constant[value=1]()" : "prim::Constant[value=0]()");
  }
  std::string constant(double value) {
    std::string digits = std::to_string(value);
    return define("float", "prim::Constant[value=" + digits + "]()");
  }
  std::string none() { return define("NoneType", "prim::Constant()"); }
  std::string constant(const Sizes& values) {
    std::string text;
    for (const int64_t value : values) {
      text += (text.empty() ? "" : ", ") + constant(value);
    }
    return define("int[]", "prim::ListConstruct(" + text + ")");
  }
  // The operator, then its operands. One list: its elements are evaluated, and chance asked, in their order.
  static std::string call(const std::vector<std::string>& parts) {
    std::string text = parts[0] + "(";
    for (size_t i = 1; i < parts.size(); ++i) {
      text += (i == 1 ? "" : ", ") + parts[i];
    }
    return text + ")";
  }

  // ---- variables --------------------------------------------------------------------------------------------------------
  int new_root() { return next_root_++; }

  const Variable& add(Variable variable) {
    variables_.push_back(std::move(variable));
    return variables_.back();
  }
  // Sometimes with what is known of it.
  std::string tensor_type(const Sizes& sizes, Kind kind) {
    if (kind != Kind::kFloats || sizes.empty() || chance(75)) {
      return "Tensor";
    }
    std::string text;
    for (const int64_t size : sizes) {
      text += (text.empty() ? "" : ", ") + std::to_string(size);
    }
    return "Float(" + text + ")";
  }
  // The result in new memory.
  const Variable& add_new(const std::string& expression, Sizes sizes, Kind kind = Kind::kFloats) {
    const std::string type = tensor_type(sizes, kind);
    return add({define(type, expression), kind, std::move(sizes), {new_root()}});
  }
  // The result is, or may be, a view of `base`.
  const Variable& add_view(const std::string& expression, const Variable& base, Sizes sizes, bool overlaps = false) {
    const bool overlapping = base.overlapping || overlaps;
    return add({define("Tensor", expression), base.kind, std::move(sizes), std::set<int>(base.roots), overlapping});
  }
  const Variable& add_scalar(const std::string& expression, Kind kind) {
    return add({define(type_of(kind), expression), kind});
  }

  std::vector<Variable> variables_where(const std::function<bool(const Variable&)>& condition) const {
    std::vector<Variable> found;
    std::copy_if(variables_.begin(), variables_.end(), std::back_inserter(found), condition);
    return found;
  }
  std::optional<Variable> any_where(const std::function<bool(const Variable&)>& condition) {
    const std::vector<Variable> found = variables_where(condition);
    if (found.empty()) {
      return std::nullopt;
    }
    // Late ones more often: graphs get deeper so.
    return found[static_cast<size_t>(chance(60) ? std::max(pick(found.size()), pick(found.size())) : pick(found.size()))];
  }
  Variable any_floats() {
    return *any_where([](const Variable& v) { return v.kind == Kind::kFloats; });
  }
  std::optional<Variable> floats_of_rank(size_t least) {
    return any_where([&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes.size() >= least; });
  }
  std::string any_int() {
    const auto found = any_where([](const Variable& v) { return v.kind == Kind::kInt; });
    return found && chance(70) ? found->name : constant(static_cast<int64_t>(pick(4)));
  }
  std::string any_bool() {
    const auto found = any_where([](const Variable& v) { return v.kind == Kind::kBool; });
    return found && chance(80) ? found->name : constant(chance(50));
  }
  size_t any_dim(const Variable& variable) { return static_cast<size_t>(pick(variable.sizes.size())); }
  // Sometimes counted from the end.
  std::string dim_constant(size_t dim, size_t rank) {
    return constant(static_cast<int64_t>(dim) - (chance(30) ? static_cast<int64_t>(rank) : 0));
  }

  // ---- inputs and outputs, inputs_and_outputs.cpp ------------------------------------------------------------------------
  Sizes any_sizes();
  void add_input(GeneratedInput input, Kind kind, std::set<int> roots);
  void make_inputs();
  std::string choose_outputs();

  // ---- operators, operators.cpp ------------------------------------------------------------------------------------------
  void emit_operators(int count);
  bool emit_unary();
  std::optional<Variable> broadcastable_with(const Variable& x);
  bool emit_binary();
  std::string any_scalar();
  std::string small_int();
  bool emit_with_scalar();
  bool emit_product();
  std::string another_right_side(const Variable& left, int64_t& columns);
  bool emit_products();
  bool emit_affine();
  bool emit_reduction();
  bool emit_comparison();
  std::string call_with_nones(const std::string& kind, const std::string& operand, size_t nones);
  bool emit_random();
  bool emit_new();
  bool emit_gather();

  // ---- memory, memory.cpp ------------------------------------------------------------------------------------------------
  bool emit_view();
  // Views or copies, as the strides have it; and an operator that returns its operand unmarked.
  bool emit_maybe_view();
  // Two to four changes of the order of dimensions or elements, often one that takes back the one before.
  bool emit_layout_chain();
  bool is_writable(const Variable& v) const;
  bool emit_in_place();
  // On a tensor that has just been made.
  bool emit_new_in_place();
  bool emit_list();
  bool emit_from_list();
  // In the block in which it was made, so that its first elements stay known.
  bool emit_list_write();
  void unpack(const std::string& list, const std::vector<Variable>& elements);
  // Autograd forbids writing into such views, or into their base while they are in use. So only memory of this block that
  // has no name outside, and from now on nothing writes into it.
  bool emit_several_views();
  // What symbolic gradients are made of.
  bool emit_undefined();
  bool emit_implicit_expand();

  // ---- control flow, control_flow.cpp ------------------------------------------------------------------------------------
  bool emit_tuple();
  bool emit_int();
  bool emit_bool();
  //   %missing = aten::__is__(%maybe, %none)
  //   %r = prim::If(%missing)  -> (%x), else -> (%x * the optional)
  bool emit_optional();
  // Emits `body` one block deeper; what it defines is forgotten after it.
  void in_block(const std::string& head, const std::function<void()>& body);
  bool emit_if();
  // All carried values may come to share memory, with each other and with what an iteration before made (`earlier`).
  bool emit_loop();

  const GeneratorSettings settings_;
  std::mt19937_64 random_;
  GeneratedGraph result_;
  std::string lines_;
  int indent_ = 1;
  int depth_ = 0;
  int next_name_ = 0;
  int next_root_ = 0;
  int block_ = 0;  // that is being written
  int last_block_ = 0;
  int block_roots_ = 0;   // memory from this root on was made in the block that is being written
  std::set<int> leaves_;  // memory of inputs that may require a gradient
  std::set<int> frozen_;  // memory under results of operators with several views
  std::optional<GeneratedInput> optional_;
  int optional_root_ = -1;
  std::vector<Variable> variables_;
  std::vector<ListVariable> lists_;
};

}  // namespace sconce::testing::generator
