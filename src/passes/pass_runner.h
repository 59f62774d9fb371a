// Runs passes one after the other: times, dumps and checks them.
#pragma once

#include "passes/pass_list.h"

#include <sconce/explanation.h>

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sconce {

class PassRunner {
 public:
  enum class Verify { kNever, kAfterChange };
  // The default verifies in debug builds and where SCONCE_VERIFY asks for it.
  PassRunner();
  explicit PassRunner(Verify verify) : verify_(verify) {}

  // The passes of these names are left out from now on.
  void leave_out(std::set<std::string, std::less<>> names) { left_out_ = std::move(names); }

  // Runs the pass and returns whether it says that the graph changed. In debug builds, and when verifying, checks that
  // claim against the graph's text. A broken graph or claim is an internal error that names the pass.
  bool run(std::string_view name, PassFunction pass, Graph& graph);
  bool run(const PassInfo& pass, Graph& graph) { return run(pass.name, pass.function, graph); }

  const std::vector<PassTiming>& timings() const { return timings_; }

 private:
  Verify verify_;
  std::set<std::string, std::less<>> left_out_;
  std::vector<PassTiming> timings_;
};

}  // namespace sconce
