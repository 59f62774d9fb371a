#include "tests/fusion/group_generator.h"

#include <ATen/ATen.h>

#include <array>
#include <span>

namespace sconce::testing {

struct GroupOp {
  const char* text;  // A, B, C are operands
  int operands;
  // 'f': floating operands, 'a': floating ones or integers, 'l': floating ones of one dtype, 'c': compares, 'w': a condition
  // and two operands, 'm': a mask and an operand, 'r': a floating operand of all dimensions
  char kinds;
  bool drops_row = false;  // the result has one element for each row, along whichever dimension
  // Rounding of an operand decides the result: operands are exact.
  bool jumps = kinds == 'c';
};

namespace {

constexpr GroupOp kExactOps[] = {
    {"aten::add(A, B, %one)", 2, 'a'},
    {"aten::sub(A, B, %one)", 2, 'a'},
    {"aten::mul(A, B)", 2, 'a'},
    {"aten::add(A, %three, %one)", 1, 'a'},
    {"aten::mul(A, %half)", 1, 'f'},
    {"aten::rsub(A, B, %one)", 2, 'a'},
    {"aten::neg(A)", 1, 'a'},
    {"aten::relu(A)", 1, 'a'},
    {"aten::abs(A)", 1, 'a'},
    {"aten::clamp(A, %minus, %three)", 1, 'a'},
    {"aten::div(A, %three)", 1, 'f'},
    {"aten::leaky_relu(A, %half)", 1, 'f'},
    {"aten::hardswish(A)", 1, 'f'},
    {"aten::floor(A)", 1, 'f', false, true},
    {"aten::square(A)", 1, 'f'},
    {"aten::addcmul(A, B, C, %half)", 3, 'f'},
    {"aten::lerp(A, B, %half)", 2, 'l'},
    {"aten::sign(A)", 1, 'a', false, true},
    {"aten::lt(A, B)", 2, 'c'},
    {"aten::ge(A, %three)", 1, 'c'},
    {"aten::eq(A, B)", 2, 'c'},
    {"aten::where(A, B, C)", 3, 'w'},
    {"aten::masked_fill(B, A, %three)", 2, 'm'},
};

constexpr GroupOp kOtherOps[] = {
    {"aten::sigmoid(A)", 1, 'f'},
    {"aten::tanh(A)", 1, 'f'},
    {"aten::erf(A)", 1, 'f'},
    {"aten::gelu(A, %none_text)", 1, 'f'},
    {"aten::softplus(A, %one, %three)", 1, 'f'},
    {"aten::sin(A)", 1, 'f'},
    {"aten::sqrt(A)", 1, 'f'},
    {"aten::softmax(A, %last, %none)", 1, 'r'},
    {"aten::log_softmax(A, %last, %none)", 1, 'r'},
    {"aten::sum(A, %lasts, %yes, %none)", 1, 'r', true},
    {"aten::mean(A, %lasts, %yes, %none)", 1, 'r', true},
    {"aten::amax(A, %lasts, %yes)", 1, 'r', true},
    {"aten::amin(A, %lasts, %yes)", 1, 'r', true},
    {"aten::sum(A, %firsts, %yes, %none)", 1, 'r', true},
    {"aten::mean(A, %ones, %yes, %none)", 1, 'r', true},
    {"aten::amax(A, %firsts, %yes)", 1, 'r', true},
    {"aten::sum(A, %first_and_last, %yes, %none)", 1, 'r', true},
    {"aten::sum(A, %firsts, %no, %none)", 1, 'r', true},
};

// They write A.
constexpr GroupOp kWritingOps[] = {
    {"aten::add_(A, B, %one)", 2, 'a'},
    {"aten::sub_(A, B, %one)", 2, 'a'},
    {"aten::mul_(A, B)", 2, 'a'},
    {"aten::add_(A, %three, %one)", 1, 'a'},
    {"aten::mul_(A, %half)", 1, 'f'},
    {"aten::div_(A, %three)", 1, 'f'},
    {"aten::neg_(A)", 1, 'a'},
    {"aten::relu_(A)", 1, 'a'},
    {"aten::clamp_(A, %minus, %three)", 1, 'a'},
    {"aten::addcmul_(A, B, C, %half)", 3, 'f'},
    {"aten::addcdiv_(A, B, C, %half)", 3, 'f'},
    {"aten::lerp_(A, B, %half)", 2, 'l'},
    {"aten::copy_(A, B, %no)", 2, 'a'},
    {"aten::fill_(A, %three)", 1, 'a'},
    {"aten::zero_(A)", 1, 'a'},
};

// A view and one that brings the sizes back, of a tensor of all dimensions.
constexpr std::pair<const char*, const char*> kViews[] = {
    {"aten::transpose(A, %last, %minus)", "aten::transpose(A, %last, %minus)"},
    {"aten::permute(A, %order)", "aten::permute(A, %order_back)"},
    {"aten::unsqueeze(A, %one)", "aten::select(A, %one, %zero)"},
    {"aten::select(A, %zero, %one)", "aten::expand(A, %same_sizes, %no)"},
    {"aten::slice(A, %zero, %one, %three, %one)", "aten::narrow(A, %zero, %one, %one)"},
};

constexpr const char* kConstants =
    "  %one : int = prim::Constant[value=1]()\n  %three : int = prim::Constant[value=3]()\n"
    "  %minus : int = prim::Constant[value=-2]()\n  %half : float = prim::Constant[value=0.5]()\n"
    "  %last : int = prim::Constant[value=-1]()\n  %lasts : int[] = prim::Constant[value=[-1]]()\n"
    "  %yes : bool = prim::Constant[value=1]()\n  %none : NoneType = prim::Constant()\n"
    "  %zero : int = prim::Constant[value=0]()\n  %no : bool = prim::Constant[value=0]()\n"
    "  %order : int[] = prim::Constant[value=[1, 2, 0]]()\n  %order_back : int[] = prim::Constant[value=[2, 0, 1]]()\n"
    "  %same_sizes : int[] = prim::Constant[value=[3, -1, -1]]()\n"
    "  %firsts : int[] = prim::Constant[value=[0]]()\n  %ones : int[] = prim::Constant[value=[1]]()\n"
    "  %first_and_last : int[] = prim::Constant[value=[0, -1]]()\n"
    "  %none_text : str = prim::Constant[value=\"none\"]()\n";

}  // namespace

std::string GroupGenerator::text() {
  constexpr std::array kDtypes = {at::kFloat,    at::kFloat, at::kFloat, at::kFloat, at::kDouble,
                                  at::kBFloat16, at::kLong,  at::kInt,   at::kBool};
  std::string body;
  const int inputs = 2 + pick(3);
  std::string signature;
  for (int i = 0; i < inputs; ++i) {
    const at::ScalarType dtype = kDtypes[static_cast<size_t>(i == 0 ? 0 : pick(kDtypes.size()))];
    layouts_.push_back(pick(7));
    const bool has_rows = layouts_.back() != 2 && layouts_.back() != 3 && layouts_.back() != 5;
    signature += (i == 0 ? "" : ", ") + add(dtype, has_rows, true, false) + " : Tensor";
  }
  const int nodes = 2 + pick(29);
  while (static_cast<int>(dtypes_.size()) < inputs + nodes) {
    body += node();
  }
  // The values that no node uses, and some of those that nodes of the group use, too.
  std::string results;
  for (size_t i = static_cast<size_t>(inputs); i < dtypes_.size(); ++i) {
    if (!used_.contains(static_cast<int>(i)) || pick(5) == 0) {
      results += (results.empty() ? "%v" : ", %v") + std::to_string(i);
    }
  }
  return "graph(" + signature + "):\n" + kConstants + body + "  return (" + results + ")\n";
}

std::vector<c10::IValue> GroupGenerator::operands(int64_t height, int64_t width) {
  std::vector<c10::IValue> values;
  for (size_t i = 0; i < layouts_.size(); ++i) {
    const auto made = [&](at::IntArrayRef sizes) { return (at::randn(sizes, at::kDouble) * 4).to(dtypes_[i]); };
    switch (layouts_[i]) {
      case 0: values.emplace_back(made({3, height, width})); break;
      case 1: values.emplace_back(made({3, width, height}).transpose(1, 2)); break;
      case 2: values.emplace_back(made({width})); break;
      case 3: values.emplace_back(made({height, 1})); break;
      case 4: values.emplace_back(made({3, height, 2 * width}).slice(2, 0, 2 * width, 2)); break;
      case 5: values.emplace_back(made({})); break;
      default: values.emplace_back(made({height, width, 3}).permute({2, 0, 1})); break;
    }
  }
  return values;
}

// Returns a value for which `fits` holds, mostly a late one; -1 if there is none.
template <typename Fits>
int GroupGenerator::value(const Fits& fits) {
  std::vector<int> fitting;
  for (size_t i = 0; i < dtypes_.size(); ++i) {
    if (!is_aside_[i] && fits(i)) {
      fitting.push_back(static_cast<int>(i));
    }
  }
  const int count = static_cast<int>(fitting.size());
  return count == 0 ? -1 : fitting[static_cast<size_t>(pick(2) == 0 ? count - 1 - pick(std::min(count, 3)) : pick(count))];
}

// Adds a value, and returns its name.
std::string GroupGenerator::add(at::ScalarType dtype, bool has_rows, bool is_exact, bool is_aside) {
  dtypes_.push_back(dtype);
  has_rows_.push_back(has_rows);
  is_exact_.push_back(is_exact);
  is_aside_.push_back(is_aside);
  is_writable_.push_back(has_rows);
  return "%v" + std::to_string(dtypes_.size() - 1);
}

// Appends a view, an operator on it, and a view back; or a tensor in three pieces.
std::string GroupGenerator::views() {
  const int base = value([&](size_t v) { return has_rows_[v] && dtypes_[v] != at::kBool; });
  if (base < 0) {
    return "";
  }
  used_.insert(base);
  const at::ScalarType dtype = dtypes_[static_cast<size_t>(base)];
  const bool is_exact = is_exact_[static_cast<size_t>(base)];
  const std::string name = "%v" + std::to_string(base);
  const auto kind = static_cast<size_t>(pick(std::size(kViews) + 2));
  if (kind >= std::size(kViews)) {
    const bool is_chunk = kind == std::size(kViews);
    const std::string list = "%list" + std::to_string(dtypes_.size());
    const std::string a = add(dtype, false, is_exact, false);
    const std::string b = add(dtype, false, is_exact, false);
    const std::string c = add(dtype, false, is_exact, false);
    return "  " + list + " : Tensor[] = " +
           (is_chunk ? "aten::chunk(" + name + ", %three, %zero)\n" : "aten::unbind(" + name + ", %zero)\n") + "  " + a +
           " : Tensor, " + b + " : Tensor, " + c + " : Tensor = prim::ListUnpack(" + list + ")\n";
  }
  const auto applied = [](const char* text, const std::string& operand) {
    return std::string(text).replace(std::string(text).find('A'), 1, operand);
  };
  const std::string view = add(dtype, false, is_exact, true);
  const std::string middle = add(dtype, false, is_exact, true);
  const bool has_rows = kind + 1 < std::size(kViews);  // all but the last bring all elements back
  const std::string back = add(dtype, has_rows, is_exact, false);
  is_writable_.back() = false;
  used_.insert({static_cast<int>(dtypes_.size()) - 3, static_cast<int>(dtypes_.size()) - 2});
  return "  " + view + " : Tensor = " + applied(kViews[kind].first, name) + "\n  " + middle +
         " : Tensor = " + applied("aten::neg(A)", view) + "\n  " + back +
         " : Tensor = " + applied(kViews[kind].second, middle) + "\n";
}

// Appends an operator that writes an operand, if its operands are there.
std::string GroupGenerator::write() {
  const GroupOp& op = kWritingOps[pick(std::size(kWritingOps))];
  const int target = value([&](size_t v) {
    return is_writable_[v] && (op.kinds == 'a' ? dtypes_[v] != at::kBool : c10::isFloatingType(dtypes_[v]));
  });
  std::vector<int> chosen = {target};
  while (target >= 0 && static_cast<int>(chosen.size()) < op.operands && chosen.back() >= 0) {
    const at::ScalarType type = dtypes_[static_cast<size_t>(target)];
    chosen.push_back(value([&](size_t v) {
      return op.kinds == 'l' ? dtypes_[v] == type : dtypes_[v] != at::kBool && c10::canCast(dtypes_[v], type);
    }));
  }
  if (chosen.back() < 0) {
    return "";
  }
  std::string call;
  for (const char* at = op.text; *at != '\0'; ++at) {
    const bool is_operand = *at >= 'A' && *at <= 'C';
    call += is_operand ? "%v" + std::to_string(chosen[static_cast<size_t>(*at - 'A')]) : std::string(1, *at);
  }
  used_.insert(chosen.begin(), chosen.end());
  return "  " + add(dtypes_[static_cast<size_t>(target)], true, true, false) + " : Tensor = " + call + "\n";
}

// Appends a node, if its operands are there.
std::string GroupGenerator::node() {
  if (pick(10) == 0) {
    return views();
  }
  if (contents_ == Contents::kWrites && pick(2) == 0) {
    return write();
  }
  const bool is_exact = contents_ != Contents::kAll || pick(4) != 0;
  const GroupOp& op = is_exact ? kExactOps[pick(std::size(kExactOps))] : kOtherOps[pick(std::size(kOtherOps))];
  std::vector<int> chosen;
  for (int i = 0; i < op.operands; ++i) {
    const bool is_condition = i == 0 && (op.kinds == 'w' || op.kinds == 'm');
    chosen.push_back(value([&](size_t v) {
      const at::ScalarType type = dtypes_[v];
      if (op.jumps && !is_exact_[v]) {
        return false;
      }
      return is_condition                                            ? type == at::kBool
             : op.kinds == 'l' && i > 0                              ? type == dtypes_[static_cast<size_t>(chosen[0])]
             : op.kinds == 'r'                                       ? c10::isFloatingType(type) && has_rows_[v]
             : op.kinds == 'f' || op.kinds == 'l' || op.kinds == 'm' ? c10::isFloatingType(type)
                                                                     : type != at::kBool;
    }));
    if (chosen.back() < 0) {
      return "";
    }
  }
  auto type = at::kBool;
  if (op.kinds != 'c') {
    const size_t first = op.kinds == 'w' || op.kinds == 'm' ? 1 : 0;
    type = dtypes_[static_cast<size_t>(chosen[first])];
    for (size_t i = first; i < chosen.size(); ++i) {
      type = c10::promoteTypes(type, dtypes_[static_cast<size_t>(chosen[i])]);
    }
  }
  std::string call;
  for (const char* at = op.text; *at != '\0'; ++at) {
    const bool is_operand = *at >= 'A' && *at <= 'C';
    call += is_operand ? "%v" + std::to_string(chosen[static_cast<size_t>(*at - 'A')]) : std::string(1, *at);
  }
  const auto every = [&](const std::vector<bool>& is_so) {
    return std::all_of(chosen.begin(), chosen.end(), [&](int v) { return is_so[static_cast<size_t>(v)]; });
  };
  const bool has_rows =
      !op.drops_row && std::any_of(chosen.begin(), chosen.end(), [&](int v) { return has_rows_[static_cast<size_t>(v)]; });
  const bool is_result_exact = is_exact && every(is_exact_);
  used_.insert(chosen.begin(), chosen.end());
  return "  " + add(type, has_rows, is_result_exact, false) + " : Tensor = " + call + "\n";
}

}  // namespace sconce::testing
