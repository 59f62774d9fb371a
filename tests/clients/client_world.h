// The objects of a client's program, and its statements, run with LibTorch alone or by sconce.
#pragma once

#include "tests/clients/client_functions.h"
#include "tests/clients/client_program.h"

#include <sconce/compiled_backward.h>
#include <sconce/module.h>
#include <sconce/trace.h>
#include <sconce/train_step.h>

#include <torch/csrc/jit/api/module.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sconce::clients {

// The state of a world after a statement.
struct Observed {
  std::string error;                                        // the first line of what the statement threw; empty if nothing
  std::vector<std::pair<std::string, at::Tensor>> tensors;  // each with its name; undefined ones, too
  std::vector<std::pair<std::string, int64_t>> numbers;
};

class World {
 public:
  World(const ClientProgram& program, bool by_sconce);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // `index`: of the statement in the program, which decides the contents of new tensors.
  Observed run(const Statement& statement, size_t index);
  // Returns how many calls a recorded plan served.
  uint64_t runs_by_plan() const;

 private:
  using Numbers = std::array<uint32_t, 4>;

  void do_statement(const Statement& statement, size_t index, Observed& observed);
  void call(const Numbers& numbers, size_t index, Observed& observed);
  void train_step(const Numbers& numbers, size_t index, Observed& observed);
  void plain_step(const Numbers& numbers, size_t index, Observed& observed);
  void traced_call(const Numbers& numbers, size_t index, Observed& observed);
  void write_parameter(const Numbers& numbers);
  void write_captured(const Numbers& numbers);
  void switch_hook(const Numbers& numbers);

  at::Tensor forward(const at::Tensor& x);
  at::Tensor loss_of(const at::Tensor& y, const at::Tensor& target) const;
  std::vector<at::Tensor> function(const std::vector<at::Tensor>& arguments) const;
  void backward(const at::Tensor& value, bool within_scope);
  at::Tensor rows(uint32_t number, size_t index);
  std::vector<at::Tensor> parameters() const;
  void keep(const at::Tensor& result) { results_.push_back(result); }

  const ClientProgram program_;
  const bool by_sconce_;
  torch::jit::Module script_;
  std::optional<Module> module_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  Captured captured_;
  std::optional<TracedFunction> traced_;
  std::optional<BackwardCache> backwards_;
  std::unique_ptr<TrainStep> step_;
  std::vector<at::Tensor> buffers_;   // that calls read, one per number of rows
  std::vector<at::Tensor> results_;   // of earlier statements
  std::map<size_t, unsigned> hooks_;  // by parameter
  std::vector<std::unique_ptr<int64_t>> hook_calls_;
  bool is_anomaly_ = false;
  at::Tensor generator_state_;
};

}  // namespace sconce::clients
