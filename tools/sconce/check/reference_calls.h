// The same call on sconce and on LibTorch, and everything about it that must agree.
#pragma once

#include "tools/peers/peer.h"
#include "tools/sconce/check/check_findings.h"

#include <sconce/module.h>

#include <torch/csrc/jit/api/module.h>

#include <optional>

namespace sconce::cli {

// How one call went.
struct CallOutcome {
  std::optional<std::string> error;  // what it threw, or why it was refused
  c10::IValue output;
  std::vector<c10::IValue> arguments;  // after the call: it may have written into them
  at::Tensor generator_state;          // of LibTorch's CPU generator, after the call
};

// A model in sconce and its twin in LibTorch, op after op. Both live on between calls, each with a state of its own.
class ReferenceModels {
 public:
  enum class State {
    kCompare,
    kNone,  // the methods have no state: the modules' attributes are left out of all comparisons
  };
  // `original` and `twin` are the same model loaded twice. Throws UserError when there is no such method.
  ReferenceModels(Module original, const torch::jit::Module& twin, const std::string& method, State state);

  // Calls both with copies of the arguments, the generator seeded before each.
  struct Outcomes {
    CallOutcome got;
    CallOutcome expected;
  };
  Outcomes call(const std::vector<c10::IValue>& arguments, uint64_t seed);

  // Compares outputs, arguments after the call, all attributes of the modules, who shares memory with whom, and the state of
  // the generator. Parameters and buffers are attributes. Passes that failed count as findings of call 1. Where both raised
  // there are no outputs, and all else is compared. `has_answer`: whether there is a recorded answer, which is a result.
  void compare_outcomes(const Outcomes& outcomes, const CompareOptions& options, bool has_answer, Findings& findings) const;

  const torch::jit::Module& original() const { return module_.script_module(); }
  const torch::jit::Module& twin() const { return reference_; }

 private:
  Module module_;
  torch::jit::Module reference_;
  std::string method_;
  State state_;
  std::optional<std::string> refusal_;  // why sconce cannot run the method at all
  std::unique_ptr<peers::Peer> peer_;
};

// One call of a module in LibTorch, op after op.
CallOutcome call_reference(const torch::jit::Module& twin, const std::string& method,
                           const std::vector<c10::IValue>& arguments, uint64_t seed);

// One or both sides raised in `what`, a call or the backward pass. Even where they agree there is nothing to compare with
// the recorded answer, if there is one.
void report_raised(const std::optional<std::string>& got, const std::optional<std::string>& expected,
                   const std::string& what, bool has_answer, Findings& findings);

// What findings name the twin.
inline constexpr const char* kAgainstReference = "LibTorch";
// Of a pass of the user's that failed: what was compared is a plan without it.
inline constexpr const char* kAgainstPasses = "the list of passes";
inline constexpr const char* kAgainstRecorded = "recorded answer";

}  // namespace sconce::cli
