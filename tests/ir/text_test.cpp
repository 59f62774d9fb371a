// Printing and parsing: the fixed point, every literal form, what malformed text is told.
#include "tests/support/graphs.h"

#include "ir/differentiable.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/text/print_literal.h"
#include "ir/verify/verify.h"

#include <ATen/ATen.h>
#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <cmath>
#include <limits>

namespace sconce {
namespace {

using testing::find_node;
using testing::find_value;
using ::testing::HasSubstr;

void expect_fixed_point(std::string_view text) {
  const std::string once = print(*parse(text));
  EXPECT_EQ(print(*parse(once)), once);
}

// Text that is already as the printer has it.
void expect_kept(const std::string& text) {
  EXPECT_EQ(print(*parse(text)), text);
  expect_fixed_point(text);
}

// The value of `%c : TYPE = prim::Constant[value=LITERAL]()` after one print and parse.
c10::IValue constant_of(const std::string& type, const std::string& literal) {
  const std::string text = "graph():\n  %c : " + type + " = prim::Constant[value=" + literal + "]()\n  return (%c)\n";
  const auto graph = parse(print(*parse(text)));
  EXPECT_TRUE(find_violations(*graph).empty()) << text;
  return *find_node(*graph, "prim::Constant")->output()->constant();
}

// ---- literals -------------------------------------------------------------------------------------------------------

TEST(Text, KeepsIntegersToTheEndsOfTheirRange) {
  EXPECT_EQ(constant_of("int", "0").toInt(), 0);
  EXPECT_EQ(constant_of("int", "9223372036854775807").toInt(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(constant_of("int", "-9223372036854775808").toInt(), std::numeric_limits<int64_t>::min());
}

TEST(Text, KeepsEveryDoubleExactly) {
  for (const double value : {0.0, -0.0, 0.1, 1e-300, 5e-324, 1.7976931348623157e308, 1.0 / 3.0, 1e20, -1e-5, 100000.0}) {
    const c10::IValue read = constant_of("float", print_double(value));
    EXPECT_EQ(read.toDouble(), value);
    EXPECT_EQ(std::signbit(read.toDouble()), std::signbit(value)) << value;
  }
  EXPECT_TRUE(std::isnan(constant_of("float", "nan").toDouble()));
  EXPECT_EQ(constant_of("float", "inf").toDouble(), INFINITY);
  EXPECT_EQ(constant_of("float", "-inf").toDouble(), -INFINITY);
}

TEST(Text, ReadsTorchScriptsDoublesWithATrailingPoint) {
  EXPECT_EQ(constant_of("float", "1.").toDouble(), 1.0);
  EXPECT_EQ(constant_of("float", "2").toDouble(), 2.0);
  EXPECT_EQ(constant_of("float", "1.0000000000000001e-05").toDouble(), 1e-5);
}

TEST(Text, KeepsComplexNumbersWithTheirSigns) {
  using Complex = c10::complex<double>;
  for (const Complex value : {Complex(1, 2), Complex(0, -1), Complex(-0.5, 1e20), Complex(1e-8, -1e-8)}) {
    std::string literal;
    print_constant(literal, value, nullptr);
    EXPECT_EQ(constant_of("complex", literal).toComplexDouble(), value) << literal;
  }
}

TEST(Text, KeepsComplexNumbersThatAreNotFinite) {
  using Complex = c10::complex<double>;
  for (const Complex value : {Complex(INFINITY, INFINITY), Complex(0, -INFINITY), Complex(-INFINITY, 1)}) {
    std::string literal;
    print_constant(literal, value, nullptr);
    EXPECT_EQ(constant_of("complex", literal).toComplexDouble(), value) << literal;
  }
  std::string literal;
  print_constant(literal, Complex(NAN, -NAN), nullptr);
  EXPECT_TRUE(std::isnan(constant_of("complex", literal).toComplexDouble().imag())) << literal;
}

TEST(Text, KeepsStringsOfAnyBytes) {
  std::string all;
  for (int c = 0; c < 256; ++c) {
    all += static_cast<char>(c);
  }
  for (const std::string& value : {std::string(), std::string("a \"quoted\" \\ word"), std::string("line\nline\ttab"),
                                   std::string("1\0001", 3), std::string("# no comment"), std::string("naïve 日本"), all}) {
    EXPECT_EQ(constant_of("str", quote(value)).toStringRef(), value) << quote(value);
  }
}

TEST(Text, KeepsTheOtherLiterals) {
  EXPECT_TRUE(constant_of("bool", "1").toBool());
  EXPECT_FALSE(constant_of("bool", "0").toBool());
  EXPECT_EQ(constant_of("Device", "\"cuda:1\"").toDevice(), c10::Device("cuda:1"));
  EXPECT_TRUE(constant_of("int?", "None").isNone());
  EXPECT_EQ(constant_of("int?", "4").toInt(), 4);
  EXPECT_EQ(constant_of("number", "4").toInt(), 4);
  EXPECT_EQ(constant_of("number", "4.5").toDouble(), 4.5);
  EXPECT_EQ(constant_of("int[]", "[1, -2, 3]").toIntVector(), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(constant_of("int[]", "[]").toListRef().size(), 0);
  EXPECT_EQ(constant_of("float[]", "[1., inf]").toDoubleVector(), (std::vector<double>{1, INFINITY}));
  EXPECT_EQ(constant_of("str[]", "[\"a\", \"\"]").toListRef()[1].toStringRef(), "");
  EXPECT_EQ(constant_of("bool[]", "[1, 0]").toBoolList()[1], false);
  EXPECT_EQ(constant_of("int[][]", "[[1], []]").toListRef().size(), 2);
  const c10::IValue tuple = constant_of("(int, str, (float, NoneType), int[])", "(1, \"x\", (0.5, None), [2])");
  EXPECT_EQ(tuple.toTupleRef().elements()[2].toTupleRef().elements()[0].toDouble(), 0.5);
  EXPECT_EQ(constant_of("Tensor", "{3}").toTensor().item<int64_t>(), 3);
  EXPECT_EQ(constant_of("Tensor", "{0.25}").toTensor().item<double>(), 0.25);
}

TEST(Text, NamesConstantsWithoutLiteralByTheirPlaceInASideTable) {
  Graph graph;
  const at::Tensor big = at::arange(6).reshape({2, 3});
  graph.add_output(graph.insert_constant(big, graph.body().return_node()));
  std::vector<c10::IValue> constants;
  const std::string text = print(graph, {.constants = &constants});
  EXPECT_THAT(text, HasSubstr("<Tensor:0>"));
  const auto read = parse(text, {.constants = &constants});
  EXPECT_TRUE(find_node(*read, "prim::Constant")->output()->constant()->toTensor().is_same(big));
  EXPECT_THAT(testing::message_of([&] { parse(text); }), HasSubstr("not among the constants"));
  EXPECT_THAT(testing::message_of([&] { parse(print(graph)); }), HasSubstr("leaves this constant's value out"));
}

TEST(Text, KeepsEveryFormOfAttribute) {
  expect_kept(
      "graph(%x : Tensor):\n"
      "  %y : Tensor = prim::ConstantChunk[chunks=1, dim=-1](%x)\n"
      "  %z : bool = prim::isinstance[types=[int, Tensor[], (float, str)]](%x)\n"
      "  %f : bool = prim::isinstance[types=[NoneType], ints=[1, 2], floats=[1.5, -inf], strings=[\"a\\n\"], one=1e-05, "
      "name=\"n\", "
      "ty=Dict(str, Tensor)](%x)\n"
      "  return (%y)\n");
}

// ---- structure ------------------------------------------------------------------------------------------------------

TEST(Text, KeepsBlocksNodesWithoutOutputsAndPlaces) {
  expect_kept(
      "graph(%a : Tensor,\n"
      "      %flag : bool,\n"
      "      %n : int):\n"
      "  %yes : bool = prim::Constant[value=1]()\n"
      "  %s : str = prim::Constant[value=\"hi\"]()\n"
      "  prim::Print(%s) # dir/model.py:12:8\n"
      "  %r : Tensor, %k : int = prim::If(%flag) # model.py:13:4\n"
      "    block0():\n"
      "      %l : Tensor = prim::Loop(%n, %yes, %a)\n"
      "        block0(%i : int, %c : Tensor):\n"
      "          %d : Tensor = aten::relu(%c)\n"
      "          -> (%yes, %d)\n"
      "      -> (%l, %n)\n"
      "    block1():\n"
      "      -> (%a, %n)\n"
      "  return (%r, %k)\n");
}

TEST(Text, KeepsSubgraphsAlsoNestedAndTwoOfThem) {
  const std::string text =
      "graph(%a : Tensor):\n"
      "  %x : Tensor = prim::DifferentiableGraph_0(%a)\n"
      "  %y : Tensor = prim::FusionGroup_1(%x)\n"
      "  return (%y)\n"
      "with prim::DifferentiableGraph_0 = graph(%a : Tensor):\n"
      "  %b : Tensor = prim::FusionGroup_2(%a)\n"
      "  return (%b)\n"
      "with prim::FusionGroup_1 = graph(%x : Tensor):\n"
      "  %r : Tensor = aten::relu(%x)\n"
      "  return (%r)\n"
      "with prim::FusionGroup_2 = graph(%x : Tensor):\n"
      "  %r : Tensor = aten::neg(%x)\n"
      "  return (%r)\n";
  expect_kept(text);
  const auto graph = parse(text);
  EXPECT_EQ(print(*graph->clone()), text) << "clone copies subgraphs";
}

// A graph with one sconce::differentiable node of the signature.
std::string differentiable(const std::string& signature) {
  return "graph(%a : Tensor,\n      %b : Tensor):\n  %c : Tensor = sconce::differentiable_0[gradient=" + signature +
         "](%a, %b)\n  return (%c)\nwith sconce::differentiable_0 = graph(%a : Tensor,\n      %b : Tensor):\n"
         "  %c : Tensor = aten::mul(%a, %b)\n  return (%c)\n";
}

TEST(Text, KeepsEveryFormOfAGradientSignature) {
  for (const std::string signature :
       {"{}", "{grad(y0) reaches x0}", "{grad(y0) reaches nothing; nothing reaches x1}",
        "{grad(y0) reaches x0, x1; saves x0 (y0 to x1), x1 (y0 to x0), y0, t0; double backward adds grad(t0)}",
        "{grad(y0) reaches x0; grad(y2) reaches x0, x1 else nothing; grad(y3) reaches x1 else x0; nothing reaches x4}",
        "{grad(y0) reaches x0, x1; grad(y1) reaches x1; saves x1 (y0 to x0; y1 to x1), y1 (), t0, t1, t2; double backward "
        "adds "
        "grad(t2, t0)}"}) {
    expect_kept(differentiable(signature));
  }
}

TEST(Text, ReadsAGradientSignature) {
  const auto graph = parse(differentiable(
      "{grad(y0) reaches x0, x3; grad(y2) reaches x3 else nothing; saves x1, x3 (y0 to x0), y2 (y2 to x3), t0, t1; double "
      "backward adds grad(t1)}"));
  const GradientSignature expected{.inputs = {0, 3},
                                   .outputs = {{0, {true, true}, {}}, {2, {false, true}, {{false, false}}}},
                                   .saved_inputs = {{1, {true, true, false, true}}, {3, {true, false, false, false}}},
                                   .saved_outputs = {{2, {false, false, false, true}}},
                                   .intermediates = 2,
                                   .differentiable_intermediates = {1}};
  EXPECT_EQ(gradient_signature(*find_node(*graph, "sconce::differentiable")), expected);
}

TEST(Text, RenamesValuesWhoseNamesCollideAndKeepsTheFirst) {
  Graph graph;
  Value* x = graph.add_input("x", c10::TensorType::get());
  Node* first = graph.create(aten::relu, {x})->append_to(graph.body());
  first->output()->set_name("x");
  Node* second = graph.create(aten::relu, {first->output()})->append_to(graph.body());
  second->output()->set_name("x.1");
  graph.add_output(second->output());
  const std::string text = print(graph);
  EXPECT_EQ(text,
            "graph(%x : Tensor):\n"
            "  %x.1 : Tensor = aten::relu(%x)\n"
            "  %x.2 : Tensor = aten::relu(%x.1)\n"
            "  return (%x.2)\n");
  expect_kept(text);
}

TEST(Text, NumbersNamelessValuesWithoutCollidingWithNumericNames) {
  Graph graph;
  Value* x = graph.add_input("1", c10::TensorType::get());
  Node* node = graph.create(aten::relu, {x})->append_to(graph.body());  // its id is 1, too
  graph.add_output(node->output());
  expect_fixed_point(print(graph));
  EXPECT_EQ(parse(print(graph))->outputs()[0]->node()->kind(), aten::relu);
}

TEST(Text, KeepsAllFacts) {
  expect_kept(
      "graph(%a : Float(2, *, SS(-1), strides=[6, *, SS(-2)], requires_grad=1, device=cuda:1),\n"
      "      %b : Double(),\n"
      "      %c : Long(3, requires_grad=0, device=cpu),\n"
      "      %d : FloatTensor(device=cpu),\n"
      "      %e : Tensor(*, *),\n"
      "      %f : Tensor[Undefined],\n"
      "      %g : Bool(0),\n"
      "      %h : BFloat16(2, layout=Sparse),\n"
      "      %i : Tensor(requires_grad=0)):\n"
      "  return (%a)\n");
}

TEST(Text, KeepsEveryLayout) {
  for (const c10::Layout layout :
       {c10::kSparse, c10::kSparseCsr, c10::kMkldnn, c10::kSparseCsc, c10::kSparseBsr, c10::kSparseBsc, c10::kJagged}) {
    Graph graph;
    Value* x = graph.add_input("x", c10::TensorType::get());
    TensorFacts facts;
    facts.dtype = c10::kFloat;
    facts.layout = layout;
    x->set_facts(facts);
    EXPECT_EQ(parse(print(graph))->inputs()[0]->facts()->layout, layout) << print(graph);
  }
  EXPECT_THAT(testing::message_of([] { parse("graph(%x : Float(2, layout=Round)):\n  return ()\n"); }), HasSubstr("layout"));
}

TEST(Text, KeepsEveryKindOfType) {
  for (const char* type : {"int", "float", "bool", "complex", "str", "NoneType", "Device", "Generator", "Tensor[]",
                           "Tensor?[]", "Dict(str, Tensor[])", "Future(Tensor)", "(int, (Tensor, str?))", "()",
                           "__torch__.my.Class", "__torch__.___torch_mangle_3.M[]", "Union[int, str]", "Any"}) {
    const std::string text = std::string("graph(%x : ") + type + "):\n  return (%x)\n";
    expect_fixed_point(text);
    EXPECT_EQ(*parse(text)->inputs()[0]->type(), *parse(text)->inputs()[0]->type());
  }
}

TEST(Text, DeclaresAClassFromItsUses) {
  const auto graph = testing::graph_of(
      "graph(%self : __torch__.M,\n      %x : Tensor):\n"
      "  %sub : __torch__.N = prim::GetAttr[name=\"sub\"](%self)\n"
      "  %w : Tensor = prim::GetAttr[name=\"w\"](%sub)\n"
      "  prim::SetAttr[name=\"n\"](%self, %x)\n"
      "  return (%w)\n");
  const auto self = graph->inputs()[0]->type()->expect<c10::ClassType>();
  EXPECT_EQ(self->findAttribute("sub")->expect<c10::ClassType>()->findAttribute("w")->kind(), c10::TypeKind::TensorType);
  EXPECT_EQ(self->findAttribute("n")->kind(), c10::TypeKind::TensorType);
  EXPECT_EQ(self->findAttribute("sub").get(), find_value(*graph, "sub")->type().get()) << "one name, one class";
}

TEST(Text, AsksTheCallerForClassesFirst) {
  const auto known = c10::ClassType::create(c10::QualifiedName("__torch__.Known"), {}, true);
  known->addAttribute("w", c10::TensorType::get());
  const ParseOptions options{
      .resolve_type = [&](const std::string& name) -> c10::TypePtr { return name == "__torch__.Known" ? known : nullptr; }};
  const auto graph = parse("graph(%a : __torch__.Known,\n      %b : __torch__.Other):\n  return (%a)\n", options);
  EXPECT_EQ(graph->inputs()[0]->type().get(), known.get());
  EXPECT_EQ(graph->inputs()[1]->type()->kind(), c10::TypeKind::ClassType);
}

TEST(Text, LeavesUnknownOperatorsWithoutSchemaWhenAllowed) {
  const std::string text = "graph(%x : Tensor):\n  %y : Tensor = mine::unheard_of(%x)\n  return (%y)\n";
  EXPECT_THAT(testing::message_of([&] { parse(text); }), HasSubstr("there is no operator mine::unheard_of"));
  EXPECT_EQ(find_node(*parse(text, {.require_schemas = false}), "mine::unheard_of")->schema(), nullptr);
}

TEST(Text, NodesOfTheFrontendSurviveTheRoundTrip) {
  const auto graph = testing::graph_of_source(R"(
def f(x: Tensor, n: int, names: List[str]) -> Tuple[Tensor, Dict[str, int]]:
    d = {"a": 1}
    for i in range(n):
        if i % 2 == 0:
            x = x + float(i) * 1.5
        elif len(names) > i:
            d[names[i]] = i
        else:
            break
    assert n < 100, "too many"
    return torch.relu(x).view(-1)[1:3], d
)");
  std::vector<c10::IValue> constants;
  const std::string once = print(*graph, {.constants = &constants});
  EXPECT_EQ(print(*parse(once, {.constants = &constants})), once);
}

// ---- our text is TorchScript's --------------------------------------------------------------------------------------

TEST(Text, IsReadByTorchScriptsOwnParser) {
  const std::string text =
      "graph(%a : Tensor,\n      %b : Float(2, *, device=cpu),\n      %list : Tensor[],\n      %flag : bool,\n      %n : "
      "int):\n"
      "  %c : Tensor = aten::mul(%a, %b) # model.py:1:2\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      %x : Tensor = aten::relu(%c)\n"
      "      -> (%x)\n"
      "    block1():\n"
      "      -> (%c)\n"
      "  %l : Tensor = prim::Loop(%n, %flag, %r)\n"
      "    block0(%i : int, %v : Tensor):\n"
      "      %w : Tensor = aten::neg(%v)\n"
      "      -> (%flag, %w)\n"
      "  %t : (Tensor, Tensor[]) = prim::TupleConstruct(%l, %list)\n"
      "  return (%t)\n";
  expect_kept(text);
  torch::jit::Graph theirs;
  ASSERT_NO_THROW(torch::jit::parseIR(print(*parse(text)), &theirs));
  theirs.lint();
  EXPECT_EQ(theirs.inputs().size(), 5);
  EXPECT_EQ(std::distance(theirs.nodes().begin(), theirs.nodes().end()), 4);
}

// ---- malformed text -------------------------------------------------------------------------------------------------

struct Malformed {
  const char* text;
  size_t line;
  size_t column;
  const char* message;
};

TEST(ParseErrors, ShowLineColumnAndCaret) {
  const std::vector<Malformed> cases = {
      {"", 1, 1, "expected 'graph'"},
      {"grap(%x : Tensor):\n  return (%x)", 1, 1, "expected 'graph'"},
      {"graph(%x Tensor):\n  return (%x)", 1, 10, "expected ':'"},
      {"graph(%x : Tenso):\n  return (%x)", 1, 12, "unknown type 'Tenso'"},
      {"graph(%x : Tensor, %x : int):\n  return (%x)", 1, 20, "%x is defined twice"},
      {"graph(%x : Tensor):\n  %y : Tensor = aten::relu(%z)\n  return (%y)", 2, 28, "%z is not defined here"},
      {"graph(%x : Tensor):\n  %y : Tensor = relu(%x)\n  return (%y)", 2, 17, "expected an operator with its namespace"},
      {"graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x, %x, %x)\n  return (%y)", 2, 17,
       "no overload of aten::relu takes"},
      {"graph(%x : Tensor):\n  %y : Tensor = prim::GetAttr[name=inf](%x)\n  return (%y)", 2, 36,
       "a name is a text in quotes"},
      {"graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n", 3, 1, "the graph ends without its `return"},
      {"graph():\n  %c : int = prim::Constant[value=\"x\"]()\n  return (%c)", 2, 35, "expected a number"},
      {"graph():\n  %c : int = prim::Constant[value=99999999999999999999]()\n  return (%c)", 2, 35, "fits 64 bits"},
      {"graph():\n  %c : float = prim::Constant[value=1e999]()\n  return (%c)", 2, 42, "malformed number"},
      {"graph():\n  %c : float = prim::Constant[value=1e999]()\n  return (%c)", 2, 42, "malformed number"},
      {"graph():\n  %c : int[] = prim::Constant[value=[None]]()\n  return (%c)", 2, 38, "expected a number"},
      {"graph(%x : a..b):\n  return ()", 1, 12, "Invalid name"},
      {"graph(%x : NoneType ?):\n  return ()", 1, 12, "has the single type NoneType"},
      {"graph(%x : Dict(int[], str)):\n  return ()", 1, 12, "dict"},
      {"graph(%x : Tensor):\n  %y : Tensor = aten::(%x)\n  return (%y)", 2, 17, "malformed operator name"},
      {"graph(%x : Tensor):\n  %y : Tensor = a::b::c(%x)\n  return (%y)", 2, 17, "malformed operator name"},
      {"graph():\n  %c : str = prim::Constant[value=\"x]()\n  return (%c)", 2, 35, ""},
      {"graph():\n  %c : Device = prim::Constant[value=\"moon\"]()\n  return (%c)", 2, 38, ""},
      {"graph(%x : Float(2, strides=2)):\n  return (%x)", 1, 29, "expected '['"},
      {"graph(%x : Tensor):\n  return (%x)\nmore", 3, 1, "expected the end of the text"},
      {"graph(%x : Tensor):\n  %y : Tensor = prim::G_0(%x)\n  return (%y)", 3, 14, "the subgraph prim::G_0 is missing"},
      {"graph(%x : Tensor):\n  return (%x)\nwith prim::G_0 = graph():\n  return ()", 3, 6, "no node uses the subgraph"},
      {"graph(%f : bool, %x : Tensor):\n   = prim::If(%f)\n    block0():\n      %y : Tensor = aten::relu(%x)\n      -> ()\n"
       "    block1():\n      -> ()\n  return (%y)",
       8, 11, "%y is not defined here"},
      {"graph():\n  %c : (int, int) = prim::Constant[value=(1, 2, 3)]()\n  return (%c)", 2, 49,
       "more elements than its type"},
      {"graph():\n  %c : __torch__.M = prim::Constant[value=1]()\n  return (%c)", 2, 43, "no literal form"},
      {"graph():\n  prim::G[gradient={grad(x0) reaches x0}]()\n  return ()", 2, 26, "expected y0, y1 or the like"},
      {"graph():\n  prim::G[gradient={grad(y0) reaches x}]()\n  return ()", 2, 38, "expected x0, x1 or the like"},
      {"graph():\n  prim::G[gradient={saves t1}]()\n  return ()", 2, 27, "in their order, from t0 on"},
      {"graph():\n  prim::G[gradient={double backward adds grad(t0)}]()\n  return ()", 2, 51, "t0, which is not saved"},
      {"graph():\n  prim::G[gradient={saves x0 (y0 to x0)}]()\n  return ()", 2, 41,
       "begins at y0, which brings no gradient"},
      {"graph():\n  prim::G[gradient=[{}]]()\n  return ()", 2, 21, "no list of lists"},
      {"graph():\n  %b : bool = prim::isinstance[types=[1, \"a\"]]()\n  return (%b)", 2, 46, "mixes kinds"},
  };
  for (const Malformed& malformed : cases) {
    try {
      parse(malformed.text);
      ADD_FAILURE() << "was read:\n" << malformed.text;
    } catch (const ParseError& error) {
      EXPECT_EQ(error.line(), malformed.line) << error.what();
      EXPECT_EQ(error.column(), malformed.column) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(malformed.message));
      const std::string what = error.what();
      const size_t caret = what.size() - what.find_last_of('\n') - 1;
      EXPECT_EQ(what.back(), '^');
      EXPECT_EQ(caret, 2 + malformed.column) << what;
    }
  }
}

std::string repeated(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

TEST(ParseErrors, RefuseDeepNestingInsteadOfExhaustingTheStack) {
  constexpr size_t kDepth = 100000;
  const std::vector<std::string> texts = {
      "graph(%x : " + repeated("(", kDepth) + "):\n  return ()",
      "graph(%x : " + repeated("Dict(str, ", kDepth) + "):\n  return ()",
      "graph(%x : " + repeated("Future(", kDepth) + "):\n  return ()",
      "graph(%x : Union" + repeated("[Union", kDepth) + "):\n  return ()",
      "graph(%f : bool):\n" + repeated(" prim::If(%f)\n block0():\n", kDepth) + "return ()",
      "graph():\n  %b : bool = prim::isinstance[types=" + repeated("[", kDepth) + "]()\n  return ()",
      "graph():\n  %c : " + repeated("(", 150) + "int" + repeated(")", 150) +
          " = prim::Constant[value=" + repeated("(", kDepth),
  };
  for (const std::string& text : texts) {
    EXPECT_THROW(parse(text), ParseError) << text.substr(0, 80);
  }
}

TEST(ParseErrors, RefuseTypesOfManySuffixesThatNest) {
  EXPECT_THROW(parse("graph(%x : int" + repeated("[]", 100000) + "):\n  return ()"), ParseError);
}

TEST(ParseErrors, EveryPrefixOfAGoodTextIsRefusedCleanly) {
  const std::string text =
      "graph(%a : Float(2, *, strides=[2, 1], device=cpu), %self : __torch__.M):\n"
      "  %w : Dict(str, Tensor[])? = prim::GetAttr[name=\"w\"](%self) # m.py:1:2\n"
      "  %c : (int, float[], str) = prim::Constant[value=(1, [1.5, inf], \"x\\n\")]()\n"
      "  %d : complex = prim::Constant[value=1.+2.j]()\n"
      "  %r : Tensor = prim::Some_0[gradient={grad(y0) reaches x0 else nothing; saves x0 (y0 to x0), t0}](%a)\n"
      "  return (%r)\n"
      "with prim::Some_0 = graph(%a : Tensor):\n"
      "  return (%a)";
  ASSERT_NO_THROW(parse(text));
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW(parse(text.substr(0, length)), ParseError) << length;
  }
}

TEST(ParseErrors, ChangedBytesGiveAGraphOrAParseErrorAndNothingElse) {
  const std::string text =
      "graph(%a : Float(2, *), %self : __torch__.M):\n"
      "  %w : Tensor? = prim::GetAttr[name=\"w\"](%self)\n"
      "  %c : (int, float[]) = prim::Constant[value=(1, [1.5])]()\n"
      "  %r : Tensor = aten::relu[gradient={grad(y0) reaches x0; saves y0 (y0 to x0), t0}](%a)\n"
      "  return (%r)\n";
  for (size_t at = 0; at < text.size(); ++at) {
    for (const char c : {'(', ')', '[', '%', '"', '<', '-', '9', ':', '\n', '\0', '\xff'}) {
      std::string changed = text;
      changed[at] = c;
      try {
        const auto graph = parse(changed);
        static_cast<void>(find_violations(*graph));
      } catch (const ParseError&) {
        // as it should be
      } catch (const std::exception& error) {
        ADD_FAILURE() << "byte " << at << " as '" << c << "': " << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace sconce
