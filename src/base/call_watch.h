// CallWatch: sees the effects of a call that no operator of LibTorch has.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <mutex>
#include <string>

namespace sconce {

// While a thread includes this key, each operator that it calls, composed ones too, is seen above autograd before it runs
// (trace/tracer.cpp). Plans do not depend on it.
constexpr c10::DispatchKey kWatchKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// A watch sees effects on its thread that a recording of operators would lose: methods of custom classes, operators of
// libraries, prints, saves and warnings. Code that has such an effect reports it with `note`. Watches nest, and each one
// sees everything that the inner ones see. Warnings still reach the program's handler.
class CallWatch {
 public:
  enum class AtEffect : uint8_t { kNote, kRaise };

  // `at_effect`: whether code that is about to have an effect on this thread raises c10::Error instead.
  explicit CallWatch(AtEffect at_effect = AtEffect::kNote);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  // Reports an effect to the watches of this thread, before it. `what` is a verb with its object: "prints".
  static void note(const std::string& what);
  // Does the same for an effect that a recording keeps, but only if a watch of this thread raises.
  static void note_kept(const std::string& what);
  // Reports an effect to the watches of all threads, for a thread that may work for any of them.
  static void note_for_all(const std::string& what);
  static bool is_on();

  // Returns the first effect as a reason ("it prints"). Empty if there was none.
  std::string seen() const;
  // Returns whether the call warned. A warning may be one that is given once in a process.
  bool has_warned() const { return warnings_.has_warned; }

 private:
  class Warnings final : public c10::WarningHandler {
   public:
    void process(const c10::Warning& warning) override;
    c10::WarningHandler* outer = nullptr;
    bool has_warned = false;
  };

  void see(const std::string& what);
  static bool raises();

  CallWatch* const outer_;
  const AtEffect at_effect_;
  const c10::impl::IncludeDispatchKeyGuard include_{kWatchKey};
  Warnings warnings_;
  mutable std::mutex mutex_;  // guards what follows
  std::string seen_;
};

}  // namespace sconce
