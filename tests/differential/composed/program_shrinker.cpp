#include "tests/differential/composed/program_shrinker.h"

#include "tests/differential/composed/templates.h"

#include <algorithm>
#include <regex>
#include <set>

namespace sconce::testing::composed {
namespace {

// A line in the tree: the lines that it is among, and its position there.
struct Place {
  Lines* among;
  size_t at;
};

void collect(Lines& lines, std::vector<Place>& places) {
  for (size_t i = 0; i < lines.size(); ++i) {
    places.push_back({&lines, i});
    collect(lines[i].body, places);
  }
}

size_t count_lines(Program& program) {
  std::vector<Place> places;
  collect(program.lines, places);
  return places.size();
}

Place place_of(Program& program, size_t number) {
  std::vector<Place> places;
  collect(program.lines, places);
  return places[number];
}

void rename(Lines& lines, const std::string& name, const std::string& by) {
  for (Line& line : lines) {
    line.text = with_name_replaced(line.text, name, by);
    rename(line.body, name, by);
  }
}

class Shrinker {
 public:
  Shrinker(Program program, const std::function<bool(const Program&)>& still_fails, int max_tries)
      : best_(std::move(program)), still_fails_(still_fails), tries_left_(max_tries) {}

  Program run() {
    do {
      progress_ = false;
      take_calls();
      take_lines();
      take_outputs();
      replace_by_operands();
      simplify_calls();
      simplify_arguments();
      take_inputs();
    } while (progress_ && tries_left_ > 0);
    return std::move(best_);
  }

 private:
  template <typename Change>
  bool attempt(const Change& change) {
    if (tries_left_ <= 0) {
      return false;
    }
    Program candidate = best_;
    if (!change(candidate)) {
      return false;
    }
    --tries_left_;
    if (!still_fails_(candidate)) {
      return false;
    }
    best_ = std::move(candidate);
    progress_ = true;
    return true;
  }

  void take_calls() {
    for (size_t i = best_.calls.size(); i-- > 0 && best_.calls.size() > 1;) {
      attempt([&](Program& program) {
        program.calls.erase(program.calls.begin() + static_cast<std::ptrdiff_t>(i));
        return true;
      });
    }
  }

  void take_lines() {
    for (size_t i = count_lines(best_); i-- > 0;) {
      if (i >= count_lines(best_)) {
        continue;
      }
      const bool gone = attempt([&](Program& program) {
        const Place place = place_of(program, i);
        const auto line = place.among->begin() + static_cast<std::ptrdiff_t>(place.at);
        const bool has_else = place.at + 1 < place.among->size() && (*place.among)[place.at + 1].text == "else:";
        place.among->erase(line, line + (has_else ? 2 : 1));
        return true;
      });
      for (const bool second : {false, true}) {
        if (gone) {
          break;
        }
        attempt([&](Program& program) {
          const Place place = place_of(program, i);
          Lines& among = *place.among;
          const bool has_else = place.at + 1 < among.size() && among[place.at + 1].text == "else:";
          if (among[place.at].body.empty() || (second && !has_else)) {
            return false;
          }
          const Lines body = among[place.at + (second ? 1 : 0)].body;
          const auto line = among.begin() + static_cast<std::ptrdiff_t>(place.at);
          const auto rest = among.erase(line, line + (has_else ? 2 : 1));
          among.insert(rest, body.begin(), body.end());
          return true;
        });
      }
    }
  }

  void take_outputs() {
    for (size_t i = best_.outputs.size(); i-- > 0 && best_.outputs.size() > 1;) {
      attempt([&](Program& program) {
        program.outputs.erase(program.outputs.begin() + static_cast<std::ptrdiff_t>(i));
        for (Call& call : program.calls) {
          call.asked.erase(call.asked.begin() + static_cast<std::ptrdiff_t>(i));
        }
        return true;
      });
    }
  }

  // `v5 = f(v1, v2)`: v1 or v2 in place of v5.
  void replace_by_operands() {
    static const std::regex kAssignment("([a-z][0-9]+) = (.*)");
    for (size_t i = count_lines(best_); i-- > 0;) {
      if (i >= count_lines(best_)) {
        continue;
      }
      std::smatch match;
      const std::string text = place_of(best_, i).among->at(place_of(best_, i).at).text;
      if (!std::regex_match(text, match, kAssignment)) {
        continue;
      }
      const std::string name = match[1];
      for (const std::string& operand : names_in(match[2])) {
        const bool is_variable = operand.size() > 1 && std::isdigit(static_cast<unsigned char>(operand[1])) != 0;
        if (is_variable && operand != name && attempt([&](Program& program) {
              const Place place = place_of(program, i);
              place.among->erase(place.among->begin() + static_cast<std::ptrdiff_t>(place.at));
              rename(program.lines, name, operand);
              std::ranges::replace(program.outputs, name, operand);
              return true;
            })) {
          break;
        }
      }
    }
  }

  void simplify_calls() {
    for (size_t i = 0; i < best_.calls.size(); ++i) {
      attempt([&](Program& program) { return std::exchange(program.calls[i].second_order, false); });
      attempt([&](Program& program) { return std::exchange(program.calls[i].records_gradients, false); });
      for (size_t output = 0; output < best_.outputs.size(); ++output) {
        attempt([&](Program& program) {
          const bool before = program.calls[i].asked[output];
          program.calls[i].asked[output] = false;
          return before;
        });
      }
    }
  }

  void for_every_argument(Program& program, const std::function<void(Argument&)>& change, size_t input) {
    for (Call& call : program.calls) {
      change(call.arguments[input]);
    }
  }

  void simplify_arguments() {
    for (size_t input = 0; input < best_.inputs.size(); ++input) {
      const auto change = [&](auto&& edit) {
        attempt([&](Program& program) {
          bool changed = false;
          for_every_argument(program, [&](Argument& argument) { changed |= edit(argument); }, input);
          return changed;
        });
      };
      change([](Argument& argument) { return std::exchange(argument.role, Role::kPlain) != Role::kPlain; });
      change([](Argument& argument) {
        return argument.role == Role::kComputed && std::exchange(argument.role, Role::kLeaf) == Role::kComputed;
      });
      change([](Argument& argument) { return std::exchange(argument.form, Form::kContiguous) != Form::kContiguous; });
      change([](Argument& argument) { return std::exchange(argument.alias_of, -1) != -1; });
      change([](Argument& argument) { return std::exchange(argument.is_none, false); });
      change([](Argument& argument) { return std::exchange(argument.dtype, at::kDouble) != at::kDouble; });
    }
    for (const int64_t from : {6, 5, 4, 3, 2}) {
      for (int64_t to = 1; to < from; ++to) {
        attempt([&](Program& program) {
          bool changed = false;
          for (Call& call : program.calls) {
            for (Argument& argument : call.arguments) {
              changed |= std::ranges::find(argument.sizes, from) != argument.sizes.end();
              std::ranges::replace(argument.sizes, from, to);
            }
          }
          return changed;
        });
      }
    }
  }

  void take_inputs() {
    for (size_t input = best_.inputs.size(); input-- > 0 && best_.inputs.size() > 1;) {
      attempt([&](Program& program) {
        const std::set<std::string> used = names_in(text_of(program.lines, 0));
        const std::string& name = program.inputs[input].name;
        if (used.contains(name) || std::ranges::find(program.outputs, name) != program.outputs.end()) {
          return false;
        }
        const auto at = static_cast<std::ptrdiff_t>(input);
        program.inputs.erase(program.inputs.begin() + at);
        for (Call& call : program.calls) {
          call.arguments.erase(call.arguments.begin() + at);
          for (Argument& argument : call.arguments) {
            argument.alias_of = argument.alias_of > static_cast<int>(input) ? argument.alias_of - 1 : argument.alias_of;
          }
        }
        return true;
      });
    }
  }

  Program best_;
  const std::function<bool(const Program&)>& still_fails_;
  int tries_left_;
  bool progress_ = false;
};

}  // namespace

Program shrink(Program program, const std::function<bool(const Program&)>& still_fails, int max_tries) {
  return Shrinker(std::move(program), still_fails, max_tries).run();
}

}  // namespace sconce::testing::composed
