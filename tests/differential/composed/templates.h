// Calls of operators with arguments that LibTorch accepts: the lines of tests/ops/gradients/*.cases (the syntax is in
// tests/support/operator_cases.h) and of operators.cases.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace sconce::testing::composed {

// An operand that a program computes, in the text of a template.
struct Hole {
  enum class Kind { kReal, kPositive, kUnit, kMask, kIndex, kWritten };
  Kind kind = Kind::kReal;
  std::string sizes;  // "[n, 3]"
  std::string high;   // of indices: "n"
};

// A call as text with holes: pieces[0] hole[0] pieces[1] … `n` in pieces and sizes is a number that the program chooses.
struct Template {
  std::string text;  // the line that it is from
  std::vector<std::string> pieces;
  std::vector<Hole> holes;
};

const std::vector<Template>& templates();

// Replaces the identifier `name` by `by` wherever it stands alone.
std::string with_name_replaced(const std::string& text, const std::string& name, const std::string& by);
// The identifiers in the text.
std::set<std::string> names_in(const std::string& text);

}  // namespace sconce::testing::composed
