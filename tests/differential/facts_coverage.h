// How much of what a run sees was known before it.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace sconce::testing {

// Of the tensor values that a run makes: how many of them are known with dtype, rank and every size.
struct Coverage {
  size_t tensors = 0;
  size_t known = 0;
  size_t strides = 0;     // known with every stride as well
  size_t determined = 0;  // whose sizes follow from the sizes of the arguments: see data_dependence.h. Those that differ
                          // from one iteration of a loop to the next are none, for no facts can be true of them
  size_t determined_known = 0;

  void operator+=(const Coverage& other);
};

struct Comparison {
  Coverage coverage;
  std::vector<std::string> contradictions;
  std::map<std::string, size_t> unknown;  // by the operator of which the operands are known and the result is not
};

// `claimed` and `seen`: copies of one graph, with the facts that an analysis claims and with those of a run. `exact`: the
// same with all that can be known, which tells what does not depend on data.
Comparison compare_facts(const Graph& claimed, const Graph& seen, const Graph& exact);

// "99.5 %".
std::string percent(size_t part, size_t whole);

}  // namespace sconce::testing
