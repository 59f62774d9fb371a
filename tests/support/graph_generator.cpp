#include "tests/support/graph_generator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <set>

namespace sconce::testing {
namespace {

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
  std::string name;
  std::vector<Variable> elements;  // those it had when it was made: it may have grown since
  bool grows = false;
};

bool intersect(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int root) { return b.contains(root); });
}

std::optional<Sizes> broadcast(const Sizes& a, const Sizes& b) {
  Sizes result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t left = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t right = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (left != right && left != 1 && right != 1) {
      return std::nullopt;
    }
    result[result.size() - 1 - i] = std::max(left, right);
  }
  return result;
}

int64_t elements_in(const Sizes& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    count *= size;
  }
  return count;
}

class Generator {
 public:
  Generator(uint64_t seed, const GeneratorSettings& settings) : settings_(settings), random_(seed) { result_.seed = seed; }

  GeneratedGraph run() {
    make_inputs();
    emit_operators(settings_.nodes / 2 + pick(settings_.nodes));
    std::string text = "graph(";
    for (size_t i = 0; i < result_.inputs.size(); ++i) {
      const GeneratedInput& input = result_.inputs[i];
      text += (i == 0 ? "%" : ",\n      %") + input.name + " : " + type_of(input.kind);
    }
    text += "):\n";
    const std::string outputs = choose_outputs();
    result_.text = text + lines_ + "  return (" + outputs + ")\n";
    return result_;
  }

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
  // The result in new memory.
  const Variable& add_new(const std::string& expression, Sizes sizes, Kind kind = Kind::kFloats) {
    return add({define("Tensor", expression), kind, std::move(sizes), {new_root()}});
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

  // ---- inputs and outputs -----------------------------------------------------------------------------------------------
  Sizes any_sizes() {
    Sizes sizes(static_cast<size_t>(1 + pick(3)));
    for (int64_t& size : sizes) {
      size = 1 + pick(4);
    }
    return sizes;
  }

  void add_input(GeneratedInput input, Kind kind, std::set<int> roots) {
    if (input.kind != InputKind::kOptional) {
      add({"%" + input.name, kind, input.sizes, std::move(roots)});
    }
    result_.inputs.push_back(std::move(input));
  }

  void make_inputs() {
    const Sizes common = any_sizes();
    for (int i = 0, count = 1 + pick(3); i < count; ++i) {
      const int root = new_root();
      leaves_.insert(root);
      add_input({.name = "w" + std::to_string(i), .sizes = chance(60) ? common : any_sizes(), .differentiable = true},
                Kind::kFloats, {root});
    }
    for (int i = 0, count = 1 + pick(2); i < count; ++i) {
      add_input({.name = "x" + std::to_string(i), .sizes = chance(60) ? common : any_sizes()}, Kind::kFloats, {new_root()});
    }
    if (chance(30)) {
      const GeneratedInput original = result_.inputs.back();
      GeneratedInput alias{.name = "same", .sizes = original.sizes, .alias_of = static_cast<int>(result_.inputs.size()) - 1};
      alias.alias_is_transposed = chance(50);
      if (alias.alias_is_transposed) {
        std::reverse(alias.sizes.begin(), alias.sizes.end());
      }
      add_input(alias, Kind::kFloats, std::set<int>(variables_.back().roots));
    }
    add_input({.name = "indices", .kind = InputKind::kIndices, .sizes = {3}}, Kind::kLongs, {new_root()});
    add_input({.name = "n", .kind = InputKind::kInt}, Kind::kInt, {});
    add_input({.name = "flag", .kind = InputKind::kBool}, Kind::kBool, {});
    if (chance(30)) {
      const int root = new_root();
      leaves_.insert(root);  // never written: its memory may be anything
      optional_ = GeneratedInput{.name = "maybe", .kind = InputKind::kOptional, .sizes = common};
      optional_root_ = root;
      add_input(*optional_, Kind::kFloats, {});
    }
  }

  std::string choose_outputs() {
    std::string text;
    for (int i = 0, count = 1 + pick(4); i < count; ++i) {
      std::string name;
      if (!lists_.empty() && chance(15)) {
        name = any_of(lists_).name;
      } else if (chance(15)) {
        const Variable a = any_of(variables_);
        const Variable b = any_of(variables_);
        name = define(std::string("(") + type_of(a.kind) + ", " + type_of(b.kind) + ")",
                      call({"prim::TupleConstruct", a.name, b.name}));
      } else {
        name = chance(80) ? any_where([](const Variable& v) { return v.is_tensor(); })->name : any_of(variables_).name;
      }
      text += (text.empty() ? "" : ", ") + name;
    }
    return text;
  }

  // ---- operators --------------------------------------------------------------------------------------------------------
  void emit_operators(int count) {
    struct Choice {
      int weight;
      Emitter emit;
    };
    static const std::vector<Choice> choices = {
        {12, &Generator::emit_unary},        {14, &Generator::emit_binary},
        {6, &Generator::emit_with_scalar},   {16, &Generator::emit_view},
        {6, &Generator::emit_maybe_view},    {6, &Generator::emit_product},
        {8, &Generator::emit_reduction},     {5, &Generator::emit_comparison},
        {18, &Generator::emit_in_place},     {5, &Generator::emit_random},
        {4, &Generator::emit_new},           {5, &Generator::emit_gather},
        {6, &Generator::emit_list},          {5, &Generator::emit_from_list},
        {3, &Generator::emit_several_views}, {3, &Generator::emit_tuple},
        {8, &Generator::emit_int},           {6, &Generator::emit_bool},
        {3, &Generator::emit_undefined},     {3, &Generator::emit_implicit_expand},
        {4, &Generator::emit_optional},      {7, &Generator::emit_if},
        {7, &Generator::emit_loop},
    };
    int total = 0;
    for (const Choice& choice : choices) {
      total += choice.weight;
    }
    for (int done = 0; done < count;) {
      int at = pick(static_cast<size_t>(total));
      const Choice* choice = choices.data();
      while (at >= choice->weight) {
        at -= choice->weight;
        ++choice;
      }
      done += (this->*choice->emit)() ? 1 : 0;
    }
  }

  bool emit_unary() {
    static const std::vector<std::string> kinds = {"tanh", "sigmoid", "relu",     "neg",      "abs",    "sin",
                                                   "cos",  "square",  "absolute", "negative", "arctan", "gelu"};
    const Variable x = any_floats();
    const std::string kind = any_of(kinds);
    if (kind == "gelu") {
      add_new(call({"aten::gelu", x.name, define("str", "prim::Constant[value=\"none\"]()")}), x.sizes);
    } else {
      add_new(call({"aten::" + kind, x.name}), x.sizes);
    }
    return true;
  }

  std::optional<Variable> broadcastable_with(const Variable& x) {
    return any_where([&](const Variable& v) { return v.kind == Kind::kFloats && broadcast(v.sizes, x.sizes).has_value(); });
  }

  bool emit_binary() {
    const Variable a = any_floats();
    const Variable b = *broadcastable_with(a);
    Sizes sizes = *broadcast(a.sizes, b.sizes);
    if (elements_in(sizes) > 512) {
      return false;
    }
    static const std::vector<std::string> with_alpha = {"add", "sub", "subtract"};
    static const std::vector<std::string> plain = {"mul", "maximum", "minimum", "multiply", "div"};
    if (chance(50)) {
      add_new(call({"aten::" + any_of(with_alpha), a.name, b.name, constant(static_cast<int64_t>(1 + pick(2)))}),
              std::move(sizes));
    } else {
      add_new(call({"aten::" + any_of(plain), a.name, b.name}), std::move(sizes));
    }
    return true;
  }

  std::string any_scalar() { return chance(50) ? constant(0.25 * (pick(9) - 4)) : small_int(); }
  std::string small_int() { return define("int", call({"aten::remainder", any_int(), constant(int64_t{5})})); }

  bool emit_with_scalar() {
    const Variable x = any_floats();
    switch (pick(4)) {
      case 0: add_new(call({"aten::mul", x.name, any_scalar()}), x.sizes); break;
      case 1: add_new(call({"aten::add", x.name, any_scalar(), constant(int64_t{1})}), x.sizes); break;
      case 2: add_new(call({chance(50) ? "aten::clamp" : "aten::clip", x.name, constant(-1.5), none()}), x.sizes); break;
      default: add_new(call({"aten::rsub", x.name, any_scalar(), constant(int64_t{1})}), x.sizes); break;
    }
    return true;
  }

  bool emit_view() {
    const auto found = floats_of_rank(1);
    if (!found) {
      return false;
    }
    const Variable x = *found;
    const size_t rank = x.sizes.size();
    const size_t dim = any_dim(x);
    Sizes sizes = x.sizes;
    switch (pick(8)) {
      case 0: {  // any int is an index, brought into bounds
        const std::string index = define("int", call({"aten::remainder", any_int(), constant(sizes[dim])}));
        sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dim));
        add_view(call({"aten::select", x.name, dim_constant(dim, rank), index}), x, sizes);
        break;
      }
      case 1: {
        const int64_t start = pick(static_cast<size_t>(sizes[dim]));
        const int64_t end = start + 1 + pick(static_cast<size_t>(sizes[dim] - start));
        const int64_t step = 1 + pick(2);
        const bool open = end == sizes[dim] && chance(50);
        sizes[dim] = (end - start + step - 1) / step;
        const std::string from = constant(start);
        const std::string to = open ? none() : constant(end);
        add_view(call({"aten::slice", x.name, dim_constant(dim, rank), from, to, constant(step)}), x, sizes);
        break;
      }
      case 2: {
        const size_t other = any_dim(x);
        std::swap(sizes[dim], sizes[other]);
        add_view(call({"aten::transpose", x.name, dim_constant(dim, rank), dim_constant(other, rank)}), x, sizes);
        break;
      }
      case 3: {
        if (rank > 3) {
          return false;
        }
        const size_t at = static_cast<size_t>(pick(rank + 1));
        sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(at), 1);
        add_view(call({"aten::unsqueeze", x.name, constant(static_cast<int64_t>(at))}), x, sizes);
        break;
      }
      case 4: {
        if (sizes[dim] == 1) {
          sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dim));
        }
        add_view(call({"aten::squeeze", x.name, dim_constant(dim, rank)}), x, sizes);
        break;
      }
      case 5: {
        const bool grows = sizes[dim] == 1;
        if (grows) {
          sizes[dim] = 1 + pick(3);
        }
        add_view(call({"aten::expand", x.name, constant(sizes), constant(false)}), x, sizes, grows && sizes[dim] > 1);
        break;
      }
      case 6: add_view(call({"aten::detach", x.name}), x, sizes); break;
      default: {
        std::vector<int64_t> order(rank);
        for (size_t i = 0; i < rank; ++i) {
          order[i] = static_cast<int64_t>((i + dim) % rank);
          sizes[i] = x.sizes[(i + dim) % rank];
        }
        add_view(call({"aten::permute", x.name, constant(order)}), x, sizes);
        break;
      }
    }
    return true;
  }

  // Views or copies, as the strides have it; and an operator that returns its operand unmarked.
  bool emit_maybe_view() {
    const Variable x = any_floats();
    switch (pick(4)) {
      case 0: {
        Sizes sizes = {elements_in(x.sizes)};
        if (sizes[0] % 2 == 0 && chance(60)) {
          sizes = {2, sizes[0] / 2};
        }
        const Sizes asked = chance(30) ? Sizes{sizes.size() == 1 ? -1 : 2, sizes.size() == 1 ? 1 : -1} : sizes;
        const bool appends_one = asked.size() == 2 && sizes.size() == 1;
        add_view(call({"aten::reshape", x.name, constant(asked)}), x, appends_one ? Sizes{sizes[0], 1} : sizes);
        break;
      }
      case 1: add_view(call({"aten::contiguous", x.name, constant(int64_t{0})}), x, x.sizes); break;
      case 2: add_view(call({"aten::dropout", x.name, constant(0.5), constant(false)}), x, x.sizes); break;
      default: {
        const std::string dtype = constant(int64_t{6});  // float32: what it is
        add_view(call({"aten::to", x.name, dtype, constant(false), constant(false), none()}), x, x.sizes);
        break;
      }
    }
    return true;
  }

  bool emit_product() {
    const auto a = floats_of_rank(2);
    if (!a || a->sizes.size() > 3) {
      return false;
    }
    const auto b = any_where([&](const Variable& v) {
      return v.kind == Kind::kFloats && v.sizes.size() == 2 &&
             (v.sizes[0] == a->sizes.back() || v.sizes[1] == a->sizes.back());
    });
    if (!b) {
      return false;
    }
    Sizes sizes = a->sizes;
    if (b->sizes[1] == a->sizes.back() && chance(50)) {
      sizes.back() = b->sizes[0];
      add_new(call({"aten::linear", a->name, b->name, none()}), sizes);
    } else if (b->sizes[0] == a->sizes.back()) {
      sizes.back() = b->sizes[1];
      add_new(call({"aten::matmul", a->name, b->name}), sizes);
    } else {
      return false;
    }
    return true;
  }

  bool emit_reduction() {
    const auto found = floats_of_rank(1);
    if (!found) {
      return false;
    }
    const Variable x = *found;
    const size_t rank = x.sizes.size();
    const size_t dim = any_dim(x);
    const bool keep = chance(50);
    Sizes reduced = x.sizes;
    if (keep) {
      reduced[dim] = 1;
    } else {
      reduced.erase(reduced.begin() + static_cast<std::ptrdiff_t>(dim));
    }
    switch (pick(6)) {
      case 0: add_new(call({"aten::sum", x.name, none()}), {}); break;
      case 1:
        add_new(call({chance(50) ? "aten::sum" : "aten::mean", x.name, constant(Sizes{static_cast<int64_t>(dim)}),
                      constant(keep), none()}),
                reduced);
        break;
      case 2: {
        const std::string operands = call({"aten::max", x.name, dim_constant(dim, rank), constant(keep)});
        const std::string values = new_name();
        const std::string indices = new_name();
        line(values + " : Tensor, " + indices + " : Tensor = " + operands);
        add({values, Kind::kFloats, reduced, {new_root()}});
        add({indices, Kind::kLongs, reduced, {new_root()}});
        break;
      }
      case 3: add_new(call({"aten::softmax", x.name, dim_constant(dim, rank), none()}), x.sizes); break;
      case 4: add_new(call({"aten::cumsum", x.name, dim_constant(dim, rank), none()}), x.sizes); break;
      default: {
        const std::string shape = constant(Sizes{x.sizes.back()});
        const std::string weight = none();
        add_new(call({"aten::layer_norm", x.name, shape, weight, weight, constant(1e-3), constant(true)}), x.sizes);
        break;
      }
    }
    return true;
  }

  bool emit_comparison() {
    const Variable a = any_floats();
    const Variable b = *broadcastable_with(a);
    Sizes sizes = *broadcast(a.sizes, b.sizes);
    const std::string mask = add_new(call({chance(50) ? "aten::gt" : "aten::le", a.name, b.name}), sizes, Kind::kBools).name;
    if (chance(50)) {
      add_new(call({"aten::where", mask, a.name, b.name}), sizes);
    } else if (sizes == a.sizes) {
      add_new(call({"aten::masked_fill", a.name, mask, constant(0.5)}), sizes);
    }
    return true;
  }

  bool is_writable(const Variable& v) const {
    return v.kind == Kind::kFloats && !v.overlapping && !intersect(v.roots, leaves_) && !intersect(v.roots, frozen_);
  }

  bool emit_in_place() {
    const auto target = any_where([&](const Variable& v) { return is_writable(v); });
    if (!target) {
      return false;
    }
    const auto operand = any_where([&](const Variable& v) {
      const auto sizes = broadcast(v.sizes, target->sizes);
      return v.kind == Kind::kFloats && sizes && *sizes == target->sizes &&
             (v.name == target->name || !intersect(v.roots, target->roots));
    });
    const std::string other = operand->name;  // the target itself always qualifies
    std::string expression;
    switch (pick(8)) {
      case 0: expression = call({"aten::add_", target->name, other, constant(int64_t{1})}); break;
      case 1: expression = call({"aten::mul_", target->name, other}); break;
      case 2: expression = call({"aten::copy_", target->name, other, constant(false)}); break;
      case 3: expression = call({"aten::sub_", target->name, any_scalar(), constant(int64_t{1})}); break;
      case 4: expression = call({chance(50) ? "aten::tanh_" : "aten::relu_", target->name}); break;
      case 5:
        expression = chance(50) ? call({"aten::zero_", target->name}) : call({"aten::fill_", target->name, any_scalar()});
        break;
      case 6: {
        const std::string mask = define("Tensor", call({"aten::lt", other, constant(0.0)}));
        expression = call({"aten::masked_fill_", target->name, mask, constant(-0.25)});
        break;
      }
      default: expression = call({"aten::clamp_", target->name, none(), constant(0.75)}); break;
    }
    // The result is the target: sometimes nobody uses it.
    add_view(expression, *target, target->sizes);
    return true;
  }

  std::string call_with_nones(const std::string& kind, const std::string& operand, size_t nones) {
    std::vector<std::string> parts = {kind, operand};
    parts.insert(parts.end(), nones, none());
    return call(parts);
  }

  bool emit_random() {
    const Variable x = any_floats();
    switch (pick(3)) {
      case 0: add_new(call_with_nones("aten::rand_like", x.name, 5), x.sizes); break;
      case 1: add_new(call({"aten::dropout", x.name, constant(0.5), constant(true)}), x.sizes); break;
      default: {
        const std::string probabilities = define("Tensor", call({"aten::sigmoid", x.name}));
        // Not of NaN, which bernoulli refuses.
        const std::string finite =
            define("Tensor", call({"aten::nan_to_num", probabilities, constant(0.5), none(), none()}));
        add_new(call({"aten::bernoulli", finite, none()}), x.sizes);
        break;
      }
    }
    return true;
  }

  bool emit_new() {
    const Variable x = any_floats();
    switch (pick(3)) {
      case 0: add_new(call_with_nones("aten::zeros_like", x.name, 5), x.sizes); break;
      case 1: add_new(call_with_nones("aten::ones_like", x.name, 5), x.sizes); break;
      default: add_new(call_with_nones("aten::clone", x.name, 1), x.sizes); break;
    }
    return true;
  }

  bool emit_gather() {
    const auto x =
        any_where([](const Variable& v) { return v.kind == Kind::kFloats && !v.sizes.empty() && v.sizes[0] >= 2; });
    if (!x) {
      return false;
    }
    Sizes sizes = x->sizes;
    sizes[0] = 3;
    // The input %indices holds zeros and ones.
    if (x->sizes.size() == 2 && chance(50)) {
      add_new(call({"aten::embedding", x->name, "%indices", constant(int64_t{-1}), constant(false), constant(false)}),
              sizes);
    } else {
      add_new(call({"aten::index_select", x->name, constant(int64_t{0}), "%indices"}), sizes);
    }
    return true;
  }

  bool emit_list() {
    const Variable first = any_floats();
    ListVariable list;
    list.elements.push_back(first);
    for (int i = pick(3); i > 0; --i) {
      list.elements.push_back(
          *any_where([&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes == first.sizes; }));
    }
    list.grows = chance(40);
    std::vector<std::string> parts = {"prim::ListConstruct"};
    for (const Variable& element : list.elements) {
      parts.push_back(element.name);
    }
    list.name = define("Tensor[]", call(parts));
    lists_.push_back(std::move(list));
    return true;
  }

  bool emit_from_list() {
    if (lists_.empty()) {
      return false;
    }
    const ListVariable list = any_of(lists_);
    const Variable& first = list.elements.front();
    switch (pick(4)) {
      case 0: {  // elements that were there from the start: others are pushed behind them
        const size_t index = static_cast<size_t>(pick(list.elements.size()));
        const Variable& element = list.elements[index];
        add_view(call({"aten::__getitem__", list.name, constant(static_cast<int64_t>(index))}), element, element.sizes);
        break;
      }
      case 1: {
        if (!list.grows) {
          Sizes sizes = first.sizes;
          if (sizes.empty() || elements_in(sizes) > 128) {
            return false;
          }
          sizes[0] *= static_cast<int64_t>(list.elements.size());
          add_new(call({chance(50) ? "aten::cat" : "aten::concat", list.name, constant(int64_t{0})}), sizes);
          break;
        }
        const Variable element =
            *any_where([&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes == first.sizes; });
        define("Tensor[]", call({"aten::append", list.name, element.name}));
        break;
      }
      case 2: {  // however long it is now
        const std::string stacked = define("Tensor", call({"aten::stack", list.name, constant(int64_t{0})}));
        add_new(call({"aten::sum", stacked, constant(Sizes{0}), constant(false), none()}), first.sizes);
        break;
      }
      default: {
        if (list.grows) {
          add_scalar(call({"aten::len", list.name}), Kind::kInt);
          break;
        }
        unpack(list.name, list.elements);
        break;
      }
    }
    return true;
  }

  void unpack(const std::string& list, const std::vector<Variable>& elements) {
    std::string names;
    std::vector<Variable> unpacked;
    for (const Variable& element : elements) {
      Variable copy = element;
      copy.name = new_name();
      names += (names.empty() ? "" : ", ") + copy.name + " : Tensor";
      unpacked.push_back(std::move(copy));
    }
    line(names + " = prim::ListUnpack(" + list + ")");
    for (Variable& variable : unpacked) {
      add(std::move(variable));
    }
  }

  // Autograd forbids writing into such views, or into their base while they are in use. So only memory of this block, for
  // which nobody outside has a name, and from now on nothing writes into it.
  bool emit_several_views() {
    const auto x = any_where([&](const Variable& v) {
      return v.kind == Kind::kFloats && !v.sizes.empty() && v.sizes[0] <= 4 && !v.roots.empty() &&
             *v.roots.begin() >= block_roots_;
    });
    if (!x) {
      return false;
    }
    frozen_.insert(x->roots.begin(), x->roots.end());
    Variable element = *x;
    element.sizes.erase(element.sizes.begin());
    const std::string list = define("Tensor[]", call({"aten::unbind", x->name, constant(int64_t{0})}));
    unpack(list, std::vector<Variable>(static_cast<size_t>(x->sizes[0]), element));
    return true;
  }

  bool emit_tuple() {
    const Variable a = any_of(variables_);
    const Variable b = any_of(variables_);
    const std::string type = std::string("(") + type_of(a.kind) + ", " + type_of(b.kind) + ")";
    const std::string tuple = define(type, call({"prim::TupleConstruct", a.name, b.name}));
    if (chance(50)) {
      Variable first = a;
      Variable second = b;
      first.name = new_name();
      second.name = new_name();
      line(first.name + " : " + type_of(a.kind) + ", " + second.name + " : " + type_of(b.kind) + " = prim::TupleUnpack(" +
           tuple + ")");
      add(std::move(first));
      add(std::move(second));
    } else {
      Variable second = b;
      second.name = define(type_of(b.kind), call({"prim::TupleIndex", tuple, constant(int64_t{1})}));
      add(std::move(second));
    }
    return true;
  }

  bool emit_int() {
    switch (pick(5)) {
      case 0: add_scalar(call({"aten::add", small_int(), small_int()}), Kind::kInt); break;
      case 1: add_scalar(call({"aten::mul", small_int(), small_int()}), Kind::kInt); break;
      case 2:
        add_scalar(call({"aten::floordiv", any_int(), constant(static_cast<int64_t>(1 + pick(3)))}), Kind::kInt);
        break;
      case 3: {
        const auto x = floats_of_rank(1);
        if (!x) {
          return false;
        }
        add_scalar(call({"aten::size", x->name, dim_constant(any_dim(*x), x->sizes.size())}), Kind::kInt);
        break;
      }
      default: add_scalar(call({"aten::Int", any_bool()}), Kind::kInt); break;
    }
    return true;
  }

  bool emit_bool() {
    static const std::vector<std::string> comparisons = {"aten::lt", "aten::ge", "aten::eq", "aten::ne"};
    switch (pick(4)) {
      case 0: add_scalar(call({any_of(comparisons), any_int(), any_int()}), Kind::kBool); break;
      case 1: add_scalar(call({"aten::__not__", any_bool()}), Kind::kBool); break;
      case 2: add_scalar(call({"aten::__and__", any_bool(), any_bool()}), Kind::kBool); break;
      default: {  // decided by data
        const Variable x = any_floats();
        const std::string total = define("Tensor", call({"aten::sum", x.name, none()}));
        const std::string positive = define("Tensor", call({"aten::gt", total, constant(0.125)}));
        add_scalar(call({"aten::Bool", positive}), Kind::kBool);
        break;
      }
    }
    return true;
  }

  // What symbolic gradients are made of.
  bool emit_undefined() {
    const Variable x = any_floats();
    const std::string zero = define("Tensor", "prim::AutogradZero()");
    if (chance(30)) {
      add_scalar("prim::AutogradAnyNonZero(" + zero + (chance(50) ? ", " + x.name : "") + ")", Kind::kBool);
    } else {
      add_view(call({"prim::AutogradAdd", x.name, zero}), x, x.sizes);
    }
    return true;
  }

  bool emit_implicit_expand() {
    const Variable a = any_floats();
    const auto b = any_where([&](const Variable& v) {
      return v.kind == Kind::kFloats && broadcast(v.sizes, a.sizes) == std::optional<Sizes>(a.sizes);
    });
    const std::string expanded = define("Tensor", call({"aten::expand", b->name, constant(a.sizes), constant(true)}));
    add_new(call({"aten::mul", a.name, expanded}), a.sizes);
    return true;
  }

  //   %missing = aten::__is__(%maybe, %none)
  //   %r = prim::If(%missing)  -> (%x), else -> (%x * the optional)
  bool emit_optional() {
    if (!optional_) {
      return false;
    }
    const auto x = any_where([&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes == optional_->sizes; });
    if (!x) {
      return false;
    }
    const std::string missing = define("bool", call({"aten::__is__", "%" + optional_->name, none()}));
    const std::string result = new_name();
    line(result + " : Tensor = prim::If(" + missing + ")");
    ++indent_;
    line("block0():");
    line("  -> (" + x->name + ")");
    line("block1():");
    ++indent_;
    const std::string present = define("Tensor", call({"prim::unchecked_unwrap_optional", "%" + optional_->name}));
    const bool views = chance(50);
    const std::string value = views ? present : define("Tensor", call({"aten::mul", present, x->name}));
    line("-> (" + value + ")");
    indent_ -= 2;
    Variable variable{result, Kind::kFloats, x->sizes, x->roots, x->overlapping};
    variable.roots.insert(views ? optional_root_ : new_root());
    add(std::move(variable));
    return true;
  }

  // ---- control flow -----------------------------------------------------------------------------------------------------
  // Emits `body` one block deeper; what it defines is forgotten behind it.
  void in_block(const std::string& head, const std::function<void()>& body) {
    const size_t variables = variables_.size();
    const size_t lists = lists_.size();
    const int outer_roots = block_roots_;
    block_roots_ = next_root_;
    ++indent_;
    line(head);
    ++indent_;
    ++depth_;
    body();
    --depth_;
    indent_ -= 2;
    block_roots_ = outer_roots;
    variables_.resize(variables);
    lists_.resize(lists);
  }

  bool emit_if() {
    if (depth_ >= settings_.max_depth) {
      return false;
    }
    const std::string condition = any_bool();
    std::vector<Variable> outputs;
    std::string head;
    for (int i = pick(3); i >= 0; --i) {
      Variable output = any_of(variables_);
      const std::string name = new_name();
      head += (head.empty() ? "" : ", ") + name + " : " + type_of(output.kind);
      // Its alternatives are found in the branches, by what it was like.
      outputs.push_back({name, output.kind, output.sizes});
    }
    line(head + " = prim::If(" + condition + ")");
    for (int branch = 0; branch < 2; ++branch) {
      in_block("block" + std::to_string(branch) + "():", [&] {
        emit_operators(1 + pick(5));
        std::string returned;
        for (Variable& output : outputs) {
          const Variable chosen =
              *any_where([&](const Variable& v) { return v.kind == output.kind && v.sizes == output.sizes; });
          output.roots.insert(chosen.roots.begin(), chosen.roots.end());
          output.overlapping = output.overlapping || chosen.overlapping;
          returned += (returned.empty() ? "" : ", ") + chosen.name;
        }
        line("-> (" + returned + ")");
      });
    }
    for (Variable& output : outputs) {
      add(std::move(output));
    }
    return true;
  }

  // All carried values may come to share memory, with each other and with what an iteration before made (`earlier`).
  bool emit_loop() {
    if (depth_ >= settings_.max_depth) {
      return false;
    }
    const std::string count = chance(50) ? constant(static_cast<int64_t>(pick(4)))
                                         : define("int", call({"aten::remainder", any_int(), constant(int64_t{4})}));
    const std::string condition = chance(75) ? constant(true) : any_bool();
    std::vector<Variable> carried;
    std::string operands;
    const int earlier = new_root();
    std::set<int> shared = {earlier};
    for (int i = pick(3); i >= 0; --i) {
      // A second one like the first, so that they can change places.
      const Variable initial = carried.empty() || chance(30) ? any_of(variables_) : *any_where([&](const Variable& v) {
        return v.kind == carried[0].kind && v.sizes == carried[0].sizes && v.overlapping == carried[0].overlapping;
      });
      operands += ", " + initial.name;
      shared.insert(initial.roots.begin(), initial.roots.end());
      carried.push_back(initial);
    }
    std::string head;
    std::string params;
    const std::string iteration = new_name();
    std::vector<Variable> inside = carried;
    for (size_t i = 0; i < carried.size(); ++i) {
      carried[i].name = new_name();
      inside[i].name = new_name();
      head += (head.empty() ? "" : ", ") + carried[i].name + " : " + type_of(carried[i].kind);
      params += ", " + inside[i].name + " : " + type_of(inside[i].kind);
      if (carried[i].is_tensor()) {
        carried[i].roots = inside[i].roots = shared;
      }
    }
    line(head + " = prim::Loop(" + count + ", " + condition + operands + ")");
    const int body_roots = next_root_;
    in_block("block0(" + iteration + " : int" + params + "):", [&] {
      add({iteration, Kind::kInt});
      for (const Variable& param : inside) {
        add(param);
      }
      emit_operators(1 + pick(6));
      const std::string goes_on = chance(70) ? constant(true) : any_bool();
      std::string returned;
      for (const Variable& param : inside) {
        const Variable chosen = *any_where([&](const Variable& v) {
          const bool stays = std::all_of(v.roots.begin(), v.roots.end(), [&](int root) {
            return shared.contains(root) || (root >= body_roots && !frozen_.contains(root));
          });
          return v.kind == param.kind && v.sizes == param.sizes && stays && (param.overlapping || !v.overlapping);
        });
        returned += ", " + chosen.name;
      }
      line("-> (" + goes_on + returned + ")");
    });
    for (Variable& output : carried) {
      add(std::move(output));
    }
    return true;
  }

  const GeneratorSettings settings_;
  std::mt19937_64 random_;
  GeneratedGraph result_;
  std::string lines_;
  int indent_ = 1;
  int depth_ = 0;
  int next_name_ = 0;
  int next_root_ = 0;
  int block_roots_ = 0;   // memory from this root on was made in the block that is being written
  std::set<int> leaves_;  // memory of inputs that may require a gradient
  std::set<int> frozen_;  // memory under results of operators with several views
  std::optional<GeneratedInput> optional_;
  int optional_root_ = -1;
  std::vector<Variable> variables_;
  std::vector<ListVariable> lists_;
};

}  // namespace

GeneratedGraph generate_graph(uint64_t seed, const GeneratorSettings& settings) { return Generator(seed, settings).run(); }

namespace {

at::Tensor reversed_dims(const at::Tensor& tensor) {
  std::vector<int64_t> order(static_cast<size_t>(tensor.dim()));
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = tensor.dim() - 1 - static_cast<int64_t>(i);
  }
  return tensor.permute(order);
}

at::Tensor make_floats(const GeneratedInput& input, bool strided) {
  return strided ? reversed_dims(at::randn(Sizes(input.sizes.rbegin(), input.sizes.rend()))).detach()
                 : at::randn(input.sizes);
}

}  // namespace

std::vector<c10::IValue> make_arguments(const GeneratedGraph& graph, int call, bool requires_grad) {
  at::manual_seed(graph.seed * 8 + static_cast<uint64_t>(call));
  std::vector<c10::IValue> arguments;
  for (const GeneratedInput& input : graph.inputs) {
    switch (input.kind) {
      case GeneratedInput::Kind::kTensor: {
        at::Tensor tensor;
        if (input.alias_of >= 0) {
          tensor = arguments[static_cast<size_t>(input.alias_of)].toTensor();
          tensor = input.alias_is_transposed ? reversed_dims(tensor) : tensor;
        } else {
          tensor = make_floats(input, /*strided=*/call == 3);
        }
        arguments.emplace_back(tensor.set_requires_grad(requires_grad && input.differentiable));
        break;
      }
      case GeneratedInput::Kind::kIndices: arguments.emplace_back(at::randint(0, 2, input.sizes, at::kLong)); break;
      case GeneratedInput::Kind::kInt: arguments.emplace_back(static_cast<int64_t>(graph.seed % 7) + call); break;
      case GeneratedInput::Kind::kBool: arguments.emplace_back((graph.seed + static_cast<uint64_t>(call)) % 2 == 0); break;
      case GeneratedInput::Kind::kOptional:
        arguments.push_back(call == 2 ? c10::IValue() : c10::IValue(at::randn(input.sizes)));
        break;
    }
  }
  return arguments;
}

}  // namespace sconce::testing
