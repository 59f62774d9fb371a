// Loads a model, runs its first case and compares with the recorded output.
#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL CASES\n", argv[0]);
    return 2;
  }
  sconce::Module model = sconce::load(argv[1]);

  torch::jit::Module cases = torch::jit::load(argv[2]);
  const c10::IValue inputs = cases.attr("inputs").toListRef()[0];
  const c10::IValue expected = cases.attr("outputs").toListRef()[0];
  const c10::IValue output = model.forward(inputs.toTupleRef().elements().vec());

  const bool same =
      at::allclose(output.toTensor(), expected.toTensor(), /*rtol=*/1e-3, /*atol=*/1e-4);
  std::printf("%s: %s\n", argv[1], same ? "as recorded" : "differs from what was recorded");
  return same ? 0 : 1;
}
