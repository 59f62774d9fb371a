// Numbers, tuples, optionals, branches and loops.
#include "tests/support/generator/generator.h"

namespace sconce::testing::generator {

bool Generator::emit_tuple() {
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

bool Generator::emit_int() {
  switch (pick(5)) {
    case 0: add_scalar(call({"aten::add", small_int(), small_int()}), Kind::kInt); break;
    case 1: add_scalar(call({"aten::mul", small_int(), small_int()}), Kind::kInt); break;
    case 2: add_scalar(call({"aten::floordiv", any_int(), constant(static_cast<int64_t>(1 + pick(3)))}), Kind::kInt); break;
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

bool Generator::emit_bool() {
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

bool Generator::emit_optional() {
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

void Generator::in_block(const std::string& head, const std::function<void()>& body) {
  const size_t variables = variables_.size();
  const size_t lists = lists_.size();
  const int outer_roots = block_roots_;
  const int outer_block = block_;
  block_roots_ = next_root_;
  block_ = ++last_block_;
  ++indent_;
  line(head);
  ++indent_;
  ++depth_;
  body();
  --depth_;
  indent_ -= 2;
  block_roots_ = outer_roots;
  block_ = outer_block;
  variables_.resize(variables);
  lists_.resize(lists);
}

bool Generator::emit_if() {
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

bool Generator::emit_loop() {
  if (depth_ >= settings_.max_depth) {
    return false;
  }
  // Outer loops now and then run more often than a pass unrolls them.
  const int64_t most = depth_ == 0 && chance(30) ? 20 : 4;
  const std::string count =
      chance(50)
          ? constant(static_cast<int64_t>(pick(static_cast<size_t>(most))))
          : define("int", call({"aten::remainder", define("int", call({"aten::mul", any_int(), constant(int64_t{7})})),
                                constant(most)}));
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

}  // namespace sconce::testing::generator
