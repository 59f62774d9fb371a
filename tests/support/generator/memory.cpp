// Views, operators in place, lists: who shares memory with whom.
#include "tests/support/generator/generator.h"

namespace sconce::testing::generator {

bool Generator::emit_view() {
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

bool Generator::emit_maybe_view() {
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

bool Generator::emit_layout_chain() {
  Variable at = any_floats();
  for (size_t rank = static_cast<size_t>(2 + pick(4)); at.sizes.size() < rank;) {
    const size_t dim = static_cast<size_t>(pick(at.sizes.size() + 1));
    at.sizes.insert(at.sizes.begin() + static_cast<std::ptrdiff_t>(dim), 1);
    const Variable base = at;
    at = add_view(call({"aten::unsqueeze", base.name, constant(static_cast<int64_t>(dim))}), base, at.sizes);
  }
  const size_t rank = at.sizes.size();
  std::vector<int64_t> back;  // the order that takes back the last one
  for (int steps = 2 + pick(3); steps > 0; --steps) {
    const Variable base = at;
    std::vector<int64_t> order(rank);
    for (size_t i = 0; i < rank; ++i) {
      order[i] = static_cast<int64_t>(i);
    }
    switch (pick(5)) {
      case 0: {  // of the elements: another format, or none
        const int64_t format = chance(50) ? 0 : rank == 4 ? 2 : rank == 5 ? 3 : 0;
        at = chance(70) ? add_view(call({"aten::contiguous", base.name, constant(format)}), base, base.sizes)
                        : add_new(call({"aten::clone", base.name, constant(format)}), base.sizes);
        continue;
      }
      case 1:
        if (rank == 2 && chance(60)) {
          at = add_view(call({"aten::t", base.name}), base, {base.sizes[1], base.sizes[0]});
          back = {1, 0};
          continue;
        }
        [[fallthrough]];
      case 2: {
        const size_t one = any_dim(base);
        const size_t other = any_dim(base);
        std::swap(order[one], order[other]);
        Sizes sizes = base.sizes;
        std::swap(sizes[one], sizes[other]);
        at = add_view(call({"aten::transpose", base.name, dim_constant(one, rank), dim_constant(other, rank)}), base, sizes);
        back = order;
        continue;
      }
      case 3: at = add_new(call({chance(50) ? "aten::relu" : "aten::neg", base.name}), base.sizes); continue;
      default: break;
    }
    if (!back.empty() && chance(60)) {
      order = back;
    } else {
      for (size_t i = rank; i-- > 1;) {
        std::swap(order[i], order[static_cast<size_t>(pick(i + 1))]);
      }
    }
    Sizes sizes(rank);
    back.assign(rank, 0);
    for (size_t i = 0; i < rank; ++i) {
      sizes[i] = base.sizes[static_cast<size_t>(order[i])];
      back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    }
    at = add_view(call({"aten::permute", base.name, constant(order)}), base, sizes);
  }
  return true;
}

bool Generator::is_writable(const Variable& v) const {
  return v.kind == Kind::kFloats && !v.overlapping && !intersect(v.roots, leaves_) && !intersect(v.roots, frozen_);
}

bool Generator::emit_in_place() {
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
  // The result is the target: sometimes it is unused.
  add_view(expression, *target, target->sizes);
  return true;
}

bool Generator::emit_new_in_place() {
  const Variable x = any_floats();
  const std::string made = add_new(call({chance(60) ? "aten::neg" : "aten::sigmoid", x.name}), x.sizes).name;
  const Variable target = variables_.back();
  std::string expression;
  switch (pick(5)) {
    case 0: expression = call({"aten::relu_", made}); break;
    case 1: expression = call({"aten::leaky_relu_", made, constant(0.125)}); break;
    case 2: expression = call({"aten::hardtanh_", made, constant(-0.5), constant(0.75)}); break;
    case 3: expression = call({"aten::mul_", made, any_scalar()}); break;
    default: {
      const auto operand = any_where([&](const Variable& v) {
        return v.kind == Kind::kFloats && broadcast(v.sizes, x.sizes) == std::optional<Sizes>(x.sizes);
      });
      expression = call({"aten::add_", made, operand->name, constant(int64_t{1})});
      break;
    }
  }
  if (chance(70)) {
    variables_.pop_back();  // no later operator uses it by its old name
  }
  add_view(expression, target, target.sizes);
  return true;
}

bool Generator::emit_list() {
  const Variable first = any_floats();
  ListVariable list;
  list.elements.push_back(first);
  for (int i = pick(3); i > 0; --i) {
    list.elements.push_back(
        *any_where([&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes == first.sizes; }));
  }
  list.grows = chance(60);
  list.block = block_;
  std::vector<std::string> parts = {"prim::ListConstruct"};
  for (const Variable& element : list.elements) {
    parts.push_back(element.name);
  }
  list.names = {define("Tensor[]", call(parts))};
  const bool is_busy = list.grows && chance(40);
  lists_.push_back(std::move(list));
  for (int i = is_busy ? 3 + pick(4) : 0; i > 0; --i) {
    chance(60) ? emit_list_write() : emit_from_list();
  }
  return true;
}

bool Generator::emit_from_list() {
  if (lists_.empty()) {
    return false;
  }
  const ListVariable list = any_of(lists_);
  const std::string name = any_of(list.names);
  const Variable& first = list.elements.front();
  switch (pick(4)) {
    case 0: {  // elements that were there from the start: others are pushed after them
      const size_t index = static_cast<size_t>(pick(list.elements.size()));
      const Variable& element = list.elements[index];
      add_view(call({"aten::__getitem__", name, constant(static_cast<int64_t>(index))}), element, element.sizes);
      break;
    }
    case 1: {
      if (!list.grows) {
        Sizes sizes = first.sizes;
        if (sizes.empty() || elements_in(sizes) > 128) {
          return false;
        }
        sizes[0] *= static_cast<int64_t>(list.elements.size());
        add_new(call({chance(50) ? "aten::cat" : "aten::concat", name, constant(int64_t{0})}), sizes);
        break;
      }
      const Variable element =
          *any_where([&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes == first.sizes; });
      define("Tensor[]", call({"aten::append", name, element.name}));
      break;
    }
    case 2: {  // however long it is now
      const std::string stacked = define("Tensor", call({"aten::stack", name, constant(int64_t{0})}));
      add_new(call({"aten::sum", stacked, constant(Sizes{0}), constant(false), none()}), first.sizes);
      break;
    }
    default: {
      if (list.grows) {
        add_scalar(call({"aten::len", name}), Kind::kInt);
        break;
      }
      unpack(name, list.elements);
      break;
    }
  }
  return true;
}

bool Generator::emit_list_write() {
  std::vector<ListVariable*> lists;
  for (ListVariable& list : lists_) {
    if (list.grows && list.block == block_) {
      lists.push_back(&list);
    }
  }
  if (lists.empty()) {
    return false;
  }
  ListVariable& list = *any_of(lists);
  const std::string name = any_of(list.names);
  std::vector<Variable>& known = list.elements;
  const Sizes sizes = known.front().sizes;
  const Variable element = *any_where([&](const Variable& v) { return v.kind == Kind::kFloats && v.sizes == sizes; });
  const size_t index = static_cast<size_t>(pick(known.size()));
  const auto at = [&] { return constant(static_cast<int64_t>(index)); };
  switch (pick(6)) {
    case 0:
      define("Tensor[]", call({"aten::_set_item", name, at(), element.name}));
      known[index] = element;
      break;
    case 1:
      line(" = " + call({"aten::insert", name, at(), element.name}));
      known.insert(known.begin() + static_cast<std::ptrdiff_t>(index), element);
      break;
    case 2: {
      const std::string others = define("Tensor[]", call({"prim::ListConstruct", element.name, known[index].name}));
      if (chance(50)) {
        line(" = " + call({"aten::extend", name, others}));
      } else {
        list.names.push_back(define("Tensor[]", call({"aten::add_", name, others})));
      }
      break;
    }
    case 3: {
      if (known.size() < 2) {
        return false;
      }
      const Variable popped = known[index];
      known.erase(known.begin() + static_cast<std::ptrdiff_t>(index));
      add_view(call({"aten::pop", name, at()}), popped, popped.sizes);
      break;
    }
    default: {
      const std::string result = define("Tensor[]", call({"aten::append", name, element.name}));
      if (chance(30)) {
        list.names.push_back(result);
      }
      break;
    }
  }
  return true;
}

void Generator::unpack(const std::string& list, const std::vector<Variable>& elements) {
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

bool Generator::emit_several_views() {
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

bool Generator::emit_undefined() {
  const Variable x = any_floats();
  const std::string zero = define("Tensor", "prim::AutogradZero()");
  if (chance(30)) {
    add_scalar("prim::AutogradAnyNonZero(" + zero + (chance(50) ? ", " + x.name : "") + ")", Kind::kBool);
  } else {
    add_view(call({"prim::AutogradAdd", x.name, zero}), x, x.sizes);
  }
  return true;
}

bool Generator::emit_implicit_expand() {
  const Variable a = any_floats();
  // Without dimensions of one element in front: an operator that broadcasts by itself may give these other strides.
  const auto adds_single = [&](const Sizes& sizes) {
    return std::find(a.sizes.begin(), a.sizes.end() - static_cast<std::ptrdiff_t>(sizes.size()), 1) !=
           a.sizes.end() - static_cast<std::ptrdiff_t>(sizes.size());
  };
  const auto b = any_where([&](const Variable& v) {
    return v.kind == Kind::kFloats && broadcast(v.sizes, a.sizes) == std::optional<Sizes>(a.sizes) && !adds_single(v.sizes);
  });
  const std::string expanded = define("Tensor", call({"aten::expand", b->name, constant(a.sizes), constant(true)}));
  add_new(call({"aten::mul", a.name, expanded}), a.sizes);
  return true;
}

}  // namespace sconce::testing::generator
