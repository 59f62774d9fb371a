// The table of rules: what the operators compute for one element.
#pragma once

#include "fusion/program/rule_arguments.h"

#include <ATen/core/operator_name.h>

#include <functional>
#include <initializer_list>
#include <unordered_map>

namespace sconce {

// A rule returns nothing for arguments that it does not accept: those that it does not compute as LibTorch does, and all
// that LibTorch may reject, such as unknown words and numbers out of range. The operator itself then runs, and raises with
// its own words. What numbers fit the dtypes is asked before (RuleArguments::accepts_numbers), also in each run for those
// that it gives.
using WriteRule = std::function<Result(RuleArguments&)>;
using RuleTable = std::unordered_map<c10::OperatorName, WriteRule>;

// Adds the rule for overloads of an operator; "" is the unnamed one.
void add_rule(RuleTable& table, const char* name, const WriteRule& rule,
              std::initializer_list<const char*> overloads = {""});

// ---- the rules, by family: each function adds those of one file
void add_arithmetic_rules(RuleTable& table);
void add_division_rules(RuleTable& table);
void add_selection_rules(RuleTable& table);
void add_function_rules(RuleTable& table);
void add_activation_rules(RuleTable& table);
void add_gradient_rules(RuleTable& table);
void add_special_rules(RuleTable& table);
void add_binary_rules(RuleTable& table);

}  // namespace sconce
