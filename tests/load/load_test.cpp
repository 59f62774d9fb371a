// Reading files, converting what LibTorch's loader gives, the functions of a program, the texts of rows.
#include "tests/support/graphs.h"
#include "tests/support/zip_writer.h"

#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "load/check/archive.h"
#include "load/compile_op_row.h"
#include "load/convert.h"
#include "load/function_table.h"
#include "load/load_module.h"

#include <sconce/module.h>

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace sconce {
namespace {

using ::testing::AllOf;
using testing::find_node;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;
using ::testing::StartsWith;

std::string bad(const std::string& name) { return testing::models_dir() + "/bad/" + name; }

// ---- files ----------------------------------------------------------------------------------------------------------

TEST(Load, EveryFileThatIsNoModelGivesOneLineThatBeginsWithItsPathAndSaysWhatItIs) {
  const std::vector<std::pair<std::string, const char*>> files = {
      {bad("no_such_file.pt"), "no such file"},
      {bad(""), "is a directory, not a TorchScript model"},
      {bad("empty.pt"), "the file is empty"},
      {bad("text.pt"), "not a TorchScript model (it is not a zip file)"},
      {bad("truncated.pt"), "truncated or damaged"},
      {bad("truncated_by_one_byte.pt"), "truncated or damaged"},
      {bad("state_dict.pt"), "written by torch.save, not a TorchScript model"},
      {bad("tensor.pt"), "written by torch.save, not a TorchScript model"},
      {bad("zip.pt"), ""},
      {bad("flipped_start.pt"), ""},
      {bad("flipped_directory.pt"), ""},
      {bad("flipped_pickle.pt"), "damaged"},
      {bad("flipped_code.pt"), "damaged"},
  };
  for (const auto& [path, says] : files) {
    const std::string message = message_of([path = path] { load(path); });
    EXPECT_THAT(message, AllOf(StartsWith(path + ": "), HasSubstr(says))) << path;
    EXPECT_THAT(message, Not(HasSubstr("\n"))) << path;
    EXPECT_THAT(message, Not(HasSubstr("Exception raised from"))) << path;
  }
}

TEST(Load, AcceptsEveryModelOfTheSuite) {
  size_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::models_dir())) {
    const std::string path = entry.path();
    if (path.ends_with(".pt") && !path.ends_with(".cases.pt")) {
      EXPECT_NO_THROW(check_archive(path)) << path;
      ++models;
    }
  }
  EXPECT_GT(models, 20);
}

TEST(Load, TakesModelsOfAnyNameAndTensorsWithoutData) {
  const auto folder = std::filesystem::temp_directory_path() / ("sconce-load-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = (folder / "mod\u00E8le \u6A21\u578B.pt").string();
  testing::module_of("def forward(self, x):\n    return self.w + x\n", {{"w", at::ones({2, 3}, at::kMeta)}}).save(path);
  const c10::IValue result = load(path).forward({at::ones({3}, at::kMeta)});
  EXPECT_TRUE(result.toTensor().is_meta());
  EXPECT_EQ(result.toTensor().sizes(), at::IntArrayRef({2, 3}));
  EXPECT_THAT(message_of([&] { load(path, Options().device("cpu")); }),
              AllOf(StartsWith(path + ": has tensors on the meta device"), HasSubstr("come to cpu")));
  std::filesystem::remove_all(folder);
}

TEST(Load, SaysThatAFileIsOfTorchExport) {
  const auto path = std::filesystem::temp_directory_path() / ("sconce-load-" + std::to_string(getpid()) + ".pt2");
  {
    caffe2::serialize::PyTorchStreamWriter writer(path.string());
    writer.writeRecord("archive_format", "pt2", 3);
    writer.writeRecord("models/model.json", "{}", 2);
    writer.writeEndOfFile();
  }
  const std::string expected = path.string() + ": written by torch.export, not ";
  EXPECT_EQ(message_of([&] { load(path.string()); }),
            expected + "a TorchScript model; write the model with torch.jit.script(model).save(path)");
  EXPECT_THAT(message_of([&] { load_arguments(path.string()); }), StartsWith(expected + "a file of arguments; "));
  std::filesystem::remove(path);
}

TEST(LoadArguments, GivesTheElementsOfATupleAndASingleValueAsOne) {
  const std::string inputs = testing::models_dir() + "/inputs/";
  const auto tuple = load_arguments(inputs + "mlp.inputs.pt");
  ASSERT_EQ(tuple.size(), 1);
  EXPECT_TRUE(tuple[0].isTensor());
  const auto single = load_arguments(inputs + "mlp_tensor.inputs.pt");
  ASSERT_EQ(single.size(), 1);
  EXPECT_TRUE(single[0].isTensor());
  EXPECT_EQ(load_arguments(inputs + "none_and_optional.inputs.pt").size(), 4);
}

TEST(LoadArguments, SaysWhatIsWrongWithAFile) {
  for (const char* name : {"no_such_file.pt", "empty.pt", "text.pt", "truncated.pt"}) {
    const std::string message = message_of([&] { load_arguments(bad(name)); });
    EXPECT_THAT(message, StartsWith(bad(name) + ": ")) << name;
    EXPECT_THAT(message, Not(HasSubstr("\n"))) << name;
  }
  EXPECT_THAT(message_of([] { load_arguments(testing::models_dir()); }),
              HasSubstr("is a directory, not a file of arguments"));
}

TEST(Load, AVersionOfTheFormatThatLibTorchDoesNotReadIsNamed) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "version.pt";
  const auto load_with_version = [&](const std::string& version) {
    testing::ZipContents contents = testing::read_zip(testing::models_dir() + "/mlp.pt");
    for (auto& [name, content] : contents) {
      content = name.ends_with("/version") ? version : content;
    }
    std::ofstream(path, std::ios::binary) << testing::write_zip(contents);
    load(path.string());
  };
  const auto message_of_version = [&](const std::string& version) {
    return message_of([&] { load_with_version(version); });
  };
  EXPECT_NO_THROW(load_with_version("3\n"));
  EXPECT_THAT(message_of_version("11\n"), HasSubstr("written in version 11 of the format, of which LibTorch"));
  EXPECT_THAT(message_of_version("0"), HasSubstr("reads 1 to 10"));
  EXPECT_THAT(message_of_version("x3"), HasSubstr("/version' is malformed: it does not begin with a number"));
  std::filesystem::remove(path);
}

// ---- conversion -----------------------------------------------------------------------------------------------------

struct Compiled {
  explicit Compiled(const std::string& source) { unit.define(std::nullopt, source, torch::jit::nativeResolver(), nullptr); }
  torch::jit::Graph& theirs() { return *torch::jit::toGraphFunction(unit.get_function("f")).graph(); }
  torch::jit::CompilationUnit unit;
};

// Node by node, block by block.
void expect_same_structure(torch::jit::Block& theirs, const Block& ours) {
  ASSERT_EQ(theirs.inputs().size(), ours.params().size());
  ASSERT_EQ(theirs.outputs().size(), ours.returns().size());
  const Node* node = ours.first();
  for (torch::jit::Node* their_node : theirs.nodes()) {
    ASSERT_NE(node, nullptr);
    EXPECT_EQ(node->kind(), their_node->kind());
    EXPECT_EQ(node->schema(), their_node->maybeSchema()) << "the same schema, not one that is equal";
    ASSERT_EQ(node->outputs().size(), their_node->outputs().size());
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      if (their_node->outputs()[i]->hasDebugName()) {
        EXPECT_EQ(node->output(i)->name(), their_node->outputs()[i]->debugName());
      }
      EXPECT_EQ(*node->output(i)->type(), *their_node->outputs()[i]->type());
    }
    ASSERT_EQ(node->inputs().size(), their_node->inputs().size());
    ASSERT_NE(node->location(), nullptr);
    ASSERT_NE(node->location()->range(), nullptr);
    EXPECT_EQ(node->location()->range()->start(), their_node->sourceRange().start());
    ASSERT_EQ(node->blocks().size(), their_node->blocks().size());
    for (size_t i = 0; i < node->blocks().size(); ++i) {
      expect_same_structure(*their_node->blocks()[i], *node->block(i));
    }
    node = node->next();
  }
  EXPECT_EQ(node, nullptr);
}

const char* const kSource = R"(
def f(x: Tensor, n: int, names: List[str]) -> Tuple[Tensor, int]:
    total = 0
    for i in range(n):
        if len(names) > i:
            x = torch.relu(x) * 1.5
            total += i
        else:
            x = x.add_(1)
    return x.neg(), total
)";

TEST(Convert, KeepsEveryNodeNameTypeSchemaAndPlace) {
  Compiled compiled(kSource);
  const auto graph = convert(compiled.theirs());
  ASSERT_TRUE(graph);
  EXPECT_TRUE(find_violations(**graph).empty());
  expect_same_structure(*compiled.theirs().block(), (*graph)->body());
}

TEST(Convert, LeavesTheSourceAlone) {
  Compiled compiled(kSource);
  const std::string before = compiled.theirs().toString();
  ASSERT_TRUE(convert(compiled.theirs()));
  EXPECT_EQ(compiled.theirs().toString(), before);
}

TEST(Convert, KeepsConstantsOfEveryKind) {
  const auto graph = testing::graph_of_source(
      "def f() -> Tuple[int, float, bool, str, Optional[int], List[int], complex]:\n"
      "    return 1, 2.5, True, 'text', None, [1, 2], 1j\n");
  const auto out = testing::run(*graph, {});
  const std::vector<c10::IValue> elements = out.at(0).toTupleRef().elements().vec();
  EXPECT_EQ(elements.at(0).toInt(), 1);
  EXPECT_EQ(elements[1].toDouble(), 2.5);
  EXPECT_TRUE(elements[2].toBool());
  EXPECT_EQ(elements[3].toStringRef(), "text");
  EXPECT_TRUE(elements[4].isNone());
  EXPECT_EQ(elements[5].toIntVector(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(elements[6].toComplexDouble(), c10::complex<double>(0, 1));
}

TEST(Convert, MarksConstantTensorsThatOthersHoldToo) {
  const auto marks = [](const torch::jit::Graph& graph) {
    const auto converted = convert(graph);
    EXPECT_TRUE(converted);
    size_t shared = 0;
    for_each_node((*converted)->body(), [&](Node* node) { shared += node->attribute(attr::kShared) != nullptr ? 1 : 0; });
    return shared;
  };
  at::Tensor tensor = at::ones({2});
  torch::jit::Graph graph;
  torch::jit::Value* constant = graph.insertConstant(tensor);
  torch::jit::Value* again = graph.insertConstant(tensor);
  graph.registerOutput(graph.insert(at::aten::add, {constant, again}));
  EXPECT_EQ(marks(graph), 2U) << "this test could write it";
  const at::Tensor view = tensor.view({2, 1});
  tensor.reset();
  EXPECT_EQ(marks(graph), 2U) << "also through a view";
  torch::jit::Graph alone;
  alone.registerOutput(alone.insertConstant(at::ones({2})));
  alone.registerOutput(alone.insertConstant(at::ones({2})));
  EXPECT_EQ(marks(alone), 0U);
}

TEST(Convert, VerifiesForEveryMethodOfEveryModelOfTheSuite) {
  size_t graphs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::models_dir())) {
    const std::string path = entry.path();
    if (!path.ends_with(".pt") || path.ends_with(".cases.pt") || std::filesystem::file_size(entry.path()) > 20'000'000) {
      continue;
    }
    const torch::jit::Module module = torch::jit::load(path);
    FunctionTable functions;
    for (const auto& method : module.get_methods()) {
      const auto graph = functions.graph_of(method.function());
      if (!graph) {
        continue;
      }
      for (const Violation& violation : find_violations(**graph)) {
        ADD_FAILURE() << path << " " << method.name() << ": " << violation.check << ": " << violation.message;
      }
      ++graphs;
    }
  }
  EXPECT_GT(graphs, 20);
}

TEST(Source, NamesTheModelsPythonAndShowsTheLine) {
  const auto graph = testing::graph_of_source("def f(x: Tensor):\n    return torch.relu(x)\n");
  const Node& relu = *find_node(*graph, "aten::relu");
  EXPECT_THAT(relu.location()->excerpt(), HasSubstr("torch.relu(x)"));
  const torch::jit::Module module = torch::jit::load(testing::models_dir() + "/mlp.pt");
  FunctionTable functions;
  const auto forward = functions.graph_of(module.get_method("forward").function());
  ASSERT_TRUE(forward);
  size_t named = 0;
  for_each_node((*forward)->body(), [&](Node* node) {
    named += node->location() && node->location()->file_line_column().find(".py:") != std::string::npos ? 1 : 0;
  });
  EXPECT_GT(named, 0) << "the archive keeps the ranges of the original Python";
}

// ---- functions ------------------------------------------------------------------------------------------------------

TEST(FunctionTable, ConvertsEachFunctionOnce) {
  const auto module =
      testing::module_of("def forward(self, x):\n    return self.g(x)\n\ndef g(self, x):\n    return x + 1\n");
  FunctionTable functions;
  torch::jit::Function& forward = module.get_method("forward").function();
  const auto first = functions.graph_of(forward);
  ASSERT_TRUE(first);
  EXPECT_EQ(*functions.graph_of(forward), *first);
  EXPECT_NE(*functions.graph_of(module.get_method("g").function()), *first);
}

TEST(FunctionTable, FindsWhatACallCalls) {
  const auto module =
      testing::module_of("def forward(self, x):\n    return self.g(x)\n\ndef g(self, x):\n    return x + 1\n");
  FunctionTable functions;
  const auto forward = functions.graph_of(module.get_method("forward").function());
  const auto callee = FunctionTable::callee_of(*find_node(**forward, "prim::CallMethod"));
  ASSERT_TRUE(callee);
  EXPECT_EQ((*callee)->name(), "g");
}

TEST(FunctionTable, RefusesMethodsThatTheClassDoesNotHave) {
  const auto module =
      testing::module_of("def forward(self, x):\n    return self.g(x)\n\ndef g(self, x):\n    return x + 1\n");
  FunctionTable functions;
  auto graph = (*functions.graph_of(module.get_method("forward").function()))->clone();
  Node* call = find_node(*graph, "prim::CallMethod");
  call->set_attribute(attr::kName, std::string("h"));
  const auto callee = FunctionTable::callee_of(*call);
  ASSERT_FALSE(callee);
  EXPECT_THAT(callee.refusal().reason, HasSubstr("has no method 'h'"));
}

// ---- texts of operator rows ------------------------------------------------------------------------------------------

Op op_with_texts(const char* name, std::string_view body, std::string_view backward = {}) {
  Op op = op_of(torch::jit::findOperatorFor({name, ""})->schema());
  op.body = body;
  op.backward = backward;
  return op;
}

TEST(OpRowTexts, ABodyTakesTheSchemasArguments) {
  const auto graph = compile_body(op_with_texts("aten::leaky_relu", "torch.where(self > 0, self, self * negative_slope)"));
  ASSERT_EQ(graph->inputs().size(), 2);
  EXPECT_THAT(graph->inputs()[0]->name(), HasSubstr("self"));
  EXPECT_TRUE(testing::agree(testing::run(*graph, {at::full({1}, -2.0), 0.5}).at(0), at::full({1}, -1.0)));
}

TEST(OpRowTexts, ABackwardTakesResultGradAndFlagsTooAndReturnsATuple) {
  const auto gradient = compile_gradient(op_with_texts("aten::tanh", "", "(grad * (1 - result * result),)"));
  EXPECT_EQ(gradient.forward, nullptr);
  EXPECT_EQ(gradient.condition, nullptr);
  EXPECT_EQ(gradient.saved, 0);
  ASSERT_EQ(gradient.backward->inputs().size(), 5);
  const c10::List<bool> needs({true});
  const auto gradients =
      testing::run(*gradient.backward, {at::zeros({1}), at::full({1}, 0.5), at::ones({1}), needs, false}).at(0);
  EXPECT_TRUE(testing::agree(gradients.toTupleRef().elements().at(0), at::full({1}, 0.75)));
}

TEST(OpRowTexts, ABackwardTakesWhatForwardSaves) {
  Op op = op_with_texts("aten::leaky_relu", "", "factor = saved_0.to(grad.dtype)\nreturn (grad * factor + saved_1, None)");
  op.forward = "returned = self > 0\nreturn (torch.where(returned, self, self * negative_slope), returned, 3)";
  op.differentiable_if = "negative_slope > 0";
  const auto gradient = compile_gradient(op);
  EXPECT_EQ(gradient.saved, 2);
  const auto forward = testing::run(*gradient.forward, {at::full({1}, -2.0), 0.5}).at(0).toTupleRef().elements().vec();
  EXPECT_TRUE(testing::agree(forward.at(0), at::full({1}, -1.0)));
  EXPECT_TRUE(testing::agree(testing::run(*gradient.condition, {at::zeros({1}), 0.5}).at(0), true));
  // The arguments, the result, two saved values, the incoming gradient, what is needed, whether autograd records backward.
  const auto gradients = testing::run(*gradient.backward, {at::zeros({1}), 0.5, at::zeros({1}), at::full({1}, true), 3,
                                                           at::full({1}, 2.0), c10::List<bool>({true, false}), false})
                             .at(0);
  EXPECT_TRUE(testing::agree(gradients.toTupleRef().elements().at(0), at::full({1}, 5.0)));
}

TEST(OpRowTexts, SeveralResultsAreNumbered) {
  Op op = op_of(torch::jit::findOperatorFor({"aten::var_mean", "correction"})->schema());
  op.backward = "(grad0 * result0 + grad1 * result1,)";
  EXPECT_EQ(compile_gradient(op).backward->inputs().size(), op.schema->arguments().size() + 7);
}

TEST(OpRowTexts, AGradientIsCompiledOnceAndASynonymHasItToo) {
  const auto record = [](const char* name) -> const Op& {
    return op_of(torch::jit::findOperatorFor({name, "Tensor"})->schema());
  };
  const OpGradient* gradient = gradient_of(record("aten::mul"));
  ASSERT_NE(gradient, nullptr);
  EXPECT_EQ(gradient_of(record("aten::mul")), gradient);
  EXPECT_EQ(gradient_of(record("aten::multiply")), gradient);
  EXPECT_EQ(gradient_of(record("aten::mul_")), nullptr) << "it writes";
  EXPECT_EQ(gradient_of(record("aten::eq")), nullptr) << "no text";
  EXPECT_EQ(gradient_of(op_of(torch::jit::findOperatorFor({"aten::mul", "int"})->schema())), nullptr) << "a number";
}

TEST(OpRowTexts, AMalformedTextIsAnInternalErrorThatNamesTheOperator) {
  EXPECT_THAT(message_of([] { compile_body(op_with_texts("aten::tanh", "torch.no_such_function(self)")); }),
              AllOf(HasSubstr("sconce internal error"), HasSubstr("the row of aten::tanh"), HasSubstr("no_such_function")));
  EXPECT_THROW(compile_body(op_with_texts("aten::tanh", "")), std::logic_error) << "no body";
}

}  // namespace
}  // namespace sconce
