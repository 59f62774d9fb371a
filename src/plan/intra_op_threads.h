// IntraOpThreads: how many threads work inside one operator.
#pragma once

#include <algorithm>

namespace sconce {

// How many threads an operator of a plan may use.
struct IntraOpLimit {
  // `share`: what CallerShare leaves to the call. Returns 0 if there is no limit.
  int with(int share) const {
    if (!shares_cores || share == 0) {
      return most;
    }
    return most == 0 ? share : std::min(most, share);
  }

  int most = 0;              // 0: as many as LibTorch's
  bool shares_cores = true;  // with other callers; sums of LibTorch have other bits with another number of threads
};

// Lets operators that this thread runs, LibTorch's and sconce's, use at most so many threads while the object lives; 0: as
// many as before. It only lowers the number, and affects no other thread of the program. Within a parallel region it changes
// nothing.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int most) {
    if (most > 0) {
      lower(most);
    }
  }
  ~IntraOpThreads() {
    if (before_ > 0) {
      restore();
    }
  }
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

 private:
  void lower(int most);
  void restore() const;

  int before_ = 0;      // 0: nothing was changed
  int mkl_before_ = 0;  // as MKL_Set_Num_Threads_Local returned it
};

// Lets operators on this thread use no other threads from now on. For threads that run beside their caller: a team of
// threads in each of them would slow the others down.
void use_one_intra_op_thread();

}  // namespace sconce
