// A program of a client of sconce, as data: it runs op by op with LibTorch alone, and by sconce.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace sconce::clients {

// The kinds of statements. The numbers of a statement choose its form.
enum class Verb : uint8_t {
  kCall,            // calls the module: with the grad mode, backward and batch size of the numbers
  kTrainStep,       // takes a step: sconce by TrainStep
  kPlainStep,       // takes a step by forward, loss, backward and the optimizer
  kTracedCall,      // calls the function: sconce its trace
  kRefill,          // writes a buffer that calls read, through its pointer
  kWriteParameter,  // in place, through `data()`, through the pointer, or by another storage
  kWriteCaptured,   // writes a tensor that the function reads from outside of its arguments
  kHook,            // registers a hook on a parameter, or removes it
  kFreeze,          // has a parameter require a gradient, or not
  kAttribute,       // sets a number of the module
  kLearningRate,
  kTraining,     // switches the module's mode
  kAnomaly,      // switches anomaly mode
  kWriteResult,  // writes the result of an earlier statement in place
};
constexpr int kVerbs = 14;

struct Statement {
  Verb verb;
  std::array<uint32_t, 4> numbers;
};

struct ClientProgram {
  uint32_t model = 0;
  uint32_t optimizer = 0;
  uint32_t options = 0;            // of the train step
  uint32_t results = 0;            // what the traced function returns: views, among others
  std::vector<uint32_t> function;  // operations of the traced function, one after the other
  std::vector<uint32_t> loss;      // of the loss function, before the mean
  std::vector<Statement> statements;
};

ClientProgram random_program(uint64_t seed);
std::string text_of(const ClientProgram& program);

}  // namespace sconce::clients
