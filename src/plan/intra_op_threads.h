// IntraOpThreads: how many threads work inside one operator.
#pragma once

namespace sconce {

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
