// Refusals and Expected. A refusal is an expected limit: something that cannot be done, with the reason. It is not an
// error: the caller continues in another way. Includes no LibTorch, for code that runs where LibTorch is not
// installed.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace sconce {

// refusal_of (ir/refusal.h) makes a refusal about a node.
struct Refusal {
  std::string reason;  // a full sentence that names the remedy where there is one
  std::string node;    // the node in TorchScript's text, or empty
  std::string source;  // where the node comes from, "model.py:12:8 in Model.forward" and a line for each caller, or empty

  static Refusal because(std::string reason) { return {std::move(reason), {}, {}}; }
};

// Returns "REASON\n  node: …\n  at:   model.py:12:8 in Model.forward".
std::string to_string(const Refusal& refusal);

// Throws c10::Error with "CONTEXT: " and the refusal.
[[noreturn]] void throw_refusal(const std::string& context, const Refusal& refusal);

// A T, or the Refusal that says why there is none.
template <typename T>
class [[nodiscard]] Expected {
 public:
  Expected(Refusal refusal) : content_(std::move(refusal)) {}  // NOLINT(google-explicit-constructor)
  // From a value that converts to T implicitly, such as a pointer to a derived class.
  template <typename U = T>
    requires(std::is_convertible_v<U, T> && !std::is_same_v<std::remove_cvref_t<U>, Expected>)
  Expected(U&& value) : content_(std::in_place_index<0>, std::forward<U>(value)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return content_.index() == 0; }
  T& operator*() { return std::get<0>(content_); }
  const T& operator*() const { return std::get<0>(content_); }
  T* operator->() { return &std::get<0>(content_); }
  const T* operator->() const { return &std::get<0>(content_); }
  const Refusal& refusal() const { return std::get<1>(content_); }

  // Returns the value, or throws the refusal like `throw_refusal`.
  T value_or_throw(const std::string& context) && {
    if (!*this) {
      throw_refusal(context, refusal());
    }
    return std::move(**this);
  }

 private:
  std::variant<T, Refusal> content_;
};

// Success, or the Refusal that says why not.
template <>
class [[nodiscard]] Expected<void> {
 public:
  Expected() = default;
  Expected(Refusal refusal) : refusal_(std::move(refusal)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return !refusal_; }
  const Refusal& refusal() const { return refusal_.value(); }
  void value_or_throw(const std::string& context) const {
    if (refusal_) {
      throw_refusal(context, *refusal_);
    }
  }

 private:
  std::optional<Refusal> refusal_;
};

}  // namespace sconce
