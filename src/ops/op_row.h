// OpRow: everything that sconce knows about an operator beyond LibTorch's schema.
//
// An operator stands once, with every overload that its row names. A missing field means "cannot" or "not known", never a
// default that could be wrong. An operator without a row is legal: it is called through the dispatcher and never
// interpreted. Types and alias marks are the schema's; a row never repeats them.
#pragma once

#include "ops/opcode.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace sconce {

// The effects of running a node, in addition to its outputs.
struct Effects {
  bool writes = false;    // memory or objects that another alias may see
  bool random = false;    // draws from a random number generator (rule R5: an effect chain, never removed or reordered)
  bool external = false;  // prints, warns, raises, waits for another thread
  bool state = false;     // changes what operators read besides their operands: grad mode, seeds, files, …
  bool unknown = false;   // nothing is known: as if all of these

  bool any() const { return writes || random || external || state || unknown; }
};

enum class Raises : uint8_t {
  kMaybe,         // or not known
  kByForm,        // only where sizes, dtypes or numbers do not fit, whatever the elements of tensors are
  kNotOnNumbers,  // never when every operand is an int, a float or a bool
  kNever,
};

// Whether results without an alias mark share memory with arguments.
enum class Sharing : uint8_t {
  kByKind,  // decided by the kind of operator, see Op::results_may_share_memory
  kFresh,   // never
  kShared,  // with every argument and with each other
};

// The part of a tensor operand that the node reads, if it is less than the elements.
enum class Reads : uint8_t {
  kElements,
  kMetadata,         // sizes, dtype, device or layout alone
  kStridesOrVersion  // its strides, its address, or how often it was written
};

// How the strides of the result depend on those of the operands.
enum class Layout : uint8_t {
  kUnknown,
  kPointwise,  // they follow those of all operands
  kImages,     // the first operand, or the list that it is: the result is contiguous or channels-last, and has its rank
  kReduces,    // the first operand: the result is contiguous
  kNew,        // a new tensor, contiguous unless a memory format is given
  kContiguous  // contiguous if all operands are; else they are not known
};

// When the functional variant's result is like the tensor that the in-place operator writes. The strides of dimensions of
// one element may differ.
enum class VariantMatch : uint8_t {
  kNever,            // or not known
  kAlways,           // dtype, sizes and strides are self's, whatever the operands are
  kWithoutGradient,  // the same, but when a tensor requires a gradient, backward of the functional variant raises
  kPointwise,        // when self is floating, and other tensors are of its dtype and broadcast to its sizes
  kContiguous,       // when self is contiguous, and other tensors broadcast to its sizes
};

// How TorchScript's autocast casts the operands (the lists of LibTorch 2.11).
enum class Autocast : uint8_t {
  kNone,                   // leaves them alone
  kReduced,                // casts floating operands to the region's dtype
  kFull,                   // … to float32
  kFullUnlessDtype,        // … to float32, unless the call names a dtype itself
  kFullOnCudaUnlessDtype,  // the same for operands on CUDA devices; leaves those on the CPU alone
  kWidest,                 // … to float32 where any operand is float32 or of unknown dtype
};

enum class ResultDtype : uint8_t {
  kUnknown,
  kFirst,     // of the first tensor operand
  kReal,      // the same; of a complex one, that of its parts
  kPromoted,  // to which LibTorch promotes all operands
  kFloating,  // the same; known where that is a floating-point dtype
  kIndices,   // to which LibTorch promotes the operands of integers
  kBool,
  kInt64
};

// Dtypes and sizes of results, where LibTorch has no other source that C++ can ask (no kernel for meta tensors, or no shape
// function), or a wrong one.
struct ResultRule {
  std::vector<ResultDtype> dtypes = {};  // per result; those left out are unknown
  bool keeps_sizes = false;              // results have the sizes of the first tensor operand
  // Otherwise a TorchScript function from the arguments to the sizes of the results. It takes the schema's arguments, with
  // sizes in place of tensors. Arguments and results at the end may be left out.
  std::string_view sizes = {};
  bool differs_on_meta = false;  // the device decides what it does: a run on meta tensors tells nothing
  // LibTorch's C++ has no kernel for meta tensors. A run on empty tensors of the CPU serves instead: no kernel divides by
  // their sizes, or waits for elements.
  bool runs_on_empty = false;
  bool accepts_sparse = false;         // a run on empty sparse operands shows what it returns
  bool rank_depends_on_sizes = false;  // which dimensions it leaves out
  bool sizes_by_structure = false;     // sizes depend on how many numbers are among the operands, not on their values
};

// An operator that computes W·x + b, with arguments named `weight` and `bias`.
struct AffineRule {
  bool transposed = false;            // the weight is [in, out / groups, …] instead of [out, in / groups, …]
  bool accepts_batches_only = false;  // otherwise x may have another rank
};

// left · right, or left · rightᵀ, and what the operator adds to it. `left` may have more than two dimensions where
// `left_may_be_batch`: its matrices then lie one below the other. The members are positions among the arguments.
struct MatrixProduct {
  size_t left;
  size_t right;
  bool right_is_transposed = false;
  bool left_may_be_batch = true;
  std::optional<size_t> addend = std::nullopt;
};

// A division or remainder of numbers. Where integers have no quotient, LibTorch's kernel ends the process: for the smallest
// integer by -1, and for some operators by zero.
struct IntegerDivision {
  bool traps_on_zero;  // the other operators raise
};

// What counts as arithmetic, besides what `affine` and `product` tell. Only reports of work ask (plan/timeline/step_work.h).
enum class Arithmetic : uint8_t {
  kElements,             // one operation for each element of the largest tensor
  kBatchedProduct,       // the products of the matrices of the first two operands
  kBatchedProductAdded,  // the same of the second and the third
  kAttention,            // of `query`, `key` and `value`
  kRecurrent,            // each row of the first operand meets every weight: a matrix that is a constant
  kConvolutionGradient,  // `grad_output`, `input`, `weight` and an `output_mask`
};

struct OpRow {
  std::string_view name;                         // "aten::conv2d"
  std::vector<std::string_view> overloads = {};  // empty: all that no other row of the name lists; "": the unnamed one
  std::string_view synonym_of = {};              // the operator that LibTorch implements this one with
  Opcode opcode = Opcode::kOpaque;

  // ---- effects, besides what the schema's marks and LibTorch's tags say
  Effects effects = {};
  bool reads_state = false;     // results depend on the state of the thread or process
  bool differentiates = false;  // walks autograd's graph of what earlier operators computed
  Raises raises = Raises::kMaybe;

  // ---- memory: what the schema does not say (rule R1)
  std::vector<std::string_view> written = {};  // arguments whose memory the operator may write
  std::string_view written_if = {};            // a bool argument: when it is false, the operator writes none of these
  Sharing results = Sharing::kByKind;
  bool may_overlap = false;        // elements of the new result may share a place, or must not be written
  bool makes_no_contents = false;  // the elements of the new result are not set
  bool overwrites = false;         // replaces all elements of its first operand, and reads none of them
  bool resizes = false;            // may change sizes, strides or storage of an existing tensor, without the tag for it
  bool moves_operands = false;     // puts operands into its results or takes them out of there, and does nothing else
  bool returns_existing = false;   // results that are not tensors computed from one existed before
  bool makes_container = false;    // results that are containers are new
  bool may_copy = false;           // the result is the first operand, a view of it, or, if it is not contiguous, a copy
  bool new_view = false;           // the result is a new tensor object over the operand's memory
  bool reads_identity = false;     // depends on which object a tensor operand is
  // Depends on more of a tensor operand than its sizes, strides, dtype, device and elements: where in its storage it lies,
  // how often it was written, or whether it requires a gradient.
  bool reads_beyond_form = false;
  Reads reads = Reads::kElements;
  bool needs_grad_mode = false;  // its kernel returns the workspace of backward only in grad mode

  // ---- layout, in-place variants, autocast
  Layout layout = Layout::kUnknown;
  bool keeps_stride_order = false;  // a view of any tensor that keeps the order of the strides of the dimensions it keeps
  bool cuts = false;                // the result is a list of parts of the first operand
  VariantMatch in_place = VariantMatch::kNever;
  bool backward_ignores_result = false;  // LibTorch's derivative formula does not name the result
  Autocast autocast = Autocast::kNone;

  // ---- results
  ResultRule result = {};
  bool reads_missing_dtype = false;  // see copies_by_reading_no_dtype (libtorch_workarounds.h)
  bool leaves_device = false;        // the result lies on a device that neither tensors nor devices among the operands tell
  bool grows_by_number = false;      // the length of the result is a number among the operands

  // ---- arithmetic
  std::optional<AffineRule> affine = std::nullopt;
  std::optional<MatrixProduct> product = std::nullopt;
  std::optional<IntegerDivision> division = std::nullopt;

  Arithmetic arithmetic = Arithmetic::kElements;
  std::string_view looked_up = {};  // the argument of which the operator reads as many elements as it returns

  // ---- TorchScript texts, compiled when first needed (load/compile_op_row.h)
  // The operator in terms of primitives and of operators with bodies: an expression over the schema's arguments.
  std::string_view body = {};
  // An expression, or statements of which only the last is a `return`; ops/row_functions.h has functions that texts may
  // call. `forward` gives the results together with what backward saves: a tuple (result, saved…). It computes the same bits
  // as the operator. Without it, backward has the operator's arguments and results alone.
  std::string_view forward = {};
  // The gradients: a tuple with an entry per argument of the schema, None where there is none; entries at the end may be
  // left out. The text names the schema's arguments, `result` (result0, … where there are several), `saved_0`, `saved_1`, …
  // of `forward`, the incoming `grad` (grad0, …), and `needs`, a list that says per argument whether its gradient is needed.
  // Where there are several results, `defined` says per result whether a gradient flows to it; one that does not is zeros.
  // Autograd takes what `forward` saves for a constant: where the bool `records` says that autograd records backward, the
  // text computes it again. Differentiation sums each gradient to the operand's sizes and casts it. Without this text, the
  // operator is differentiated as those that `forward` calls. The text reads elements only of those arguments and results
  // that LibTorch's formula reads; sizes and dtypes of all are free. The formulas are those of real numbers.
  std::string_view backward = {};
  // An expression over the schema's arguments: whether these texts are the operator's derivative. Without it, they always
  // are.
  std::string_view differentiable_if = {};
  // For a row without these texts: whether the gradient may be recorded from LibTorch's autograd (autodiff/rules/).
  // LibTorch's formulas do not check what autograd itself hands them, so each such operator has cases in
  // tests/ops/gradients.
  bool recorded_gradient = false;
};

}  // namespace sconce
