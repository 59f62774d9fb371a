// The records of operators: rows joined with what LibTorch's registries say.
#include "ops/op.h"

#include "tests/support/graphs.h"

#include "ir/delegate.h"
#include "ir/schema_match.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <thread>

namespace sconce {
namespace {

const Op& op_named(const char* name, const char* overload = "") {
  return op_of(torch::jit::findOperatorFor({name, overload})->schema());
}

TEST(Op, IsOneObjectPerOverloadForAllThreads) {
  const Op* here = &op_named("aten::add", "Tensor");
  const Op* there = nullptr;
  std::thread([&] { there = &op_named("aten::add", "Tensor"); }).join();
  EXPECT_EQ(here, there);
  EXPECT_NE(here, &op_named("aten::add", "Scalar"));
}

TEST(Op, SharesARowAmongOverloads) {
  for (const char* overload : {"Tensor", "Scalar", "int", "t"}) {
    EXPECT_EQ(op_named("aten::add", overload).opcode, Opcode::kAdd) << overload;
  }
  EXPECT_EQ(op_named("aten::add_", "t").opcode, Opcode::kExtend);
  EXPECT_EQ(op_named("aten::add_", "Tensor").opcode, Opcode::kOpaque) << "its functional variant has the opcode";
}

TEST(Op, InPlaceOperatorsKnowTheirFunctionalVariant) {
  const Op& in_place = op_named("aten::relu_");
  ASSERT_NE(in_place.functional, nullptr);
  EXPECT_EQ(in_place.functional, &op_named("aten::relu"));
  EXPECT_EQ(in_place.functional_row()->layout, Layout::kPointwise);
  EXPECT_EQ(op_named("aten::t_").functional, nullptr) << "its result is a view";
}

TEST(Op, SynonymsShareWhatIsKnownOfMemory) {
  EXPECT_EQ(op_named("aten::multiply", "Tensor").canonical, &op_named("aten::mul", "Tensor"));
  EXPECT_FALSE(op_named("aten::multiply", "Tensor").results_may_share_memory);
  EXPECT_EQ(op_named("aten::mul", "Tensor").canonical, nullptr);
}

// Where nothing says that an operator computes strided tensors, its results may hold what they are made of.
TEST(Op, HoldersOfOperandsAreTheDefault) {
  for (const auto& [name, overload] :
       {std::pair("aten::quantize_per_channel", ""), std::pair("aten::_make_per_channel_quantized_tensor", ""),
        std::pair("aten::_empty_per_channel_affine_quantized", ""),
        std::pair("aten::sparse_compressed_tensor", "comp_plain_value_size"),
        std::pair("aten::sparse_csr_tensor", "crow_col_value"),
        std::pair("aten::_sparse_coo_tensor_with_dims_and_tensors", "")}) {
    EXPECT_TRUE(op_named(name, overload).results_may_hold_operands) << name;
  }
  for (const auto& [name, overload] :
       {std::pair("aten::add", "Tensor"), std::pair("aten::multiply", "Tensor"), std::pair("aten::cumsum", ""),
        std::pair("aten::sum", ""), std::pair("aten::linear", ""), std::pair("aten::matmul", ""),
        std::pair("aten::view", ""), std::pair("aten::reshape", ""), std::pair("aten::quantize_per_tensor", ""),
        std::pair("aten::len", "t")}) {
    EXPECT_FALSE(op_named(name, overload).results_may_hold_operands) << name;
    EXPECT_FALSE(op_named(name, overload).may_keep_operands) << name;
  }
  EXPECT_TRUE(op_named("_c10d_functional::wait_tensor", "").may_keep_operands);
}

TEST(Op, CompositesOfOneSchemaAndOtherEffectsAreOthers) {
  const c10::FunctionSchema schema("sconce::test_composite", "", {}, {});
  const Op& writing = composite_op(schema, Opcode::kOpaque, {.writes = true});
  const Op& unknown = composite_op(schema, Opcode::kOpaque, {.unknown = true});
  EXPECT_TRUE(writing.all_effects.writes && !writing.all_effects.unknown);
  EXPECT_TRUE(unknown.all_effects.unknown && unknown.may_change_sizes);
  EXPECT_EQ(&composite_op(schema, Opcode::kOpaque, {.writes = true}), &writing);
}

TEST(Op, AutocastLeavesInPlaceOperatorsAlone) {
  EXPECT_EQ(op_named("aten::addmm").autocast, Autocast::kReduced);
  EXPECT_EQ(op_named("aten::addmm_").autocast, Autocast::kNone);
}

TEST(Op, TheLanguagesKindsHaveRecordsWithoutSchema) {
  const Op* op = language_op(prim::GetAttr);
  ASSERT_NE(op, nullptr);
  EXPECT_TRUE(op->is_language());
  EXPECT_EQ(op->schema, nullptr);
  EXPECT_EQ(language_op(aten::relu), nullptr);
}

TEST(Op, AnUnresolvedNodeHasUnknownEffects) {
  Graph graph;
  Node* node = graph.create(aten::relu, {graph.add_input("x", c10::TensorType::get())});
  EXPECT_TRUE(node->op().all_effects.unknown);
  EXPECT_TRUE(resolve(*node));
  EXPECT_EQ(&node->op(), &op_named("aten::relu"));
  EXPECT_FALSE(node->op().all_effects.any());
}

// The kernel keeps the place of the schema while the operator leaves the registry and comes back.
TEST(Op, AnOperatorThatIsDefinedAgainHasARecordOfItsOwn) {
  const auto defined = [](const char* schema) {
    auto library = std::make_unique<torch::Library>(torch::Library::DEF, "sconce_again", std::nullopt, __FILE__, __LINE__);
    library->def(schema, {at::Tag::pt2_compliant_tag});
    return library;
  };
  const auto record = [] { return &op_of(c10::Dispatcher::singleton().findSchemaOrThrow("sconce_again::f", "").schema()); };
  torch::Library kernels(torch::Library::IMPL, "sconce_again", c10::DispatchKey::CPU, __FILE__, __LINE__);
  kernels.impl("f", [](const at::Tensor& x) { return x.clone(); });
  auto library = defined("f(Tensor x) -> Tensor");
  EXPECT_FALSE(record()->all_effects.any());
  library.reset();
  library = defined("f(Tensor(a!) x) -> Tensor");
  EXPECT_TRUE(record()->all_effects.any());
}

TEST(Op, AnOperatorOfALibraryMayHaveEffectsUnlessItsLibraryDeniesIt) {
  torch::Library library(torch::Library::DEF, "sconce_foreign", std::nullopt, __FILE__, __LINE__);
  library.def("counts(Tensor x) -> Tensor");
  library.def("computes(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});
  const auto record = [](const char* name) {
    return &op_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, "").schema());
  };
  EXPECT_TRUE(record("sconce_foreign::counts")->all_effects.external);
  EXPECT_FALSE(record("sconce_foreign::computes")->all_effects.any());
}

TEST(Op, ADelegateHasASchemaOfItsOwnTypes) {
  Graph graph;
  Value* x = graph.add_input("x", c10::TensorType::get());
  Node* first = graph.create(kDelegateKind, {x});
  Node* second = graph.create(kDelegateKind, {x});
  Node* wider = graph.create(kDelegateKind, {x, x});
  for (Node* node : {first, second, wider}) {
    EXPECT_TRUE(resolve(*node));
    EXPECT_EQ(node->opcode(), Opcode::kDelegate);
    EXPECT_FALSE(node->op().all_effects.any() || node->op().results_may_share_memory);
  }
  EXPECT_EQ(&first->op(), &second->op());
  EXPECT_NE(&first->op(), &wider->op());
  EXPECT_EQ(wider->schema()->arguments().size(), 2U);
}

}  // namespace
}  // namespace sconce
