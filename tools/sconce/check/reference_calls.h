// Makes the same call in sconce and in LibTorch, and compares everything that must agree.
#pragma once

#include "tools/peers/peer.h"
#include "tools/sconce/check/check_findings.h"

#include <sconce/module.h>

#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <set>

namespace sconce::cli {

// Returns whether a call of this number, from 1, records gradients: calls 1, 4, 7, … do, the others do not, because sconce
// runs them differently.
inline bool records_gradients(size_t call) { return call % 3 == 1; }

// The outcome of one call.
struct CallOutcome {
  std::optional<std::string> error;  // the exception's message, or the refusal's
  c10::IValue output;
  std::vector<c10::IValue> arguments;  // after the call, which may have written into them
  at::Tensor generator_state;          // state of LibTorch's CPU generator after the call
};

// A model in sconce, and the reference model: the same model in LibTorch, run operator after operator. Both persist between
// calls, each with its own state.
class ReferenceModels {
 public:
  enum class State {
    kCompare,
    kNone,  // the methods have no state, so attributes are not compared
  };
  // `original` and `reference`: one model, loaded twice. Throws UserError if there is no such method.
  ReferenceModels(Module original, const torch::jit::Module& reference, const std::string& method, State state);

  // Calls both with copies of the arguments. Seeds the generator before each call.
  struct Outcomes {
    CallOutcome got;
    CallOutcome expected;
  };
  // `number`, from 1: see `records_gradients`.
  Outcomes call(const std::vector<c10::IValue>& arguments, uint64_t seed, size_t number);

  // Compares outputs, arguments after the call, all attributes of the modules (parameters and buffers included), which
  // tensors share memory, and the state of the generator. Failed passes and compiles count as findings of calls 1 and 2. If
  // both calls raised there are no outputs, and everything else is compared. `has_answer`: a recorded answer exists.
  void compare_outcomes(const Outcomes& outcomes, const CompareOptions& options, bool has_answer, Findings& findings);

  const torch::jit::Module& original() const { return module_.script_module(); }
  const torch::jit::Module& reference() const { return reference_; }

 private:
  Module module_;
  torch::jit::Module reference_;
  std::string method_;
  State state_;
  std::optional<std::string> refusal_;  // why sconce cannot run the method
  std::unique_ptr<peers::Peer> peer_;
  std::set<std::string> reported_;  // failed passes
};

// Calls a module in LibTorch, operator after operator.
CallOutcome call_reference(const torch::jit::Module& reference, const std::string& method,
                           const std::vector<c10::IValue>& arguments, uint64_t seed);

// Records that one or both sides raised in `what`, a call or the backward pass, with which first line of the message. It is
// a note if both sides agree, unless a recorded answer exists.
void report_raised(const std::optional<std::string>& got, const std::optional<std::string>& expected,
                   const std::string& what, bool has_answer, Findings& findings);

// The name of the reference model in findings.
inline constexpr const char* kAgainstReference = "LibTorch";
// Records a failed pass of the user's, or a failed compile: the plan that was compared lacks it.
inline constexpr const char* kAgainstPasses = "the list of passes";
inline constexpr const char* kAgainstRecorded = "recorded answer";

}  // namespace sconce::cli
