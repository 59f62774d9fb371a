// A library with a custom class: a list of neighbors in C++, as packages for molecular dynamics bring along.
#include <torch/custom_class.h>
#include <torch/library.h>
#include <torch/script.h>

#include <cstdint>
#include <vector>

namespace {

template <typename T>
std::vector<int64_t> pairs_within(const at::Tensor& positions, double cutoff, std::vector<int64_t>& second) {
  std::vector<int64_t> first;
  const int64_t atoms = positions.size(0);
  const T* x = positions.const_data_ptr<T>();
  for (int64_t i = 0; i < atoms; ++i) {
    for (int64_t j = 0; j < atoms; ++j) {
      const double dx = x[3 * i] - x[3 * j];
      const double dy = x[3 * i + 1] - x[3 * j + 1];
      const double dz = x[3 * i + 2] - x[3 * j + 2];
      if (i != j && dx * dx + dy * dy + dz * dz < cutoff * cutoff) {
        first.push_back(i);
        second.push_back(j);
      }
    }
  }
  return first;
}

class NeighborList : public torch::CustomClassHolder {
 public:
  NeighborList() = default;
  explicit NeighborList(int64_t builds) : builds_(builds) {}

  // Returns the pairs of different atoms within the cutoff, int64 [2, E], ordered by the first atom.
  at::Tensor compute(const at::Tensor& positions, double cutoff) {
    TORCH_CHECK(positions.dim() == 2 && positions.size(1) == 3, "NeighborList: positions must be [N, 3]");
    const at::Tensor dense = positions.detach().contiguous();
    std::vector<int64_t> second;
    const std::vector<int64_t> first = dense.scalar_type() == at::kDouble ? pairs_within<double>(dense, cutoff, second)
                                                                          : pairs_within<float>(dense, cutoff, second);
    const auto edges = static_cast<int64_t>(first.size());
    at::Tensor result = at::empty({2, edges}, at::kLong);
    auto* out = result.mutable_data_ptr<int64_t>();
    std::copy(first.begin(), first.end(), out);
    std::copy(second.begin(), second.end(), out + edges);
    ++builds_;
    return result;
  }

  int64_t builds() const { return builds_; }

 private:
  int64_t builds_ = 0;
};

}  // namespace

TORCH_LIBRARY(potentials, m) {
  m.class_<NeighborList>("NeighborList")
      .def(torch::init<>())
      .def("compute", &NeighborList::compute)
      .def("builds", &NeighborList::builds)
      .def_pickle([](const c10::intrusive_ptr<NeighborList>& self) -> int64_t { return self->builds(); },
                  [](int64_t builds) { return c10::make_intrusive<NeighborList>(builds); });
}
