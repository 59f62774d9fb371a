// Loads a model, runs its first case and compares with the recorded output.
#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cstdio>

namespace {

bool agree(const c10::IValue& left, const c10::IValue& right) {
  if (left.isTensor() && right.isTensor()) {
    return at::allclose(left.toTensor(), right.toTensor(), /*rtol=*/1e-3, /*atol=*/1e-4);
  }
  if (left.isTuple() && right.isTuple()) {
    const auto &l = left.toTupleRef().elements(), &r = right.toTupleRef().elements();
    return l.size() == r.size() && std::equal(l.begin(), l.end(), r.begin(), agree);
  }
  if (left.isList() && right.isList()) {
    const auto l = left.toListRef(), r = right.toListRef();
    return l.size() == r.size() && std::equal(l.begin(), l.end(), r.begin(), agree);
  }
  return left == right;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL CASES\n", argv[0]);
    return 2;
  }
  sconce::Module model = sconce::load(argv[1]);

  const torch::jit::Module cases = torch::jit::load(argv[2]);
  const c10::IValue inputs = cases.attr("inputs").toList().get(0);
  const c10::IValue expected = cases.attr("outputs").toList().get(0);
  const c10::IValue output = model.forward(inputs.toTupleRef().elements().vec());

  const bool same = agree(output, expected);
  std::printf("%s: %s\n", argv[1], same ? "as recorded" : "differs from what was recorded");
  return same ? 0 : 1;
}
