// PackedWeights: the weights of one operator in the order in which tiles or direct loops read them.
#pragma once

#include "base/patience.h"
#include "kernels/packed/checksums.h"
#include "kernels/packed/tensor_version.h"
#include "plan/prepared/kernel.h"

#include <c10/core/Allocator.h>
#include <c10/util/FunctionRef.h>

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

namespace sconce {

// The elements of a weight and its bias; null for an operator without one.
struct WeightElements {
  const float* weight = nullptr;
  const float* bias = nullptr;
};
WeightElements elements_of(WeightTensors tensors);

// The operators of all frames and plans share one copy for the same weights.
class PackedWeights {
 public:
  // Returns the copy for the operator that `form` describes, and these tensors. If there is none, returns a new one, which
  // the first operator fills, or null if `may_make` is false. The form holds the kind of the operator, and all numbers but
  // sizes of the input.
  static std::shared_ptr<PackedWeights> find(const std::vector<int64_t>& form, WeightTensors tensors, bool may_make);

  // Returns `elements` elements, as `fill` has written them once.
  const float* fill_once(WeightTensors tensors, int64_t elements, c10::function_ref<void(float* packed)> fill);
  // Returns whether no packed element is infinite or NaN. They have been filled.
  bool are_finite() const { return are_finite_; }
  size_t bytes();
  const void* weight_data() const { return versions_.weight_data(); }
  // Return whether the tensors, as WeightVersions::are_still has found them, have the elements that were packed: all of
  // them, or those of some blocks at the position, which moves on.
  bool have_elements_of(WeightTensors tensors);
  bool have_some_elements_of(WeightTensors tensors, int64_t blocks, int64_t& position) const;

  explicit PackedWeights(WeightVersions versions) : versions_(std::move(versions)) {}

 private:
  const WeightVersions versions_;
  std::mutex creating_;
  c10::DataPtr memory_;
  size_t bytes_ = 0;
  bool is_filled_ = false;
  bool are_finite_ = false;
  Checksums weight_;
  Checksums bias_;
};

// Tells that the program has written weights in a way that LibTorch does not count: in its next run, each operator compares
// all of them.
void note_weights_changed();
// Tells the same of one tensor. Other weights are not compared.
void note_written(const at::Tensor& weight);

// Returns how many copies there are.
size_t packed_weights_in_use();
// Returns how many bytes all copies have.
size_t bytes_packed();
// Returns how many bytes the copies of weights have whose elements begin at one of `elements`.
size_t bytes_packed_of(const std::unordered_set<const void*>& elements);

// An operator with packed weights that takes part in a prepared kernel once its weights stay the same from run to run.
// Weights that change, as in training, cost more to pack than a product of theirs gains.
//
//               another operator has packed these weights
//             ┌────────────────────────────────────────────┐
//             │                                            ▼
//   new ──► settling ── the same for `runs_to_pack_` ──► packed
//             ▲  │                                         │
//             │  └── others in 8 runs in a row ──► resting │
//             │                     │ after 256 runs       │
//             └─────────────────────┴─── others ◄──────────┘
//
// Where packed weights change after fewer than 64 runs, the next ones settle for four times as many runs. Weights are the
// same as in the last run if none of these signs says otherwise. Each run asks them in this order:
//
//   sign                            what it sees                                   what a run reads
//   memory, count of writes         writes through LibTorch                        two words
//   16 samples (TensorVersion)      writes through pointers to all elements        16 elements
//   AccumulatorStamp                steps of LibTorch's optimizers, note_written   a pointer
//   count of announced changes      Module::weights_changed                        a word
//   checksums of some blocks        other writes through pointers, in time         a fiftieth of the run's time
//
// If an accumulator or the count of announced changes differs, the run compares the checksums of all blocks. Constants are
// not written, and only the first sign is asked of them.
class PackedOperator {
 public:
  virtual ~PackedOperator() = default;

 protected:
  // Returns whether the weights are packed in this run. `weight`, `bias`: positions of the arguments; a bias that is None,
  // or without a position, is none. Operands that are no weights (KernelArguments::weight) are never packed.
  bool find(const KernelArguments& arguments, size_t weight, std::optional<size_t> bias);
  // Sets the operator's form; see PackedWeights::find.
  void set_form(std::vector<int64_t> form);
  // Sets how many multiplications a run is.
  void set_multiplications(int64_t multiplications);
  // Makes what runs with the packed weights. Returns false if there is no such operator.
  virtual bool make(PackedWeights& packed, WeightTensors tensors) = 0;
  // Undoes `make`.
  virtual void drop() = 0;

 private:
  static constexpr uint64_t kFirstRunsToPack = 2;
  static constexpr uint64_t kMaxRunsToPack = uint64_t{1} << 30;
  static constexpr uint64_t kRunsThatPay = 64;

  // Signs of writes that LibTorch does not count. If they changed, all elements are compared.
  struct WriteStamps {
    AccumulatorStamp weight;
    std::optional<AccumulatorStamp> bias;
    uint64_t changes_announced;  // calls of note_weights_changed

    explicit WriteStamps(WeightTensors tensors);
    bool are_still(WeightTensors tensors) const;
  };
  void forget();
  // Returns whether the weights are those that were looked at last, with the elements that they had.
  bool are_unchanged(WeightTensors tensors, bool are_constants);
  void find_packed(WeightTensors tensors, bool may_pack, bool pages_out);
  bool have_packed_elements(WeightTensors tensors);

  std::vector<int64_t> form_;
  int64_t compared_ = 1;  // blocks of elements that each run compares
  int64_t position_ = 0;  // of the next ones
  std::optional<WeightVersions> versions_;
  std::optional<WriteStamps> stamps_;  // when all elements were compared
  std::shared_ptr<PackedWeights> packed_;
  bool is_made_ = false;
  bool is_refused_ = false;                        // there is no such operator
  Patience patience_{{.losses = 8, .rest = 256}};  // with weights that change in successive runs
  uint64_t runs_ = 0;                              // with these weights, after the first
  uint64_t runs_to_pack_ = kFirstRunsToPack;       // runs before the weights are packed
};

}  // namespace sconce
