// An expected limit: something that cannot be done, and why. Not an error: the caller goes on another way.
#pragma once

#include "ir/source.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace sconce {

class Node;

struct Refusal {
  std::string reason;          // a full sentence that names the remedy where there is one
  std::string node;            // the node in TorchScript's text, or empty
  SourceLocationPtr location;  // where the node comes from, may be null

  static Refusal of(const Node& node, std::string reason);
  static Refusal because(std::string reason) { return {std::move(reason), {}, nullptr}; }
};

// "REASON\n  node: …\n  at:   model.py:12:8 in Model.forward"
std::string to_string(const Refusal& refusal);

// A T, or the Refusal that tells why there is none.
template <typename T>
class Expected {
 public:
  Expected(T value) : content_(std::move(value)) {}            // NOLINT(google-explicit-constructor)
  Expected(Refusal refusal) : content_(std::move(refusal)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return content_.index() == 0; }
  T& operator*() { return std::get<0>(content_); }
  const T& operator*() const { return std::get<0>(content_); }
  T* operator->() { return &std::get<0>(content_); }
  const Refusal& refusal() const { return std::get<1>(content_); }

 private:
  std::variant<T, Refusal> content_;
};

}  // namespace sconce
