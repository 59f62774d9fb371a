#include "tests/clients/client_program.h"

#include "tests/clients/client_functions.h"
#include "tests/clients/client_script.h"

#include <random>

namespace sconce::clients {
namespace {

constexpr std::array<const char*, kVerbs> kNames = {
    "call",           "train_step",   "plain_step", "traced_call", "refill",        "write_parameter",
    "write_captured", "hook",         "freeze",     "attribute",   "learning_rate", "training",
    "anomaly",        "write_result", "setting",    "mark",        "clean",         "mode"};

}  // namespace

ClientProgram random_program(uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto number = [&] { return static_cast<uint32_t>(engine()); };
  const auto chain = [&](uint32_t most) {
    std::vector<uint32_t> operations(1 + number() % most);
    for (uint32_t& operation : operations) {
      operation = number() % (number() % 6 == 0 ? operation_count() : recordable_operation_count());
    }
    return operations;
  };
  ClientProgram program;
  program.model = number();
  program.optimizer = number();
  program.options = number();
  program.results = number();
  program.compile = number();
  const uint32_t form = number() % 8;
  program.argument = form == 0 ? ArgumentForm::kList : form == 1 ? ArgumentForm::kDict : ArgumentForm::kTensor;
  constexpr std::array kEffects = {0, 0, 0, 1, 1, 1, 2, 2, 3, 4};
  for (int i = kEffects[number() % kEffects.size()]; i > 0; --i) {
    // Half of them leave the call recordable.
    const uint32_t kinds = number() % 2 == 0 ? static_cast<uint32_t>(EffectKind::kWarn) : kEffectKinds;
    program.effects.push_back({number() % kinds, number(), number(), number()});
  }
  program.function = chain(5);
  program.loss = chain(3);
  const uint32_t calls = number() % 3 == 0 ? 65 : 12;  // of 100 statements
  const uint32_t length = 8 + number() % 36;
  for (uint32_t i = 0; i < length; ++i) {
    // Calls are frequent: a plan is made in the second or third call of a kind.
    const uint32_t choice = number() % 100;
    const auto disturbance = static_cast<Verb>(4 + number() % (kVerbs - 4));
    const bool lasts = disturbance == Verb::kAnomaly || disturbance == Verb::kHook || disturbance == Verb::kFreeze ||
                       disturbance == Verb::kMark || disturbance == Verb::kMode;
    const Verb verb = choice < calls                            ? Verb::kCall
                      : choice < calls + (88 - calls) * 33 / 76 ? Verb::kTrainStep
                      : choice < calls + (88 - calls) * 40 / 76 ? Verb::kPlainStep
                      : choice < 82                             ? Verb::kTracedCall
                      : lasts && number() % 3 != 0              ? Verb::kRefill
                                                                : disturbance;
    program.statements.push_back({verb, {number(), number(), number(), number()}});
  }
  return program;
}

std::string text_of(const ClientProgram& program) {
  const auto chain = [](const std::vector<uint32_t>& operations) {
    std::string text;
    for (const uint32_t operation : operations) {
      text += "\n    " + operation_name(operation);
    }
    return text;
  };
  std::string text = "model " + std::to_string(program.model) + ", optimizer " + std::to_string(program.optimizer) +
                     ", options " + std::to_string(program.options) + ", results " + std::to_string(program.results % 8) +
                     ", compile " + std::to_string(program.compile) + "\n" + script_of(program) +
                     "  traced function:" + chain(program.function) + "\n  loss:" + chain(program.loss);
  for (const Statement& statement : program.statements) {
    text += std::string("\n  ") + kNames[static_cast<size_t>(statement.verb)];
    for (const uint32_t number : statement.numbers) {
      text += " " + std::to_string(number);
    }
  }
  return text;
}

}  // namespace sconce::clients
