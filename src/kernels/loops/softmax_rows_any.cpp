// The loops with vectors of 4 elements, which every processor has, or computes by other instructions.
#include "kernels/loops/softmax_rows.h"

namespace sconce {
namespace {

// Not to be taken for the code of another file in the same unit of a unity build.
namespace softmax_rows_any {
constexpr int kLanes = 4;
#include "kernels/loops/vectors_code.h"

#include "kernels/loops/softmax_rows_code.h"
}  // namespace softmax_rows_any

}  // namespace

extern const SoftmaxRows kSoftmaxRowsAny;
constinit const SoftmaxRows kSoftmaxRowsAny = softmax_rows_any::make_softmax_rows();

}  // namespace sconce
