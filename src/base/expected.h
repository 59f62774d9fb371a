// An expected limit: something that cannot be done, and why. It is no error: the caller goes on another way.
// Includes nothing of LibTorch: code that must run where LibTorch is not installed includes this.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace sconce {

// refusal_of (ir/refusal.h) makes one of a node.
struct Refusal {
  std::string reason;  // a full sentence that names the remedy where there is one
  std::string node;    // the node in TorchScript's text, or empty
  std::string source;  // where the node comes from, "model.py:12:8 in Model.forward" and a line for each caller, or empty

  static Refusal because(std::string reason) { return {std::move(reason), {}, {}}; }
};

// "REASON\n  node: …\n  at:   model.py:12:8 in Model.forward"
std::string to_string(const Refusal& refusal);

// Throws c10::Error with "CONTEXT: " and the refusal.
[[noreturn]] void throw_refusal(const std::string& context, const Refusal& refusal);

// A T, or the Refusal that tells why there is none.
template <typename T>
class [[nodiscard]] Expected {
 public:
  Expected(Refusal refusal) : content_(std::move(refusal)) {}  // NOLINT(google-explicit-constructor)
  // From what becomes a T by itself, as a pointer to a derived class does.
  template <typename U = T>
    requires(std::is_convertible_v<U, T> && !std::is_same_v<std::remove_cvref_t<U>, Expected>)
  Expected(U&& value) : content_(std::in_place_index<0>, std::forward<U>(value)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return content_.index() == 0; }
  T& operator*() { return std::get<0>(content_); }
  const T& operator*() const { return std::get<0>(content_); }
  T* operator->() { return &std::get<0>(content_); }
  const T* operator->() const { return &std::get<0>(content_); }
  const Refusal& refusal() const { return std::get<1>(content_); }

  // Returns the value, or throws the refusal as `throw_refusal` does.
  T value_or_throw(const std::string& context) && {
    if (!*this) {
      throw_refusal(context, refusal());
    }
    return std::move(**this);
  }

 private:
  std::variant<T, Refusal> content_;
};

// Success, or the Refusal that tells why there is none.
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
