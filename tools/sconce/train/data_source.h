// The examples of a training.
#pragma once

#include "tools/sconce/values/rows.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

namespace sconce::cli {

struct TrainBatch {
  std::vector<c10::IValue> inputs;   // the arguments of the model, tensors whose first dimension counts the examples
  std::vector<c10::IValue> targets;  // likewise

  int64_t examples() const { return targets.front().toTensor().size(0); }
};

// One thread at a time may read.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual int64_t examples() const = 0;
  virtual size_t inputs() const = 0;
  virtual size_t targets() const = 0;
  // Reads the examples with these numbers (int64, one dimension), in this order. Throws UserError with one line that begins
  // with the path if a file cannot be read.
  virtual TrainBatch read(const at::Tensor& numbers) const = 0;
};

// Reads examples, and copies them to the device.
TrainBatch read_to(const DataSource& data, const at::Tensor& numbers, c10::Device device);

// Files that the user names: "data.pt", several with commas between, or a pattern, "shards/*.safetensors".
struct DataFiles {
  std::vector<std::string> data;     // one; of .npy files, one for each argument of the model
  std::vector<std::string> targets;  // of .npy files, one for each target; else none
  // Files of torch.save with more bytes than this together are read when they are needed.
  uint64_t most_in_memory = uint64_t{256} << 20;
};

// `option`: "--data" or "--validation", for messages. Throws UserError, or c10::Error from the loader, with one line that
// begins with the path or the option.
std::shared_ptr<const DataSource> open_data(const DataFiles& files, const std::string& option);

// Divides the examples into two parts, at random as the seed says. `share` of them, rounded, are the second part. Throws
// UserError if a part has no example.
struct SplitData {
  std::shared_ptr<const DataSource> training;
  std::shared_ptr<const DataSource> validation;
};
SplitData split_data(std::shared_ptr<const DataSource> data, double share, uint64_t seed);

}  // namespace sconce::cli
