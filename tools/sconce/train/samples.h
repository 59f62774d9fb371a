// Samples of a training: a few examples with what the trained model makes of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sconce::cli {

// The tensors are on the CPU, without the dimension that counts examples.
struct Sample {
  int64_t number = 0;  // in the data
  double loss = 0;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> targets;
  std::vector<at::Tensor> results;
};

struct Samples {
  bool are_of_validation = false;
  int64_t examples = 0;         // that they were chosen from
  std::vector<Sample> samples;  // the lowest losses, then the highest ones, in order
  std::string why_none;
};

// Returns a result for one example: a tensor, or a tuple or list of tensors, whose first dimension is 1. Throws UserError if
// it has no first dimension of this size.
c10::IValue result_of_example(const c10::IValue& output, int64_t example, int64_t examples);

// Chooses those with the lowest and the highest losses.
Samples best_and_worst(std::vector<Sample> examples);

// Returns a part of a page. Images are drawn, and sequences of integers shown as the tokens of the vocabulary, which may be
// empty.
std::string samples_html(const Samples& samples, const std::vector<std::string>& vocabulary);

// The CSS of this part.
extern const char* const kSamplesStyle;

// Reads a file with one token in each line. Throws UserError if there is none.
std::vector<std::string> read_vocabulary(const std::string& path);

}  // namespace sconce::cli
