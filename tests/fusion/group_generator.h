// Generated groups of nodes that kernels compute.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace sconce::testing {

struct GroupOp;

class GroupGenerator {
 public:
  enum class Contents : uint8_t {
    kExact,   // what kernels compute bitwise as the operators do
    kWrites,  // the same, and operators in place
    kAll,     // reductions of rows, and functions of the mathematical library, too
  };
  GroupGenerator(uint64_t seed, Contents contents) : random_(seed), contents_(contents) {}

  // Returns a graph, with the constants that it needs.
  std::string text();
  // Returns new operands of the same dtypes and layouts, which broadcast to 3 x height x width.
  std::vector<c10::IValue> operands(int64_t height, int64_t width);

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  template <typename Fits>
  int value(const Fits& fits);
  std::string node();
  std::string views();
  std::string write();
  std::string add(at::ScalarType dtype, bool has_rows, bool is_exact, bool is_aside);

  std::mt19937_64 random_;
  const Contents contents_;
  std::vector<at::ScalarType> dtypes_;  // by value; the inputs first
  std::vector<bool> has_rows_;          // by value: it has all dimensions
  std::vector<bool> is_exact_;          // by value
  std::vector<bool> is_aside_;          // by value: its sizes do not fit to those of others
  std::vector<bool> is_writable_;       // by value: no elements share a place
  std::vector<int> layouts_;            // of the inputs
  std::set<int> used_;                  // values
};

}  // namespace sconce::testing
