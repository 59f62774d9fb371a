// Operators that give new tensors.
#include "tests/support/generator/generator.h"

namespace sconce::testing::generator {

void Generator::emit_operators(int count) {
  struct Choice {
    int weight;
    Emitter emit;
  };
  std::vector<Choice> choices = {
      {12, &Generator::emit_unary},        {14, &Generator::emit_binary},
      {6, &Generator::emit_with_scalar},   {16, &Generator::emit_view},
      {6, &Generator::emit_maybe_view},    {6, &Generator::emit_product},
      {8, &Generator::emit_reduction},     {5, &Generator::emit_comparison},
      {18, &Generator::emit_in_place},     {5, &Generator::emit_random},
      {4, &Generator::emit_new},           {5, &Generator::emit_gather},
      {6, &Generator::emit_new_in_place},  {6, &Generator::emit_list_write},
      {6, &Generator::emit_list},          {5, &Generator::emit_from_list},
      {3, &Generator::emit_several_views}, {3, &Generator::emit_tuple},
      {8, &Generator::emit_int},           {6, &Generator::emit_bool},
      {3, &Generator::emit_undefined},     {3, &Generator::emit_implicit_expand},
      {4, &Generator::emit_optional},      {7, &Generator::emit_if},
      {7, &Generator::emit_loop},          {5, &Generator::emit_layout_chain},
  };
  if (settings_.mostly_products) {
    choices.push_back({60, &Generator::emit_products});
    choices.push_back({40, &Generator::emit_affine});
  }
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

bool Generator::emit_unary() {
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

std::optional<Variable> Generator::broadcastable_with(const Variable& x) {
  return any_where([&](const Variable& v) { return v.kind == Kind::kFloats && broadcast(v.sizes, x.sizes).has_value(); });
}

bool Generator::emit_binary() {
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

std::string Generator::any_scalar() { return chance(50) ? constant(0.25 * (pick(9) - 4)) : small_int(); }

std::string Generator::small_int() { return define("int", call({"aten::remainder", any_int(), constant(int64_t{5})})); }

bool Generator::emit_with_scalar() {
  const Variable x = any_floats();
  switch (pick(4)) {
    case 0: add_new(call({"aten::mul", x.name, any_scalar()}), x.sizes); break;
    case 1: add_new(call({"aten::add", x.name, any_scalar(), constant(int64_t{1})}), x.sizes); break;
    case 2: add_new(call({chance(50) ? "aten::clamp" : "aten::clip", x.name, constant(-1.5), none()}), x.sizes); break;
    default: add_new(call({"aten::rsub", x.name, any_scalar(), constant(int64_t{1})}), x.sizes); break;
  }
  return true;
}

bool Generator::emit_product() {
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

// Of a matrix product; its number of columns with it.
std::string Generator::another_right_side(const Variable& left, int64_t& columns) {
  const auto found = any_where(
      [&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes.size() == 2 && v.sizes[0] == left.sizes[1]; });
  columns = found ? found->sizes[1] : left.sizes[0];
  return found ? found->name : define("Tensor", call({"aten::t", left.name}));
}

// Products that share an operand, or that are added up. Mostly only one operator uses them.
bool Generator::emit_products() {
  const auto a = any_where([](const Variable& v) { return v.kind == Kind::kFloats && v.sizes.size() == 2; });
  if (!a) {
    return false;
  }
  const Sizes left = a->sizes;
  int64_t columns = 0;
  const std::string b = another_right_side(*a, columns);
  const Sizes sizes = {left[0], columns};
  const auto multiply = [&](const std::string& x, const std::string& y) {
    return define("Tensor", call({chance(80) ? "aten::mm" : "aten::matmul", x, y}));
  };
  const auto use = [&](const std::string& product, const Sizes& of) {
    if (chance(10)) {
      add({product, Kind::kFloats, of, {new_root()}});
    }
    add_new(call({chance(50) ? "aten::tanh" : "aten::sigmoid", product}), of);
  };
  const std::string first = multiply(a->name, b);
  switch (pick(3)) {
    case 0: {  // the left side, whatever is on the right
      int64_t others = 0;
      const std::string c = another_right_side(*a, others);
      const std::string second = multiply(a->name, c);
      use(first, sizes);
      use(second, {left[0], others});
      break;
    }
    case 1: {  // the right side
      const auto other = any_where(
          [&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes.size() == 2 && v.sizes[1] == left[1]; });
      use(first, sizes);
      use(multiply(other->name, b), {other->sizes[0], columns});
      break;
    }
    default: {
      const auto other = any_where([&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes == left; });
      const std::string second = multiply(other->name, b);
      const std::string sum = define("Tensor", call({"aten::add", first, second, constant(int64_t{1})}));
      const auto more = any_where(
          [&](const Variable& v) { return v.kind == Kind::kFloats && broadcast(v.sizes, sizes) == std::optional(sizes); });
      if (more && chance(50)) {
        add_new(call({"aten::add", more->name, sum, constant(int64_t{1})}), sizes);
      } else {
        add({sum, Kind::kFloats, sizes, {new_root()}});
      }
      break;
    }
  }
  return true;
}

bool Generator::emit_affine() {
  const auto x =
      any_where([](const Variable& v) { return v.kind == Kind::kFloats && (v.sizes.size() == 2 || v.sizes.size() == 3); });
  if (!x) {
    return false;
  }
  Sizes sizes = x->sizes;
  const auto weight = any_where(
      [&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes.size() == 2 && v.sizes[1] == sizes.back(); });
  if (weight && chance(60)) {
    sizes.back() = weight->sizes[0];
    const std::string bias =
        define("Tensor", call({"aten::select", weight->name, constant(int64_t{1}), constant(int64_t{0})}));
    add_new(call({"aten::linear", x->name, weight->name, chance(70) ? bias : none()}), sizes);
  } else if (sizes.size() == 2) {
    int64_t columns = 0;
    const std::string right = another_right_side(*x, columns);
    sizes.back() = columns;
    const std::string bias = define("Tensor", call({"aten::select", right, constant(int64_t{0}), constant(int64_t{0})}));
    const std::string beta = chance(60) ? constant(int64_t{1}) : constant(0.5);
    add_new(call({"aten::addmm", bias, x->name, right, beta, constant(static_cast<int64_t>(1 + pick(2)))}), sizes);
  } else {
    const std::string last = constant(static_cast<int64_t>(0));
    const std::string row = define("Tensor", call({"aten::select", x->name, last, last}));
    const std::string scale = define("Tensor", call({"aten::select", row, last, last}));
    const std::string shape = constant(Sizes{sizes.back()});
    add_new(call({"aten::layer_norm", x->name, shape, scale, chance(50) ? scale : none(), constant(1e-3), constant(true)}),
            sizes);
  }
  return true;
}

bool Generator::emit_reduction() {
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

bool Generator::emit_comparison() {
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

std::string Generator::call_with_nones(const std::string& kind, const std::string& operand, size_t nones) {
  std::vector<std::string> parts = {kind, operand};
  parts.insert(parts.end(), nones, none());
  return call(parts);
}

bool Generator::emit_random() {
  const Variable x = any_floats();
  switch (pick(3)) {
    case 0: add_new(call_with_nones("aten::rand_like", x.name, 5), x.sizes); break;
    case 1: add_new(call({"aten::dropout", x.name, constant(0.5), constant(true)}), x.sizes); break;
    default: {
      const std::string probabilities = define("Tensor", call({"aten::sigmoid", x.name}));
      // Not of NaN, which bernoulli refuses.
      const std::string finite = define("Tensor", call({"aten::nan_to_num", probabilities, constant(0.5), none(), none()}));
      add_new(call({"aten::bernoulli", finite, none()}), x.sizes);
      break;
    }
  }
  return true;
}

bool Generator::emit_new() {
  const Variable x = any_floats();
  switch (pick(3)) {
    case 0: add_new(call_with_nones("aten::zeros_like", x.name, 5), x.sizes); break;
    case 1: add_new(call_with_nones("aten::ones_like", x.name, 5), x.sizes); break;
    default: add_new(call_with_nones("aten::clone", x.name, 1), x.sizes); break;
  }
  return true;
}

bool Generator::emit_gather() {
  const auto x = any_where([](const Variable& v) { return v.kind == Kind::kFloats && !v.sizes.empty() && v.sizes[0] >= 2; });
  if (!x) {
    return false;
  }
  Sizes sizes = x->sizes;
  sizes[0] = 3;
  // The input %indices holds zeros and ones.
  if (x->sizes.size() == 2 && chance(50)) {
    add_new(call({"aten::embedding", x->name, "%indices", constant(int64_t{-1}), constant(false), constant(false)}), sizes);
  } else {
    add_new(call({"aten::index_select", x->name, constant(int64_t{0}), "%indices"}), sizes);
  }
  return true;
}

}  // namespace sconce::testing::generator
