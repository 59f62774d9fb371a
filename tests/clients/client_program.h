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
  kSetting,      // sets a number that operators of the library read
  kMark,         // has a buffer of the module or of the caller require a gradient, or not
  kClean,        // takes such marks and all gradients of leaves away
  kMode,         // switches an observer, deterministic algorithms, or autocast of calls
};
constexpr int kVerbs = 18;

struct Statement {
  Verb verb;
  std::array<uint32_t, 4> numbers;
};

// What a line of a script does besides computing.
enum class EffectKind : uint8_t {
  // ---- to the autograd state of a tensor
  kMark,
  kUnmark,
  kMarkForAWhile,  // a buffer
  kDetach,
  kRetain,
  kLeaf,    // makes an intermediate that requires a gradient
  kReturn,  // returns the argument, an attribute or an intermediate, too
  // ---- by autograd, within the call
  kInnerGradient,
  kInnerBackward,
  kWithoutGradients,
  // ---- to tensors of the module
  kWriteData,
  kWriteBuffer,
  // ---- to the program
  kWarn,
  kTick,
  kScaled,
  kCounted,
  kPure,
  kNumber,
  kOwnGradient,
  kClass,
  kScope,
};
constexpr int kEffectKinds = 21;

struct Effect {
  uint32_t kind = 0;
  uint32_t place = 0;   // before which statement of the body
  uint32_t target = 0;  // on which tensor
  uint32_t form = 0;
};

// How the module takes its argument.
enum class ArgumentForm : uint8_t { kTensor, kList, kDict };

struct ClientProgram {
  uint32_t model = 0;
  ArgumentForm argument = ArgumentForm::kTensor;
  uint32_t compile = 0;  // when plans are compiled
  uint32_t optimizer = 0;
  uint32_t options = 0;            // of the train step
  uint32_t results = 0;            // what the traced function returns: views, among others
  std::vector<uint32_t> function;  // operations of the traced function, one after the other
  std::vector<uint32_t> loss;      // of the loss function, before the mean
  std::vector<Effect> effects;     // of the module's script
  std::vector<Statement> statements;
};

ClientProgram random_program(uint64_t seed);
std::string text_of(const ClientProgram& program);

}  // namespace sconce::clients
