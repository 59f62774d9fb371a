#include "plan/intra_op_threads.h"

#include "plan/caller_share.h"

#include <ATen/Parallel.h>

extern "C" [[gnu::weak]] int MKL_Set_Num_Threads_Local(int threads);  // in libtorch_cpu, if it was built with MKL

// A function of LibTorch's OpenMP runtime. Its header belongs to a compiler's own runtime.
extern "C" void omp_set_num_threads(int count);

namespace sconce {
namespace {

// Both numbers belong to the calling thread. Returns MKL's number before.
int set_threads(int openmp, int mkl) {
  omp_set_num_threads(openmp);
  return MKL_Set_Num_Threads_Local != nullptr ? MKL_Set_Num_Threads_Local(mkl) : 0;
}

}  // namespace

void IntraOpThreads::lower(int most) {
  // Also initializes LibTorch's state of the thread, with its own number of threads.
  const int now = at::get_num_threads();
  if (most < now && !at::in_parallel_region()) {
    before_ = now;
    mkl_before_ = set_threads(most, most);
  }
}

void IntraOpThreads::restore() const { set_threads(before_, mkl_before_); }

void use_one_intra_op_thread() {
  static thread_local const bool done = [] {
    at::get_num_threads();
    set_threads(1, 1);
    CallerShare::leave_out_this_thread();
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace sconce
