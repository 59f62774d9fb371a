#include "executor/argument_spec/argument_spec.h"

#include "tests/support/graphs.h"

#include "ir/text/parse.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

namespace sconce {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<c10::IValue>;

ArgumentSpec spec_of(const Graph& graph, const Values& arguments) {
  ArgumentSpec spec;
  ArgumentSpecCreator(graph).create(arguments, spec);
  return spec;
}
ArgumentSpec spec_of(const std::string& inputs, const Values& arguments) {
  return spec_of(*testing::graph_of("graph(" + inputs + "):\n  return ()\n"), arguments);
}

bool same(const ArgumentSpec& a, const ArgumentSpec& b) {
  const bool is_same = std::ranges::equal(a.words(), b.words());
  EXPECT_EQ(is_same, a.hash() == b.hash()) << "hashes follow words";
  return is_same;
}

// Whether a graph of one tensor tells the two apart.
bool differ(const at::Tensor& a, const at::Tensor& b) {
  return !same(spec_of("%x : Tensor", {a}), spec_of("%x : Tensor", {b}));
}

// The word of a tensor: the state has three words before it.
uint64_t word_of(const at::Tensor& tensor) { return spec_of("%x : Tensor", {tensor}).words()[3]; }
uint64_t bits(uint64_t word, int from, int count) { return (word >> from) & ((uint64_t{1} << count) - 1); }

// ---- the layout that the header documents ---------------------------------------------------------------------------

TEST(ArgumentSpec, LaysATensorOutAsItsHeaderSays) {
  const uint64_t word = word_of(at::ones({4, 1, 3}, at::kDouble).requires_grad_(true));
  EXPECT_EQ(bits(word, 0, 2), 2) << "plain";
  EXPECT_EQ(bits(word, 2, 6), static_cast<uint64_t>(at::kDouble));
  EXPECT_EQ(bits(word, 8, 5), static_cast<uint64_t>(at::kCPU));
  EXPECT_EQ(bits(word, 13, 8), 0) << "device index -1, plus one";
  EXPECT_EQ(bits(word, 21, 6), 3) << "rank";
  EXPECT_EQ(bits(word, 27, 1), 1) << "requires_grad";
  EXPECT_EQ(bits(word, 28, 3), static_cast<uint64_t>(StrideClass::kContiguous));
  EXPECT_EQ(bits(word, 31, 16), 0b010) << "dims of size 1";
  EXPECT_EQ(bits(word, 47, 17), 0);
}

TEST(ArgumentSpec, EveryDtypeFitsItsBits) {
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    EXPECT_LT(i, 64);
  }
  for (const auto dtype :
       {at::kBool, at::kByte, at::kHalf, at::kBFloat16, at::kComplexDouble, at::kFloat8_e4m3fn, at::kUInt64}) {
    EXPECT_EQ(bits(word_of(at::empty({2}, dtype)), 2, 6), static_cast<uint64_t>(dtype));
  }
}

TEST(ArgumentSpec, UndefinedTensorsAndNoneAreKindsOfTheirOwn) {
  EXPECT_EQ(word_of(at::Tensor()), 1);
  const ArgumentSpec none = spec_of("%x : Tensor?", {c10::IValue()});
  EXPECT_EQ(none.words()[3], 0);
  EXPECT_FALSE(same(none, spec_of("%x : Tensor?", {at::Tensor()})));
  EXPECT_FALSE(same(none, spec_of("%x : Tensor?", {at::ones({2})})));
}

// ---- what tells specs apart -----------------------------------------------------------------------------------------

TEST(ArgumentSpec, TellsTensorsApartByDtypeRankGradAndOnes) {
  const at::Tensor base = at::ones({2, 3});
  EXPECT_FALSE(differ(base, at::zeros({2, 3})));
  EXPECT_TRUE(differ(base, base.to(at::kDouble)));
  EXPECT_TRUE(differ(base, at::ones({2, 3, 4})));
  EXPECT_TRUE(differ(base, at::ones({2, 3}).requires_grad_(true)));
  EXPECT_TRUE(differ(base, at::ones({2, 1})));
  EXPECT_TRUE(differ(at::ones({1, 2}), at::ones({2, 1})));
}

TEST(ArgumentSpec, SizesAboveOneAreLeftOpen) { EXPECT_FALSE(differ(at::ones({2, 3}), at::ones({5, 7}))); }

TEST(ArgumentSpec, ClassesOfStrides) {
  const auto class_of = [](const at::Tensor& t) { return static_cast<StrideClass>(bits(word_of(t), 28, 3)); };
  const at::Tensor image = at::ones({2, 3, 4, 5});
  EXPECT_EQ(class_of(image), StrideClass::kContiguous);
  EXPECT_EQ(class_of(image.contiguous(at::MemoryFormat::ChannelsLast)), StrideClass::kChannelsLast);
  EXPECT_EQ(class_of(at::ones({2, 3, 4, 5, 6}).contiguous(at::MemoryFormat::ChannelsLast3d)), StrideClass::kChannelsLast3d);
  EXPECT_EQ(class_of(image.transpose(0, 1)), StrideClass::kDense);
  EXPECT_EQ(class_of(at::ones({4, 6}).slice(1, 0, 6, 2)), StrideClass::kOther);
  EXPECT_EQ(class_of(at::ones({3, 1}).expand({3, 4})), StrideClass::kOther);
  EXPECT_EQ(class_of(at::ones({})), StrideClass::kContiguous);
  EXPECT_EQ(class_of(at::ones({0, 3})), StrideClass::kContiguous);
  EXPECT_EQ(class_of(at::ones({4, 1})), StrideClass::kContiguous);
  EXPECT_EQ(class_of(at::empty_strided({4, 1}, {1, 7})), StrideClass::kNearlyContiguous);
  EXPECT_EQ(class_of(at::empty_strided({0, 3}, {5, 7})), StrideClass::kNearlyContiguous);
  EXPECT_EQ(class_of(at::empty({2, 3, 1, 1}, at::TensorOptions().memory_format(at::MemoryFormat::ChannelsLast))),
            StrideClass::kNearlyContiguous);
}

TEST(ArgumentSpec, ANonLeafThatNeedsGradCountsAsRequiringGrad) {
  const at::Tensor leaf = at::ones({2}).requires_grad_(true);
  const ArgumentSpec spec = spec_of("%x : Tensor", {leaf * 2});
  EXPECT_TRUE(spec.requires_grad());
  EXPECT_EQ(bits(spec.words()[3], 27, 1), 1);
  EXPECT_FALSE(spec_of("%x : Tensor", {(leaf * 2).detach()}).requires_grad());
}

TEST(ArgumentSpec, AViewRequiresGradAsSoonAsItsBaseDoes) {
  const at::Tensor base = at::ones({4});
  const at::Tensor view = base.view({2, 2});
  EXPECT_FALSE(spec_of("%x : Tensor", {view}).requires_grad());
  const uint64_t before = word_of(view);
  base.requires_grad_(true);
  ASSERT_TRUE(view.requires_grad());
  const ArgumentSpec spec = spec_of("%x : Tensor", {view});
  EXPECT_TRUE(spec.requires_grad());
  EXPECT_EQ(spec.words()[3], before | uint64_t{1} << 27);

  const at::Tensor computed = at::ones({4});
  const at::Tensor part = computed.slice(0, 0, 2);
  computed.mul_(at::ones({4}).requires_grad_(true));
  EXPECT_TRUE(spec_of("%x : Tensor", {part}).requires_grad());
}

// ---- exotic tensors (rule R10) --------------------------------------------------------------------------------------

TEST(ArgumentSpec, ExoticTensorsAreToldApartFromPlainOnes) {
  const at::Tensor plain = at::ones({2, 2});
  const at::Tensor complex = at::ones({2, 2}, at::kComplexDouble);
  at::Tensor sixteen = at::ones(std::vector<int64_t>(16, 1));
  EXPECT_FALSE(spec_of("%x : Tensor", {plain}).has_exotic());
  EXPECT_FALSE(spec_of("%x : Tensor", {complex}).has_exotic());
  EXPECT_FALSE(spec_of("%x : Tensor", {sixteen}).has_exotic());
  const std::vector<std::pair<const char*, at::Tensor>> exotic = {
      {"sparse", plain.to_sparse()},
      {"sparse_csr", plain.to_sparse_csr()},
      {"conjugate", complex.conj()},
      {"negative", at::imag(complex.conj())},
      {"quantized", at::quantize_per_tensor(plain, 0.1, 0, at::kQInt8)},
      {"mkldnn", plain.to_mkldnn()},
      {"rank 17", sixteen.unsqueeze(0)},
      {"meta", at::ones({2, 2}, at::device(at::kMeta))},
  };
  for (const auto& [what, tensor] : exotic) {
    const ArgumentSpec spec = spec_of("%x : Tensor", {tensor});
    EXPECT_TRUE(spec.has_exotic()) << what;
    EXPECT_EQ(bits(spec.words()[3], 0, 2), 3) << what;
    EXPECT_EQ(spec.words()[4], tensor.key_set().raw_repr()) << what;
    EXPECT_FALSE(same(spec, spec_of("%x : Tensor", {plain}))) << what;
    EXPECT_THAT(describe_spec(spec.words()), HasSubstr("exotic")) << what;
  }
}

TEST(ArgumentSpec, AnInferenceTensorIsPlainAndWithoutGrad) {
  at::Tensor tensor;
  {
    const c10::InferenceMode mode;
    tensor = at::ones({2});
  }
  const ArgumentSpec spec = spec_of("%x : Tensor", {tensor});
  EXPECT_FALSE(spec.has_exotic());
  EXPECT_FALSE(spec.requires_grad());
}

// ---- containers -----------------------------------------------------------------------------------------------------

TEST(ArgumentSpec, WalksListsTuplesAndDicts) {
  const at::Tensor f = at::ones({2});
  const at::Tensor d = at::ones({2}, at::kDouble);
  const auto list = [](std::vector<at::Tensor> tensors) { return Values{c10::List<at::Tensor>(tensors)}; };
  EXPECT_TRUE(same(spec_of("%l : Tensor[]", list({f, d})), spec_of("%l : Tensor[]", list({f, d}))));
  EXPECT_FALSE(same(spec_of("%l : Tensor[]", list({f, d})), spec_of("%l : Tensor[]", list({d, f}))));
  EXPECT_FALSE(same(spec_of("%l : Tensor[]", list({f})), spec_of("%l : Tensor[]", list({f, f}))));
  EXPECT_FALSE(same(spec_of("%l : Tensor[]", list({})), spec_of("%l : Tensor[]", list({f}))));

  const auto tuple = [](c10::IValue a, c10::IValue b) {
    return Values{c10::ivalue::Tuple::create(std::move(a), std::move(b))};
  };
  EXPECT_FALSE(
      same(spec_of("%t : (Tensor, Tensor?)", tuple(f, f)), spec_of("%t : (Tensor, Tensor?)", tuple(f, c10::IValue()))));

  const auto dict = [](const at::Tensor& value) {
    c10::Dict<std::string, at::Tensor> map;
    map.insert("k", value);
    return Values{map};
  };
  EXPECT_FALSE(same(spec_of("%d : Dict(str, Tensor)", dict(f)), spec_of("%d : Dict(str, Tensor)", dict(d))));
  EXPECT_TRUE(spec_of("%d : Dict(str, Tensor)", dict(at::ones({1}).requires_grad_(true))).requires_grad());

  c10::Dict<at::Tensor, int64_t> keys;
  keys.insert(at::ones({1}).requires_grad_(true), 1);
  EXPECT_TRUE(spec_of("%d : Dict(Tensor, int)", {keys}).requires_grad());
}

TEST(ArgumentSpec, ListBoundariesAreNotConfused) {
  const at::Tensor f = at::ones({2});
  const c10::List<at::Tensor> one({f});
  const c10::List<at::Tensor> two({f, f});
  EXPECT_FALSE(
      same(spec_of("%a : Tensor[], %b : Tensor[]", {one, two}), spec_of("%a : Tensor[], %b : Tensor[]", {two, one})));
}

TEST(ArgumentSpec, NumbersAndStringsLeaveNoWordButOptionalsDo) {
  EXPECT_TRUE(same(spec_of("%n : int, %s : str", {1, "a"}), spec_of("%n : int, %s : str", {2, "b"})));
  EXPECT_EQ(spec_of("%n : int", {1}).words().size(), 3) << "the state alone";
  EXPECT_FALSE(same(spec_of("%n : int?", {1}), spec_of("%n : int?", {c10::IValue()})));
  EXPECT_FALSE(spec_of("%s : str?", {"text"}).requires_grad());
}

TEST(ArgumentSpec, TellsWhichOfSeveralOptionalsAreNone) {
  const c10::IValue none;
  EXPECT_FALSE(same(spec_of("%a : int?, %b : str?", {1, none}), spec_of("%a : int?, %b : str?", {none, "x"})));
  const auto list = [](std::optional<int64_t> a, std::optional<int64_t> b) {
    return Values{c10::List<std::optional<int64_t>>({a, b})};
  };
  EXPECT_FALSE(same(spec_of("%l : int?[]", list(3, std::nullopt)), spec_of("%l : int?[]", list(3, 4))));
  EXPECT_FALSE(same(spec_of("%l : int?[]", list(3, std::nullopt)), spec_of("%l : int?[]", list(std::nullopt, 3))));
  EXPECT_TRUE(same(spec_of("%l : int?[]", list(3, 4)), spec_of("%l : int?[]", list(5, 6))));
}

TEST(ArgumentSpec, ManyTensorsMakeItGrow) {
  const c10::List<at::Tensor> list(std::vector<at::Tensor>(60, at::ones({2})));
  const std::string inputs = "%a : Tensor[], %b : Tensor[], %c : Tensor[]";
  const ArgumentSpec spec = spec_of(inputs, {list, list, list});
  EXPECT_EQ(spec.words().size(), 3 + 3 * (1 + 60));
  EXPECT_TRUE(same(spec, spec_of(inputs, {list, list, list})));
}

// A history or a cache that a model keeps: the spec must not grow with it, nor differ on each call.
TEST(ArgumentSpec, LongContainersAreNotLookedInto) {
  const auto list = [](size_t size) { return Values{c10::List<at::Tensor>(std::vector<at::Tensor>(size, at::ones({2})))}; };
  EXPECT_FALSE(same(spec_of("%l : Tensor[]", list(64)), spec_of("%l : Tensor[]", list(65))));
  EXPECT_TRUE(same(spec_of("%l : Tensor[]", list(65)), spec_of("%l : Tensor[]", list(1000))));
  EXPECT_EQ(spec_of("%l : Tensor[]", list(1000)).words().size(), 4);
  EXPECT_TRUE(spec_of("%l : Tensor[]", list(65)).requires_grad()) << "one of them might";
}

// ---- attributes of objects ------------------------------------------------------------------------------------------

TEST(ArgumentSpec, ReadsTheAttributesThatTheGraphReadsAndNoOthers) {
  const auto module = testing::module_of("def forward(self, x):\n    return x\n",
                                         {{"read", at::ones({2})}, {"unread", at::ones({2})}, {"number", 3}});
  const ParseOptions options{.resolve_type = [&](const std::string&) { return module.type(); }};
  const auto graph = parse(
      "graph(%self : __torch__.M, %x : Tensor):\n"
      "  %w : Tensor = prim::GetAttr[name=\"read\"](%self)\n"
      "  %v : Tensor = prim::GetAttr[name=\"read\"](%self)\n"
      "  %n : int = prim::GetAttr[name=\"number\"](%self)\n"
      "  return (%w)\n",
      options);
  const ArgumentSpecCreator creator(*graph);
  EXPECT_EQ(creator.attribute_count(), 2) << "read and number";
  const auto spec_now = [&] {
    ArgumentSpec spec;
    creator.create(Values{module._ivalue(), at::ones({2})}, spec);
    return spec;
  };
  const ArgumentSpec before = spec_now();
  EXPECT_FALSE(before.requires_grad());
  module._ivalue()->setAttr("unread", at::ones({2}, at::kDouble));
  EXPECT_TRUE(same(before, spec_now()));
  module._ivalue()->setAttr("read", at::ones({2}, at::kDouble));
  EXPECT_FALSE(same(before, spec_now()));
  module._ivalue()->setAttr("read", at::ones({2}).requires_grad_(true));
  EXPECT_TRUE(spec_now().requires_grad());
}

TEST(ArgumentSpec, FollowsSubmodules) {
  auto inner = testing::module_of("def forward(self, x):\n    return x\n", {{"w", at::ones({2})}});
  torch::jit::Module outer("Outer");
  outer.register_module("inner", inner);
  const ParseOptions options{.resolve_type = [&](const std::string& name) -> c10::TypePtr {
    return name == "__torch__.I" ? inner.type() : outer.type();
  }};
  const auto graph = parse(
      "graph(%self : __torch__.O):\n"
      "  %i : __torch__.I = prim::GetAttr[name=\"inner\"](%self)\n"
      "  %w : Tensor = prim::GetAttr[name=\"w\"](%i)\n"
      "  return (%w)\n",
      options);
  EXPECT_FALSE(spec_of(*graph, {outer._ivalue()}).requires_grad());
  inner._ivalue()->setAttr("w", at::ones({2}).requires_grad_(true));
  EXPECT_TRUE(spec_of(*graph, {outer._ivalue()}).requires_grad());
}

TEST(ArgumentSpec, AnObjectThatGoesWhereItCannotBeFollowedCountsAsRequiringGrad) {
  const auto module = testing::module_of("def forward(self, x):\n    return x\n", {{"w", at::ones({2})}});
  const ParseOptions options{.resolve_type = [&](const std::string&) { return module.type(); }};
  const auto graph =
      parse("graph(%self : __torch__.M):\n  %l : __torch__.M[] = prim::ListConstruct(%self)\n  return (%l)\n", options);
  EXPECT_TRUE(spec_of(*graph, {module._ivalue()}).requires_grad());
}

// ---- state ----------------------------------------------------------------------------------------------------------

TEST(ArgumentSpec, HoldsTheStateOfThreadAndProcess) {
  const Values arguments = {at::ones({2})};
  const ArgumentSpec usual = spec_of("%x : Tensor", arguments);
  {
    const c10::AutoGradMode mode(false);
    EXPECT_FALSE(same(usual, spec_of("%x : Tensor", arguments)));
  }
  {
    const c10::InferenceMode mode;
    EXPECT_FALSE(same(usual, spec_of("%x : Tensor", arguments)));
  }
  at::globalContext().setDeterministicAlgorithms(true, false);
  EXPECT_FALSE(same(usual, spec_of("%x : Tensor", arguments)));
  at::globalContext().setDeterministicAlgorithms(false, false);
  at::set_default_dtype(caffe2::TypeMeta::Make<double>());
  EXPECT_FALSE(same(usual, spec_of("%x : Tensor", arguments)));
  at::set_default_dtype(caffe2::TypeMeta::Make<float>());
  {
    const c10::impl::IncludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCPU);
    EXPECT_FALSE(same(usual, spec_of("%x : Tensor", arguments)));
  }
  EXPECT_TRUE(same(usual, spec_of("%x : Tensor", arguments)));
}

// ---- shared storage -------------------------------------------------------------------------------------------------

TEST(ArgumentSpec, SharedStorageCountsOnlyWhereAnInputIsWritten) {
  const at::Tensor base = at::ones({4});
  const Values shared = {base, base.slice(0, 0, 4)};
  const Values apart = {base, at::ones({4})};
  const auto reading =
      testing::graph_of("graph(%a : Tensor, %b : Tensor):\n  %c : Tensor = aten::mul(%a, %b)\n  return (%c)\n");
  const auto writing =
      testing::graph_of("graph(%a : Tensor, %b : Tensor):\n  %c : Tensor = aten::mul_(%a, %b)\n  return (%c)\n");
  EXPECT_TRUE(same(spec_of(*reading, shared), spec_of(*reading, apart)));
  EXPECT_FALSE(same(spec_of(*writing, shared), spec_of(*writing, apart)));
}

TEST(ArgumentSpec, TellsWhichArgumentsShare) {
  const auto graph =
      testing::graph_of("graph(%a : Tensor, %b : Tensor, %c : Tensor):\n  %w : Tensor = aten::neg_(%a)\n  return (%w)\n");
  const at::Tensor x = at::ones({4});
  const at::Tensor y = at::ones({4});
  EXPECT_FALSE(same(spec_of(*graph, {x, x, y}), spec_of(*graph, {x, y, x})));
  EXPECT_FALSE(same(spec_of(*graph, {x, y, x}), spec_of(*graph, {y, x, x})));
}

TEST(ArgumentSpec, SharedStorageInsideContainersCounts) {
  const auto writing =
      testing::graph_of("graph(%a : Tensor, %l : Tensor[]):\n  %c : Tensor = aten::neg_(%a)\n  return (%c)\n");
  const at::Tensor x = at::ones({4});
  const auto list = [](const at::Tensor& tensor) { return c10::List<at::Tensor>({tensor}); };
  EXPECT_FALSE(same(spec_of(*writing, {x, list(x)}), spec_of(*writing, {x, list(at::ones({4}))})));
}

// ---- in words -------------------------------------------------------------------------------------------------------

TEST(ArgumentSpec, IsDescribedInWords) {
  const ArgumentSpec spec = spec_of("%a : Tensor, %b : Tensor, %c : Tensor?, %l : Tensor[]",
                                    {at::ones({4, 1}).requires_grad_(true), at::ones({3, 3}, at::kLong).t(), c10::IValue(),
                                     c10::List<at::Tensor>({at::ones({})})});
  const std::string text = describe_spec(spec.words());
  for (const char* part : {"grad mode", "Float(*, 1) requires_grad", "Long(*, *) permuted", "None", "Float()"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const c10::AutoGradMode mode(false);
  EXPECT_THAT(describe_spec(spec_of("%a : Tensor", {at::Tensor()}).words()),
              ::testing::AllOf(HasSubstr("no grad"), HasSubstr("undefined")));
}

TEST(ArgumentSpec, IsDescribedAsItsHeaderSays) {
  const ArgumentSpec spec =
      spec_of("%a : Tensor, %b : Tensor, %c : Tensor",
              {at::ones({4, 1}).requires_grad_(true), at::ones({}, at::kLong), at::zeros({}, at::kLong)});
  EXPECT_EQ(describe_spec(spec.words()), "grad mode; Float(*, 1) requires_grad; Long() x2");
}

// Collects specs and their descriptions.
class Descriptions {
 public:
  void add(const ArgumentSpec& spec) {
    const std::vector<uint64_t> words(spec.words().begin(), spec.words().end());
    const std::string text = describe_spec(spec.words());
    const auto [known, is_new] = words_of_.insert({text, words});
    EXPECT_TRUE(is_new) << (known->second == words ? "added twice: " : "two specs have this description: ") << text;
  }

 private:
  std::map<std::string, std::vector<uint64_t>> words_of_;
};

TEST(ArgumentSpec, DifferentStatesHaveDifferentDescriptions) {
  Descriptions descriptions;
  const auto add = [&] { descriptions.add(spec_of("%x : Tensor", {at::ones({2}, at::kLong)})); };
  add();
  for (const bool inference : {false, true}) {
    const c10::InferenceMode mode(inference);
    const c10::AutoGradMode no_grad(false);
    add();
    {
      const c10::impl::IncludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCPU);
      add();
    }
    for (const auto key : {c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutogradCPU, c10::DispatchKey::Python}) {
      const c10::impl::ExcludeDispatchKeyGuard guard(key);
      add();
    }
    for (const auto device : {at::kCPU, at::kCUDA}) {
      at::autocast::set_autocast_enabled(device, true);
      add();
      at::autocast::set_autocast_cache_enabled(false);
      add();
      at::autocast::set_autocast_cache_enabled(true);
      at::autocast::set_autocast_enabled(device, false);
    }
    for (const auto& [deterministic, warn_only] : {std::pair(true, false), std::pair(true, true)}) {
      at::globalContext().setDeterministicAlgorithms(deterministic, warn_only);
      add();
      at::globalContext().setDeterministicAlgorithms(false, false);
    }
    for (const auto& dtype : {caffe2::TypeMeta::Make<double>(), caffe2::TypeMeta::Make<c10::BFloat16>()}) {
      at::set_default_dtype(dtype);
      add();
      at::set_default_dtype(caffe2::TypeMeta::Make<float>());
    }
  }
}

TEST(ArgumentSpec, DifferentArgumentsHaveDifferentDescriptions) {
  Descriptions descriptions;
  const at::Tensor plain = at::ones({2, 2});
  const at::Tensor complex = at::ones({2, 2}, at::kComplexDouble);
  for (const at::Tensor& tensor : {at::Tensor(),
                                   plain,
                                   at::ones({2}),
                                   at::ones({2, 1}),
                                   at::ones({1, 2}),
                                   at::ones({2, 2}, at::kDouble),
                                   at::ones({2, 2}).requires_grad_(true),
                                   at::ones({2, 3}).t(),
                                   at::ones({4, 6}).slice(1, 0, 6, 2),
                                   at::empty_strided({4, 1}, {1, 7}),
                                   at::ones({2, 3, 4, 5}),
                                   at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast),
                                   plain.to_sparse(),
                                   plain.to_sparse().requires_grad_(true),
                                   plain.to_sparse_csr(),
                                   complex,
                                   complex.conj(),
                                   at::imag(complex.conj()),
                                   at::quantize_per_tensor(plain, 0.1, 0, at::kQInt8),
                                   plain.to_mkldnn(),
                                   at::ones(std::vector<int64_t>(17, 1)),
                                   at::ones({2, 2}, at::device(at::kMeta))}) {
    descriptions.add(spec_of("%x : Tensor", {tensor}));
  }
  for (const size_t size : {0, 1, 2, 65}) {
    descriptions.add(spec_of("%l : Tensor[]", {c10::List<at::Tensor>(std::vector<at::Tensor>(size, plain))}));
  }
  descriptions.add(spec_of("%n : int?", {1}));
  descriptions.add(spec_of("%n : int?", {c10::IValue()}));
}

TEST(ArgumentSpec, OneSpecObjectMayBeUsedAgain) {
  ArgumentSpec spec;
  const ArgumentSpecCreator creator(*testing::graph_of("graph(%x : Tensor):\n  return ()\n"));
  creator.create(Values{at::ones({2}).to_sparse()}, spec);
  EXPECT_TRUE(spec.has_exotic());
  creator.create(Values{at::ones({2}).requires_grad_(true)}, spec);
  EXPECT_FALSE(spec.has_exotic());
  EXPECT_TRUE(spec.requires_grad());
  creator.create(Values{at::ones({2})}, spec);
  EXPECT_FALSE(spec.requires_grad());
  EXPECT_TRUE(same(spec, spec_of("%x : Tensor", {at::ones({2})})));
}

}  // namespace
}  // namespace sconce
