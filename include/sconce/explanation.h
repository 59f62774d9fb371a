// An executor's account of what it did and why. `sconce explain` prints it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// Since the executor was made (or `clear_cache`). Read while others run, the numbers are each right but not of one moment.
struct Counters {
  uint64_t invocations = 0;
  uint64_t cache_hits = 0;
  uint64_t cache_misses = 0;
  uint64_t compiles = 0;  // plans built
  uint64_t refusals = 0;  // things that could not be done, each listed in Explanation::refusals
  uint64_t evictions = 0;
};

// How far a plan is specialized.
//   kGeneric  not at all: one plan for all arguments. Runs every optimization that needs no knowledge of the arguments.
//   kRanks    on one argument spec: dtypes, devices, ranks, sizes of 1, what is None, values of attributes.
enum class Tier { kGeneric = 0, kRanks = 1 };

// Why an operator on tensors runs by its ordinary step, which sets the operator up in every run.
enum class NotPrepared : uint8_t {
  // Known when the plan is made:
  kNoKernel,           // there is no prepared kernel for the operator
  kSeveralResults,     // the operator returns several values
  kListArgument,       // an argument is a list of tensors that is not made right before the operator, for it alone
  kListResult,         // the operator returns a list of tensors that is not unpacked right after it
  kArgument,           // an argument is an object, a tuple or a list of optional tensors, or their number varies
  kViewEscapes,        // the result is a view that may be held after the run, or whose sizes may be changed
  kViewBesideWrite,    // the result is a view, and an operator writes memory that it may share
  kViewWithGradients,  // the result is a view, and single steps of the plan may record gradients
  kAutocast,           // what the caller's autocast does to the operator is not known, so it runs with autocast on
  // Found in a run:
  kOperandKind,   // an operand was no dense tensor on the plan's device, or a number of another type
  kOperandForm,   // the kernel does not support these sizes, strides or dtypes, or Options::exact excludes it
  kDiffers,       // the compiled kernel may give other bits than the operators, which Options::exact excludes
  kFastEnough,    // LibTorch's operators compute these operands as fast as a compiled kernel
  kNoCode,        // its code could not be compiled
  kGaveUp,        // the operands changed in every run, so that preparing was no use
  kSlower,        // calls have timed the kernel, and LibTorch's operator was faster (Options::time_choices)
  kRequiresGrad,  // an operand required a gradient, or a profiler or autocast was switched on in the run
  // Of all steps of a run:
  kGradients,  // gradients were recorded, an argument was sparse, quantized or wrapped, or a transform was active
  kObserved,   // a profiler or the caller's autocast had to see single operators
  // Of all steps of a plan:
  kOptimizationOff,  // Options::optimize(false)
};
// Returns the reason in words.
const char* to_string(NotPrepared reason);
// Returns what the user can do about it, in words. Empty if nothing is known.
const char* remedy_for(NotPrepared reason);

// The operators of one name that ran by their ordinary steps for one reason.
struct NotPreparedExplanation {
  std::string op;  // "aten::sort"; empty if the reason is one of all steps
  NotPrepared reason = NotPrepared::kNoKernel;
  size_t steps = 0;
  uint64_t times = 0;  // how often runs found the reason; 0 if it was known when the plan was made
  std::string node;    // the first of them
  std::string source;  // "model.py:12:8", the begin of the differentiable subgraph if it has no line itself; may be empty
};

// Why a device's capture (a CUDA graph) cannot hold a step.
enum class NotRecordable : uint8_t {
  kRunsCode,         // it runs a function, a task or a backend's code
  kReadsHost,        // it copies elements of a tensor to the host
  kUnknownEffects,   // what the operator does other than return results is not known
  kHostEffects,      // it prints, raises, waits, or changes the state of the thread
  kSizesByElements,  // the sizes of its result depend on elements
  kChangesSizes,     // it may change the sizes or strides of an operand in place
  kForbidden,        // LibTorch marks the operator as unfit for CUDA graphs
  kSeveralDevices,   // it copies between devices, from the host too, or reads a tensor of another device
  kOtherDevice,      // its tensors lie on another device than the recording
  kUnknownDevice,    // where its tensors lie is not known before it runs
  kReadsMore,        // it reads the state of the thread, or more of a tensor than its form and elements
};
// Returns the reason in words.
const char* to_string(NotRecordable reason);

// The steps of one operator that no recording can hold, for one reason.
struct NotRecordableExplanation {
  std::string op;  // "aten::item"
  NotRecordable reason = NotRecordable::kRunsCode;
  size_t steps = 0;
  std::string node;    // the first of them
  std::string source;  // "model.py:12:8", may be empty
};

// A plan's steps by what they need of host and device. Steps that only move values between registers, and those in ranges
// that are recorded, are not counted.
struct TraitsExplanation {
  size_t steps = 0;
  size_t computing = 0;              // compute, or at least return, tensors
  size_t random = 0;                 // draw random numbers
  size_t writes = 0;                 // write memory that other values may see
  size_t reads_host = 0;             // copy elements of a tensor to the host
  std::vector<std::string> devices;  // that facts tell of: "cpu", "cuda:0"
  std::vector<NotRecordableExplanation> not_recordable;
};

// A local tensor of a plan, and where it lies in the arena. Positions count the nodes of the plan's graph.
struct SlotExplanation {
  size_t first = 0;      // the position that writes it
  size_t last = 0;       // the last position that uses its memory
  size_t offset = 0;     // in the arena, in bytes
  size_t bytes = 0;      // 0: the slot is not in the arena
  bool is_view = false;  // it shares the memory of another tensor and needs none
  std::string node;
  std::string source;
};

// The memory of a plan's prepared steps. Sizes refer to the newest layout; there is none before the end of the first run
// that used prepared steps.
struct MemoryExplanation {
  bool has_layout = false;
  size_t arena_bytes = 0;
  size_t lower_bound = 0;   // the most bytes that are in use at one time: no layout needs fewer
  size_t without_room = 0;  // slots, views aside, that are large, that no run needed or that ordinary steps filled
  size_t positions = 0;     // nodes of the graph, with one for the end of each node with blocks
  std::vector<SlotExplanation> slots;
};

// Why no differentiable subgraph has an operator that a gradient flows through. Autograd records such an operator by itself.
enum class NotDifferentiated : uint8_t {
  kNoText,        // its row has no gradient formula (`backward` text), and none may be recorded
  kEffects,       // it writes memory or has other effects
  kCall,          // it is a call of a function that is not inlined
  kCondition,     // its gradient formula does not cover these arguments
  kNotRecorded,   // its gradient formula could not be recorded from LibTorch's autograd for these arguments
  kUnknownDtype,  // the dtype of an operand or result is not known
  kComplex,       // an operand or result is complex
  kHiddenTensor,  // an argument may be a tensor, but is not of that type
  kList,          // the list of tensors that it joins or unpacks is not made, or cut, in its subgraph
  kVisible,       // the caller, or an operator with effects, may see a value that ends its subgraph: too few are left
  kTooFew,        // its subgraph would have fewer operators than Options::min_differentiable_nodes
  kOnlyViews,     // its subgraph would have only views and lists, which cost little
  kNoGradient,    // no gradient reaches an input of its subgraph
};
// Returns the reason in words.
const char* to_string(NotDifferentiated reason);
// Returns what the user can do about it, in words. Empty if nothing is known.
const char* remedy_for(NotDifferentiated reason);

// The operators of one name that no differentiable subgraph has, for one reason.
struct NotDifferentiatedExplanation {
  std::string op;  // "aten::sort"
  NotDifferentiated reason = NotDifferentiated::kNoText;
  size_t nodes = 0;
  std::string node;    // the first of them
  std::string source;  // "model.py:12:8", may be empty
};

// The operators of one name in differentiable subgraphs whose gradient formula is LibTorch's, recorded from its autograd.
struct RecordedGradientExplanation {
  std::string op;  // "aten::special_i1"
  size_t nodes = 0;
  std::string node;    // the first of them
  std::string source;  // "model.py:12:8", may be empty
};

// One run of a pass in a compile.
struct PassTiming {
  std::string pass;
  double seconds = 0;  // without the passes that it ran itself
  bool changed = false;
  // "inline", "freeze", "required", "optimize", "specialized plans", "joint graph" (that differentiate folds), "forward",
  // "backward" or "fuse"
  std::string stage;
};

// An operator whose kernel and LibTorch's operator were timed (Options::time_choices).
struct TimedStepExplanation {
  std::string op;      // "aten::conv2d"
  std::string source;  // "model.py:12:8", may be empty
  double kernel_seconds = 0;
  double operator_seconds = 0;
  bool is_by_kernel = true;  // which one serves; the kernel unless it is clearly slower
};

struct PlanExplanation;

// A subgraph that runs as one autograd node, with plans of its own.
struct DifferentiableExplanation {
  std::string name;                    // of its autograd node: "SconceBackward(model.py:12)"
  std::string source;                  // where it begins: "model.py:12:8", may be empty
  size_t saved_inputs = 0;             // operands that it keeps for backward
  size_t saved_outputs = 0;            // results that it keeps for backward
  size_t saved_intermediates = 0;      // other values that it keeps for backward
  std::vector<PlanExplanation> plans;  // forward, then backward
};

// A range of steps that a device records and replays (a CUDA graph), with a plan of its own.
struct RecordedExplanation {
  struct Unrecorded {
    std::string reason;
    uint64_t runs = 0;
  };
  std::string node;    // the captured node
  std::string source;  // where the range begins: "model.py:12:8", may be empty
  uint64_t recordings = 0;
  uint64_t replays = 0;
  std::vector<Unrecorded> unrecorded;  // runs of the steps one by one
  std::vector<PlanExplanation> plan;   // one
};

// The differentiable subgraphs of a plan, and the operators whose gradients autograd records one by one.
struct GradientExplanation {
  size_t inside = 0;   // operators that a gradient flows through, in differentiable subgraphs
  size_t outside = 0;  // other operators that a gradient flows through
  std::vector<NotDifferentiatedExplanation> not_differentiated;  // of `outside`, those with the most nodes first
  std::vector<RecordedGradientExplanation> recorded;             // of `inside`, those with the most nodes first
  std::vector<DifferentiableExplanation> subgraphs;
};

struct PlanExplanation {
  Tier tier = Tier::kGeneric;
  std::vector<std::string> specs;        // the argument specs that this plan serves, in words
  std::vector<std::string> why_generic;  // of the generic plan: for each spec, why it has no plan of its own
  uint64_t runs = 0;
  size_t steps = 0;
  size_t prepared_steps = 0;  // operators that keep their set-up from run to run
  size_t ordinary_steps = 0;  // other operators that return tensors; the remaining steps are numbers, lists and jumps
  size_t groups = 0;          // of adjacent operators that one compiled kernel computes, if their operands allow it
  std::vector<NotPreparedExplanation> not_prepared;
  std::vector<TimedStepExplanation> timed;
  TraitsExplanation traits;
  MemoryExplanation memory;
  std::vector<RecordedExplanation> recorded;     // on a GPU
  std::optional<GradientExplanation> gradients;  // of a plan for calls that record gradients
  // The most threads that operators of a run could use: as many as LibTorch's (at::get_num_threads), fewer while other
  // threads called, one in a parallel region or a forked task, and never more than `threads_limit`
  // (Options::intra_op_threads), unless that is 0. Operators with little work use one. 0: no run yet.
  size_t threads = 0;
  size_t threads_limit = 0;
  size_t registers = 0;
  size_t frames = 0;  // frames made for concurrent runs
  double compile_seconds = 0;
  std::vector<PassTiming> passes;  // of a specialized plan; the generic plan's are in Explanation
  std::string text;                // the steps, one a line, with the nodes and source lines they came from
};

struct RefusalExplanation {
  std::string what;  // what was refused: "pass my_pass", "freezing self.scale"
  std::string reason;
  std::string node;    // may be empty
  std::string source;  // "model.py:12:8 in Block.forward" lines, may be empty
};

// The recordings of profiled runs (Options::profiled_runs).
struct ProfileExplanation {
  struct Branch {
    std::string source;  // as in RefusalExplanation
    uint64_t taken = 0;
    uint64_t not_taken = 0;
  };
  struct Loop {
    std::string source;
    uint64_t reached = 0;
    uint64_t iterations = 0;  // summed over all times the loop was reached
  };
  uint64_t runs = 0;
  std::string graph;  // IR with the shapes that held in every run
  std::vector<Branch> branches;
  std::vector<Loop> loops;
};

// The memory of a method's weights: its attributes, and constants computed from them. Other methods may share all of it.
struct WeightsExplanation {
  size_t packed_bytes = 0;    // of copies in the order in which kernels read them (Options::pack_weights)
  size_t in_files_bytes = 0;  // of weights whose pages have left memory (Options::page_out_weights)
};

struct Explanation {
  // Calls that record gradients, of which forward and backward are recorded together (Options::record_calls).
  struct Recorded {
    uint64_t by_plan = 0;
    uint64_t recorded = 0;  // tried, refused ones included
    uint64_t slower = 0;    // recordings that took more time than the module's own plans, and run no more
    // Why recordings were refused, or a run of one was undone, and how often.
    std::vector<std::pair<std::string, uint64_t>> reasons;
    // Why a plan could not leave sizes open.
    std::vector<std::string> why_sizes_are_fixed;
    std::vector<Explanation> plans;  // forward, then backward, of each recording
  };

  std::string method;
  size_t nodes = 0;                // nodes of the graph after inlining
  std::vector<PassTiming> passes;  // that made the generic plan
  std::vector<PlanExplanation> plans;
  std::vector<RefusalExplanation> refusals;
  WeightsExplanation weights;
  Counters counters;
  std::optional<ProfileExplanation> profile;  // when runs are profiled
  // The functions, and bodies of forks, that the methods of the module call and that have plans of their own. Their
  // refusals are among `refusals`.
  std::vector<Explanation> callees;
  Recorded recorded;
};

// Returns the page that `sconce explain` shows.
std::string to_text(const Explanation& explanation);
// Returns a JSON object, as `sconce explain --json` prints it (docs/command_line.md).
std::string to_json(const Explanation& explanation);

}  // namespace sconce
