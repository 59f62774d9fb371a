// What `sconce run --output` writes, read by Python and by sconce.
#include "tools/sconce/values/torch_file.h"

#include "tests/support/graphs.h"
#include "tests/tools/sconce_program.h"

#include "load/load_module.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Lists of every kind, dicts, tuples, and a view that shares its storage.
const char* const kContainers = R"(
def forward(self, x: Tensor) -> Tuple[Dict[str, Tensor], List[int], List[float], List[bool], List[str], Dict[int, List[Tensor]], Optional[int], List[List[int]]]:
    y = x + 1
    none: Optional[int] = None
    return {"a": y, "b": y[0]}, [1, 2], [1.5], [True], ["s"], {3: [y]}, none, [[1], [2, 3]]
)";

TEST(TorchFile, IsReadByTorchLoadWithItsDefaults) {
  const char* folder = std::getenv("SCONCE_TESTS_DIR");
  const std::filesystem::path tests = std::filesystem::absolute(folder != nullptr ? folder : "tests").lexically_normal();
  const std::filesystem::path python = tests.parent_path() / "build/venv/bin/python";
  if (!std::filesystem::exists(python)) {
    GTEST_SKIP() << python << " is missing: no Python with torch (make setup installs it)";
  }
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "model.pt", kContainers);
  const std::string file = scratch.path() + "/result.pt";
  ASSERT_EQ(sconce({"run", model, "--input", "float32[2,3]=ones", "--output", file}).exit_code, 0);
  const std::string script = scratch.write("read.py",
                                           "import sys, torch\n"
                                           "result = torch.load(sys.argv[1])\n"
                                           "tensors, *plain = result\n"
                                           "assert torch.equal(tensors['a'], torch.full((2, 3), 2.0)), tensors\n"
                                           "assert tensors['a'].data_ptr() == tensors['b'].data_ptr()\n"
                                           "assert plain.pop(4)[3][0].data_ptr() == tensors['a'].data_ptr()\n"
                                           "print(plain)\n");
  const ProgramResult read = run_program(python.string(), {script, file}, {});
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_EQ(read.out, "[[1, 2], [1.5], [True], ['s'], None, [[1], [2, 3]]]\n");
}

// Without the gradient of the weight and that of the bias.
const char* const kUndefined = R"(
def forward(self, x: Tensor):
    found = torch.convolution_backward(x, x, x, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, False])
    return found[1], [found[0], found[2]], {"weight": found[1]}
)";

TEST(TorchFile, HasNoneForUndefinedTensors) {
  const ScratchFolder scratch;
  const std::string file = scratch.path() + "/result.pt";
  const ProgramResult written =
      sconce({"run", write_model(scratch, "model.pt", kUndefined), "--input", "float32[1,1,1,1]=ones", "--output", file});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const auto read = load_arguments(file);
  ASSERT_EQ(read.size(), 3U);
  EXPECT_TRUE(read[0].isNone());
  EXPECT_TRUE(at::equal(read[1].toListRef()[0].toTensor(), at::ones({1, 1, 1, 1})));
  EXPECT_TRUE(read[1].toListRef()[1].isNone());
  EXPECT_TRUE(read[2].toGenericDict().at("weight").isNone());
  EXPECT_NE(cli::torch_file(at::Tensor()).size(), 0U);
}

// As Python reads it: a call that writes one argument may change another.
TEST(TorchFile, KeepsWhichTensorsShareMemory) {
  const ScratchFolder scratch;
  const at::Tensor all = at::zeros({6});
  const std::vector<char> bytes =
      cli::torch_file(c10::ivalue::Tuple::create({all.slice(0, 0, 4), all.slice(0, 2), all.clone()}));
  const std::string arguments = scratch.write("arguments.pt", std::string(bytes.begin(), bytes.end()));
  const auto read = load_arguments(arguments);
  ASSERT_EQ(read.size(), 3U);
  EXPECT_TRUE(read[0].toTensor().is_alias_of(read[1].toTensor()));
  EXPECT_FALSE(read[0].toTensor().is_alias_of(read[2].toTensor()));
  const std::string model = write_model(scratch, "model.pt", R"(
def forward(self, a, b, c):
    a.add_(1)
    return b
)");
  const ProgramResult result = sconce({"run", model, "--inputs", arguments});
  EXPECT_THAT(result.out, HasSubstr("1, 1, 0, 0")) << result.err;
}

TEST(TorchFile, NamesNothingThatTorchLoadRefuses) {
  const std::vector<char> bytes = cli::torch_file(c10::ivalue::Tuple::create(
      {c10::List<int64_t>({1, 2}), c10::List<double>({1.5}), c10::List<at::Tensor>({at::ones({2})})}));
  EXPECT_THAT(std::string(bytes.begin(), bytes.end()), Not(HasSubstr("torch.jit")));
}

TEST(TorchFile, IsReadBackAsArguments) {
  const ScratchFolder scratch;
  const at::Tensor tensor = at::rand({2, 3});
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("view", tensor[1]);
  const std::vector<char> bytes =
      cli::torch_file(c10::ivalue::Tuple::create({tensor, c10::List<int64_t>({1, 2}), dict, c10::IValue()}));
  const auto read = load_arguments(scratch.write("arguments.pt", std::string(bytes.begin(), bytes.end())));
  ASSERT_EQ(read.size(), 4U);
  EXPECT_TRUE(at::equal(read[0].toTensor(), tensor));
  EXPECT_EQ(read[1].toListRef()[1].toInt(), 2);
  const at::Tensor view = read[2].toGenericDict().at("view").toTensor();
  EXPECT_TRUE(at::equal(view, tensor[1]));
  EXPECT_TRUE(view.is_alias_of(read[0].toTensor()));
  EXPECT_TRUE(read[3].isNone());
}

}  // namespace
}  // namespace sconce::tests
