// Branches, loops, and statements that raise in one of the calls.
#include "tests/differential/composed/generator.h"

#include <ATen/ATen.h>

namespace sconce::testing::composed {

std::string Generator::condition() {
  const auto flag = any_where("bool", [](const c10::IValue&) { return true; });
  if (flag && chance(40)) {
    return *flag;
  }
  const std::string text = any_of<std::string>(
      {"K > 2", "K < 3", "V.size(0) > 2", "float(V.sum().item()) > 0", "V.numel() > 6", "bool((V > 1).any())",
       "V.dim() == 2", "K % 2 == 0 and V.numel() > 2", "V.size(-1) == V.size(0)", "bool(V.mean() > 0)", "V.requires_grad",
       "torch.is_grad_enabled()", "not V.is_contiguous() or K > 1"});
  return with_name_replaced(with_name_replaced(text, "V", any_real()), "K", small_int(0, 6));
}

Lines Generator::block(size_t statements, std::string& result) {
  Lines made;
  Lines* const outer = std::exchange(lines_, &made);
  const std::vector<Variable> before = variables_;
  ++depth_;
  for (size_t i = 0; i < statements; ++i) {
    add_statement();
  }
  result = any_real();
  --depth_;
  variables_ = before;
  lines_ = outer;
  return made;
}

void Generator::add_if() {
  const std::string test = condition();
  const std::string result = new_name('v');
  std::string chosen;
  Lines yes = block(1 + pick(2), chosen);
  yes.push_back({result + " = " + chosen + any_of<std::string>({"", " * 0.5", ".sum()", ".detach()"})});
  Lines no = block(pick(3), chosen);
  no.push_back({result + " = " + chosen + any_of<std::string>({"", " + 1", ".mean()"})});
  add(Lines{{"if " + test + ":", std::move(yes)}, {"else:", std::move(no)}}, {result});
}

void Generator::add_loop() {
  const std::string carried = new_name('v');
  const std::string list = new_name('l');
  const std::string index = new_name('k');
  const std::string trips = small_int(1, 4);
  const std::string start = any_real();
  const std::vector<Variable> before = variables_;
  const Variable* first = find(start);
  variables_.push_back({carried, "Tensor", first->values});
  variables_.push_back({index, "int", std::vector<c10::IValue>(result_.calls.size(), static_cast<int64_t>(0))});
  std::string made;
  Lines body = block(1 + pick(3), made);
  variables_ = before;
  const bool appends = chance(50);
  std::string update = any_of<std::string>({"torch.tanh(C + M)", "C * 0.5 + M.sum()", "torch.sin(C) * M.mean()",
                                            "torch.tanh(M)", "torch.cat([C, M], 0)", "torch.where(C > M, C, M * 0.5)",
                                            "(C + M).mean(0, keepdim=True)", "C - 0.1 * M", "M"});
  update = with_name_replaced(with_name_replaced(update, "C", carried), "M", made);
  if (chance(20)) {
    body.push_back({"if " + index + " > 1:", {{any_of<std::string>({"break", "continue"})}}});
  }
  if (appends) {
    body.push_back({list + ".append(" + any_of<std::string>({made, carried, made + ".sum()"}) + ")"});
  }
  body.push_back({carried + " = " + update});
  Lines lines = {{carried + " = " + start}};
  if (appends) {
    lines.push_back({list + ": List[Tensor] = []"});
  }
  if (chance(75)) {
    lines.push_back({"for " + index + " in range(" + trips + "):", std::move(body)});
  } else {
    lines.push_back({index + " = 0"});
    body.insert(body.begin(), {index + " += 1"});
    lines.push_back({"while " + index + " < " + trips + ":", std::move(body)});
  }
  std::vector<std::string> defined = {carried};
  if (appends) {
    defined.push_back(list);
  }
  add(lines, defined);
}

// Changes one number, word, list or operand.
std::string Generator::with_mistake(std::string expression) {
  struct Place {
    size_t begin;
    size_t end;
  };
  std::vector<Place> places;
  const size_t open = expression.find('(');
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  for (size_t i = open == std::string::npos ? 0 : open; i < expression.size();) {
    size_t end = i;
    while (end < expression.size() && is_word(expression[end])) {
      ++end;
    }
    if (expression[i] == '"') {
      end = expression.find('"', i + 1) + 1;
    }
    if (end > i && (end >= expression.size() || (expression[end] != '=' && expression[end] != '('))) {
      places.push_back({i, end});
    }
    i = std::max(end, i + 1);
  }
  if (places.empty()) {
    return expression;
  }
  const Place place = places[pick(places.size())];
  const std::string old = expression.substr(place.begin, place.end - place.begin);
  std::string by;
  if (old[0] == '"') {
    by = "\"mistake\"";
  } else if (std::isdigit(static_cast<unsigned char>(old[0])) != 0) {
    by = old.find('.') != std::string::npos || old.find('e') != std::string::npos
             ? any_of<std::string>({"-" + old, "1.5", "0.0", "1e40"})
             : any_of<std::string>({"-1", "0", old + " + 1", old + " - 1", "-7", "9", old + ", " + old});
  } else if (old == "True" || old == "False") {
    by = old == "True" ? "False" : "True";
  } else if (old == "None") {
    by = any_real();
  } else {
    by = chance(50) ? any_tensor()
                    : any_of<std::string>({old + ".sum()", old + ".unsqueeze(0)", old + ".to(4)", old + "[:0]",
                                           old + ".to(6)", old + ".reshape([-1])[1:]"});
  }
  return expression.replace(place.begin, place.end - place.begin, by);
}

void Generator::add_guarded_mistake() {
  attempt([&] { return try_guarded_mistake(); });
}

bool Generator::try_guarded_mistake() {
  if (chance(8)) {
    return add(Lines{{any_of<std::string>({"assert k0 < 5, \"a number is too large\"", "assert x0.size(0) > 0"})}}, {});
  }
  const Template& form = templates()[pick(templates().size())];
  const auto expression = filled(form);
  if (!expression) {
    return false;
  }
  const std::string wrong = with_mistake(*expression);
  if (chance(30)) {
    return add(Lines{{"if k0 == " + std::to_string(number_of_mistake_) + ":", {{"w0 = " + wrong}}}}, {});
  }
  // The result goes on, so that the operator is part of what the others are.
  const std::string result = new_name('v');
  return add(Lines{{result + " = " + any_real()},
                   {"if k0 == " + std::to_string(number_of_mistake_) + ":", {{result + " = " + wrong}}}},
             {result});
}

}  // namespace sconce::testing::composed
