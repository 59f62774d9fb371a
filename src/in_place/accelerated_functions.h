// AcceleratedFunctions: the functions of the process that run on sconce.
#pragma once

#include "in_place/accelerated_function.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sconce {

// Holds them weakly: they live as long as the functions of LibTorch's that they belong to. Thread-safe.
class AcceleratedFunctions {
 public:
  static AcceleratedFunctions& get();

  void add(const std::shared_ptr<AcceleratedFunction>& function);
  // Drops what is kept for calls of modules that were destroyed although their classes were not.
  void forget_destroyed();

  // Notes code that is never destroyed. Python keeps the code of every class that it scripts. `module` has such a class.
  void note_immortal_code_of(c10::ivalue::Object& module);
  bool is_immortal(const torch::jit::GraphFunction& function);

  // Returns what `to_json(sconce::status())` does, and {"accelerated": [{"function": ..., "calls": ..., "refusal": ...}]} of
  // the functions that were called.
  std::string status();

 private:
  std::vector<std::shared_ptr<AcceleratedFunction>> all();

  std::mutex mutex_;
  std::vector<std::weak_ptr<AcceleratedFunction>> functions_;
  std::shared_ptr<const torch::jit::CompilationUnit> immortal_;
};

}  // namespace sconce
