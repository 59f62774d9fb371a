// TorchScript functions that other TorchScript may call, each compiled when it is first called.
#pragma once

#include "ir/graph.h"

#include <memory>
#include <string>
#include <string_view>

namespace sconce {

// Thread-safe.
class FunctionLibrary {
 public:
  // `source`: definitions, each of which begins with "def" at the beginning of a line. Text before the first is ignored.
  explicit FunctionLibrary(std::string_view source);
  ~FunctionLibrary();

  // Returns the graph of the library's function `name`, with all calls inlined. Requires that the library has it.
  std::unique_ptr<Graph> graph_of(const std::string& name);

  // Returns the graph of the last function in `source`, which may call the others in it and the library's. All calls are
  // inlined. A source that does not compile is an internal error that names `owner`.
  std::unique_ptr<Graph> compile(std::string_view owner, std::string_view source);

 private:
  class Functions;
  std::shared_ptr<Functions> functions_;
};

// Makes LibTorch's frontend ready, once, which takes 10 ms. A background thread that is the first to use it would make
// static objects that the end of the process destroys before it stops that thread.
void start_frontend();

}  // namespace sconce
