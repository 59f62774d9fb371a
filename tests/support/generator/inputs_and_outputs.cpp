// What goes in and what comes out.
#include "tests/support/generator/generator.h"

namespace sconce::testing::generator {

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

GeneratedGraph Generator::run() {
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

Sizes Generator::any_sizes() {
  if (settings_.mostly_products) {
    const auto any_size = [&] { return static_cast<int64_t>(2 + pick(2)); };
    return {any_size(), any_size()};
  }
  Sizes sizes(static_cast<size_t>(1 + pick(3)));
  for (int64_t& size : sizes) {
    size = 1 + pick(4);
  }
  return sizes;
}

void Generator::add_input(GeneratedInput input, Kind kind, std::set<int> roots) {
  if (input.kind != InputKind::kOptional) {
    add({"%" + input.name, kind, input.sizes, std::move(roots)});
  }
  result_.inputs.push_back(std::move(input));
}

void Generator::make_inputs() {
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

std::string Generator::choose_outputs() {
  std::string text;
  for (int i = 0, count = 1 + pick(4); i < count; ++i) {
    std::string name;
    if (!lists_.empty() && chance(15)) {
      name = any_of(any_of(lists_).names);
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

}  // namespace sconce::testing::generator
