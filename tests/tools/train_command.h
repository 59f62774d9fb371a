// Trainings by the command, on a small classifier with batch norm and dropout.
#pragma once

#include "tests/tools/sconce_program.h"

#include <ATen/core/ivalue.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sconce::tests {

// Writes files that torch.save could have written, and give their paths.
std::string write_values(const ScratchFolder& folder, const std::string& name, const c10::IValue& value);
std::string write_pair(const ScratchFolder& folder, const std::string& name, const c10::IValue& inputs,
                       const c10::IValue& targets);
// Points, float32 [examples, 4], and the nearest of three corners.
std::string write_points(const ScratchFolder& folder, const std::string& name, int64_t examples = 70);
std::string write_classifier(const ScratchFolder& folder, const std::string& name = "classifier.pt");

// Writes a module with these parameters, all of which require gradients, and methods.
std::string write_trainable(const ScratchFolder& folder, const std::string& name,
                            const std::vector<std::pair<std::string, at::Tensor>>& parameters, const std::string& methods);

// The model, its data, and the options that all trainings of this test have.
class TrainCommand : public ::testing::Test {
 protected:
  std::vector<std::string> arguments(const std::string& output, std::vector<std::string> more = {}) const;
  std::vector<std::string> classify(const std::string& output, const std::vector<std::string>& more = {}) const;
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  // Tensors of both models have equal bits.
  void expect_equal_models(const std::string& a, const std::string& b) const;

  const ScratchFolder folder_;
  const std::string model_ = write_classifier(folder_);
  const std::string data_ = write_points(folder_, "points.pt");
};

}  // namespace sconce::tests
