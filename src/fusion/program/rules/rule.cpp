#include "fusion/program/rules/rule.h"

namespace sconce {

void add_rule(RuleTable& table, const char* name, const WriteRule& rule, std::initializer_list<const char*> overloads) {
  for (const char* overload : overloads) {
    table.emplace(c10::OperatorName(std::string("aten::") + name, overload), rule);
  }
}

}  // namespace sconce
