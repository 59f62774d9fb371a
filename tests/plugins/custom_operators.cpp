// An operator library as a user would build one, for --ops-library.
#include <ATen/ATen.h>
#include <torch/library.h>

TORCH_LIBRARY(sconce_test, library) {
  library.def("twice(Tensor x) -> Tensor", [](const at::Tensor& x) { return x * 2; });
}
