// Remembers what was found out about a schema.
#pragma once

#include <ATen/core/function_schema.h>

#include <string>
#include <unordered_map>

namespace sconce {

// To ask LibTorch's registries about an operator is a search by name; a graph asks the same of thousands of nodes. Not
// thread-safe: make it thread_local.
template <typename T>
class PerSchema {
 public:
  template <typename Find>
  const T& get(const c10::FunctionSchema& schema, const Find& find) {
    const auto [entry, is_new] = found_.try_emplace(&schema);
    // A library's operators can be taken out of the registry, and others come to lie at the place of their schemas.
    if (is_new || entry->second.name != schema.operator_name()) {
      entry->second = {schema.operator_name(), find(schema)};
    }
    return entry->second.value;
  }

 private:
  struct Entry {
    c10::OperatorName name{"", ""};
    T value{};
  };
  std::unordered_map<const c10::FunctionSchema*, Entry> found_;
};

}  // namespace sconce
