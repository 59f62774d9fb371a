// The objects of a client's program, and its statements, run with LibTorch alone or by sconce.
#pragma once

#include "tests/clients/client_functions.h"
#include "tests/clients/client_library.h"
#include "tests/clients/client_program.h"

#include <sconce/compiled_backward.h>
#include <sconce/module.h>
#include <sconce/trace.h>
#include <sconce/train_step.h>

#include <c10/util/Exception.h>
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
  bool is_rounded = false;  // computed in bfloat16
};

// Counts the scripts' warnings.
class ScriptWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { count_ += warning.msg() == "careful" ? 1 : 0; }
  int64_t count() const { return count_; }

 private:
  int64_t count_ = 0;
};

class World {
 public:
  // `nudge`: by how much the parameters are larger, in relation to their size.
  World(const ClientProgram& program, bool by_sconce, double nudge = 0);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // `index`: of the statement in the program, which decides the contents of new tensors.
  Observed run(const Statement& statement, size_t index);
  // Returns how many calls a recorded plan served.
  uint64_t runs_by_plan() const;

 private:
  using Numbers = std::array<uint32_t, 4>;

  // Has the process's state be the world's while `run` of a statement lives.
  class Scope;

  void do_statement(const Statement& statement, size_t index, Observed& observed);
  void call(const Numbers& numbers, size_t index, Observed& observed);
  void train_step(const Numbers& numbers, size_t index, Observed& observed);
  void plain_step(const Numbers& numbers, size_t index, Observed& observed);
  void traced_call(const Numbers& numbers, size_t index, Observed& observed);
  void write_parameter(const Numbers& numbers);
  void write_captured(const Numbers& numbers);
  void switch_hook(const Numbers& numbers);
  void mark(const Numbers& numbers);
  void clean();
  void switch_mode(const Numbers& numbers);
  void observe(Observed& observed) const;
  // Takes gradients, and what counts backward, away after an error: it depends on the order of the engine's nodes which of
  // them have run when one raises.
  void forget_gradients(const Observed& observed);
  // Sets the module's tensors to their first values, and takes gradients away: bfloat16 has rounded them.
  void forget_rounding();
  // Waits for compiles at random, where plans are compiled in the background.
  void wait(size_t index);

  c10::IValue argument_of(const at::Tensor& x) const;
  // Returns what the module does, and has `observed` see the argument and the results.
  c10::IValue forward(const at::Tensor& x, Observed& observed);
  at::Tensor loss_of(const at::Tensor& y, const at::Tensor& target) const;
  std::vector<at::Tensor> function(const std::vector<at::Tensor>& arguments) const;
  void backward(const at::Tensor& value, bool within_scope);
  at::Tensor rows(uint32_t number, size_t index);
  // Returns rows, which may require a gradient by a leaf, which is then observed.
  at::Tensor argument(uint32_t number, uint32_t form, size_t index, Observed& observed);
  std::vector<at::Tensor> parameters() const;
  void keep(const at::Tensor& result) { results_.push_back(result); }

  const ClientProgram program_;
  const bool writes_what_norms_save_;
  const bool by_sconce_;
  const c10::intrusive_ptr<Counter> counter_ = c10::make_intrusive<Counter>();
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
  bool is_observed_ = false;  // by an observer of LibTorch's, which counts scopes
  bool is_deterministic_ = false;
  bool casts_ = false;                    // calls compute in bfloat16
  bool was_rounded_ = false;              // in the statement before
  std::vector<at::Tensor> first_values_;  // of the module's tensors
  LibraryState library_;
  ScriptWarnings warnings_;
  int64_t scopes_ = 0;
  at::Tensor generator_state_;
};

}  // namespace sconce::clients
