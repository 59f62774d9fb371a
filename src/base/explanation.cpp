#include <sconce/explanation.h>

namespace sconce {

const char* to_string(NotPrepared reason) {
  switch (reason) {
    case NotPrepared::kNoKernel: return "it has no prepared kernel";
    case NotPrepared::kSeveralResults: return "it returns several values";
    case NotPrepared::kListArgument: return "its list of tensors is not made right before it, for it alone";
    case NotPrepared::kListResult: return "it returns a list of tensors that is not unpacked right after it";
    case NotPrepared::kArgument:
      return "it has an object, a tuple or a list of optional tensors as argument, or varying arguments";
    case NotPrepared::kViewEscapes: return "its result is a view that may be held after the run";
    case NotPrepared::kViewBesideWrite: return "its result is a view, and an operator writes memory that it may share";
    case NotPrepared::kViewWithGradients: return "its result is a view, and single steps of the plan may record gradients";
    case NotPrepared::kAutocast: return "it runs with the caller's autocast on, which decides its dtypes";
    case NotPrepared::kOperandKind:
      return "an operand was no dense tensor on the plan's device, or a number of another type";
    case NotPrepared::kOperandForm: return "its kernel does not support these sizes, strides or dtypes";
    case NotPrepared::kDiffers: return "its compiled kernel may give other bits";
    case NotPrepared::kFastEnough: return "LibTorch computes these operands as fast as a compiled kernel";
    case NotPrepared::kNoCode: return "its code could not be compiled";
    case NotPrepared::kGaveUp: return "its operands changed in every run, so preparing gained nothing";
    case NotPrepared::kSlower: return "calls have timed it, and LibTorch's operator was faster than its kernel";
    case NotPrepared::kGradients: return "a call recorded gradients or had a sparse, quantized or wrapped argument";
    case NotPrepared::kObserved: return "in a run, a profiler or autocast had to see single operators";
    case NotPrepared::kRequiresGrad: return "in a run, an operand required a gradient";
    case NotPrepared::kOptimizationOff: return "optimization is off";
  }
  return "unknown";
}

const char* remedy_for(NotPrepared reason) {
  switch (reason) {
    case NotPrepared::kNoKernel:
      return "use other operators, add a kernel (docs/adding_an_op.md), or let a backend run it (docs/adding_a_pass.md)";
    case NotPrepared::kListArgument: return "build the list in the expression that uses it";
    case NotPrepared::kListResult: return "unpack the list in the line that makes it";
    case NotPrepared::kViewEscapes: return "none if the caller gets the view; else keep a copy, not the view";
    case NotPrepared::kViewBesideWrite: return "write into a new tensor, or make the view after the write";
    case NotPrepared::kViewWithGradients:
      return "keep `with` blocks, forks and methods of objects out of the method, or none: views are cheap";
    case NotPrepared::kOperandKind: return "make it a dense, strided tensor of the model's device";
    case NotPrepared::kOperandForm:
      return "compute in one floating dtype, on dense tensors, and reduce rows of at most 65,536 elements "
             "(docs/kernels.md)";
    case NotPrepared::kDiffers: return "leave Options::exact off where the operators' own bits are not needed";
    case NotPrepared::kFastEnough: return "none";
    case NotPrepared::kNoCode: return "`sconce dump --format kernel` shows the code and the compiler's words";
    case NotPrepared::kGaveUp: return "none: views whose sizes differ in each call are faster unprepared";
    case NotPrepared::kSlower: return "none, or Options::time_choices(false)";
    case NotPrepared::kGradients:
      return "call under c10::NoGradGuard or c10::InferenceMode, on the command line with --no-grad";
    case NotPrepared::kObserved: return "end the profiler, or the caller's autocast, before the call";
    case NotPrepared::kRequiresGrad: return "call under c10::NoGradGuard or c10::InferenceMode if gradients are not needed";
    case NotPrepared::kOptimizationOff: return "leave Options::optimize on";
    case NotPrepared::kAutocast: return "compose it of operators that autocast casts itself, or call it outside of autocast";
    case NotPrepared::kSeveralResults:
    case NotPrepared::kArgument: return "";
  }
  return "";
}

const char* to_string(NotRecordable reason) {
  switch (reason) {
    case NotRecordable::kRunsCode: return "it runs a function, a task or a backend's code";
    case NotRecordable::kReadsHost: return "it copies elements of a tensor to the host";
    case NotRecordable::kUnknownEffects: return "what its operator does besides its results is not known";
    case NotRecordable::kHostEffects: return "it prints, raises, waits, or changes the state of the thread";
    case NotRecordable::kSizesByElements: return "the sizes of its result depend on elements";
    case NotRecordable::kChangesSizes: return "it may change the sizes or strides of an operand in place";
    case NotRecordable::kForbidden: return "LibTorch marks its operator as unfit for CUDA graphs";
    case NotRecordable::kSeveralDevices: return "it copies between devices, or reads a tensor of another device";
    case NotRecordable::kOtherDevice: return "its tensors lie on another device than the recording";
    case NotRecordable::kUnknownDevice: return "where its tensors lie is not known before it runs";
    case NotRecordable::kReadsMore:
      return "it reads the state of the thread, or more of a tensor than its form and elements";
  }
  return "unknown";
}

const char* to_string(NotDifferentiated reason) {
  switch (reason) {
    case NotDifferentiated::kNoText: return "its operator has no gradient formula";
    case NotDifferentiated::kEffects: return "it writes memory or has other effects";
    case NotDifferentiated::kCall: return "it is a call that is not inlined";
    case NotDifferentiated::kCondition: return "its gradient formula does not cover these arguments";
    case NotDifferentiated::kNotRecorded:
      return "its gradient formula could not be recorded from LibTorch's autograd for these arguments";
    case NotDifferentiated::kUnknownDtype: return "the dtype of an operand or a result is not known";
    case NotDifferentiated::kComplex: return "it computes with complex numbers";
    case NotDifferentiated::kHiddenTensor: return "an argument may be a tensor, but is not of that type";
    case NotDifferentiated::kList:
      return "its list of tensors is not made or cut in the same subgraph, for it alone, or their ranks are not known";
    case NotDifferentiated::kVisible:
      return "the caller, or an operator with effects, may see a value that ends its subgraph; too few operators are left";
    case NotDifferentiated::kTooFew: return "its subgraph would have too few operators";
    case NotDifferentiated::kOnlyViews: return "its subgraph would have only views and lists";
    case NotDifferentiated::kNoGradient: return "no gradient reaches an input of its subgraph";
  }
  return "unknown";
}

const char* remedy_for(NotDifferentiated reason) {
  switch (reason) {
    case NotDifferentiated::kNoText: return "add one (docs/adding_an_op.md), or use other operators";
    case NotDifferentiated::kEffects: return "use the functional operator: relu(x), not relu_(x)";
    case NotDifferentiated::kUnknownDtype:
      return "look for an operator before it without a result rule, or a branch that returns tensors of several kinds "
             "(sconce explain --json has the node)";
    case NotDifferentiated::kList: return "build the list in the expression that uses it";
    case NotDifferentiated::kVisible: return "return fewer intermediate results; write none in place";
    case NotDifferentiated::kTooFew:
      return "look at the operators around it, which are outside; the minimum is Options::min_differentiable_nodes";
    case NotDifferentiated::kOnlyViews: return "none: autograd records views at little cost";
    case NotDifferentiated::kCall:
    case NotDifferentiated::kCondition:
    case NotDifferentiated::kNotRecorded:
    case NotDifferentiated::kComplex:
    case NotDifferentiated::kHiddenTensor:
    case NotDifferentiated::kNoGradient: return "";
  }
  return "";
}

}  // namespace sconce
