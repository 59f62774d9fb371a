// An operator library as a user would build one, for --ops-library.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <vector>

namespace {

std::vector<at::Tensor>& kept() {
  static std::vector<at::Tensor> tensors;
  return tensors;
}

}  // namespace

// Some operators keep what they get: a tap, a queue.
TORCH_LIBRARY(sconce_test, library) {
  library.def("twice(Tensor x) -> Tensor", [](const at::Tensor& x) { return x * 2; }, {at::Tag::pt2_compliant_tag});
  library.def("tap(Tensor x) -> int", [](const at::Tensor& x) {
    kept().push_back(x);
    return static_cast<int64_t>(kept().size());
  });
  library.def("tap_all(Tensor[] x) -> int", [](at::TensorList x) {
    kept().insert(kept().end(), x.begin(), x.end());
    return static_cast<int64_t>(kept().size());
  });
  library.def("tapped(int index) -> Tensor", [](int64_t index) { return kept().at(static_cast<size_t>(index)); });
  library.def("clear() -> ()", [] { kept().clear(); });
}
