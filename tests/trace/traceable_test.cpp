// Which calls a trace can repeat, by LibTorch's own operators.
#include "trace/traceable.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Stream.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<c10::IValue>;

c10::OperatorHandle operator_of(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

const Op& op_named(const char* name, const char* overload = "") {
  return op_of(torch::jit::findOperatorFor({name, overload})->schema());
}

// Arguments that are not given are the defaults.
Values with_defaults(const c10::FunctionSchema& schema, Values arguments) {
  for (size_t i = arguments.size(); i < schema.arguments().size(); ++i) {
    arguments.push_back(schema.arguments()[i].default_value().value_or(c10::IValue()));
  }
  return arguments;
}

std::string why_not(const c10::OperatorHandle& op, Values arguments) {
  return why_not_traceable(op, with_defaults(op.schema(), std::move(arguments)));
}

// Calls what a node would call.
Values run_op(const Op& op, Values arguments) {
  torch::jit::Stack stack = with_defaults(*op.schema, std::move(arguments));
  op.registered->getOperation()(stack);
  return stack;
}

TEST(Traceable, OperatorsWithResultsOfKnownSizes) {
  const at::Tensor x = at::ones({3, 4});
  EXPECT_EQ(why_not(operator_of("aten::add", "Tensor"), {x, x}), "");
  EXPECT_EQ(why_not(operator_of("aten::add_", "Tensor"), {x, x}), "");
  EXPECT_EQ(why_not(operator_of("aten::split", "Tensor"), {x, 2}), "");
  EXPECT_EQ(why_not(operator_of("aten::dropout"), {x, 0.5, true}), "");
  EXPECT_EQ(why_not(operator_of("aten::linear"), {x, x, at::Tensor()}), "");
}

TEST(Traceable, IsRefusedWhereElementsDecideSizes) {
  const std::string reason = "the sizes of its results depend on the elements of its operands";
  const at::Tensor x = at::ones({3, 4});
  EXPECT_EQ(why_not(operator_of("aten::nonzero"), {x}), reason);
  EXPECT_EQ(why_not(operator_of("aten::masked_select"), {x, x > 0}), reason);
  EXPECT_EQ(why_not(operator_of("aten::_unique2"), {x}), reason);
  EXPECT_EQ(why_not(operator_of("aten::repeat_interleave", "Tensor"), {at::ones({2}, at::kLong)}), reason);
}

TEST(Traceable, IsIndexingByPositionsAndNotByAMask) {
  const c10::OperatorHandle index = operator_of("aten::index", "Tensor");
  const at::Tensor x = at::ones({3, 4});
  const at::Tensor rows = at::zeros({2}, at::kLong);
  using Indices = c10::List<std::optional<at::Tensor>>;
  const std::vector<std::pair<Indices, at::Tensor>> by_position = {
      {Indices({rows}), x.index({rows})}, {Indices({std::nullopt, rows}), x.index({at::indexing::Slice(), rows})}};
  for (const auto& [indices, expected] : by_position) {
    EXPECT_EQ(why_not(index, {x, indices}), "");
    EXPECT_TRUE(at::equal(run_op(op_named("aten::index", "Tensor"), {x, indices}).front().toTensor(), expected));
  }
  EXPECT_EQ(why_not(index, {x, c10::List<at::Tensor>({rows, rows})}), "") << "TorchScript's list, where none is None";
  for (const at::ScalarType dtype : {at::kBool, at::kByte}) {
    EXPECT_THAT(why_not(index, {x, Indices({at::ones({3}, dtype)})}), HasSubstr("depend on the elements"));
    EXPECT_THAT(why_not(index, {x, Indices({std::nullopt, at::ones({4}, dtype)})}), HasSubstr("depend on the elements"));
  }
}

TEST(Traceable, IsRefusedWhereTensorsGetOtherMemory) {
  const at::Tensor x = at::ones({3});
  EXPECT_EQ(why_not(operator_of("aten::set_", "source_Tensor"), {x, at::ones({2})}),
            "it gives a tensor the memory of another");
  EXPECT_EQ(why_not(operator_of("aten::set_"), {x}), "it gives a tensor the memory of another");
}

TEST(Traceable, IsRefusedWhereGradModeDecidesResults) {
  const c10::OperatorHandle rnn = operator_of("aten::_cudnn_rnn");
  EXPECT_THAT(why_not(rnn, Values(rnn.schema().arguments().size())), HasSubstr("only in grad mode"));
}

TEST(Traceable, IsRefusedWithAnArgumentThatNoConstantCanBe) {
  const at::Tensor x = at::ones({3});
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  EXPECT_EQ(why_not(operator_of("aten::normal_"), {x, 0.0, 1.0, generator}),
            "its argument 'generator' cannot be a constant of a graph");
  EXPECT_EQ(why_not(operator_of("aten::normal_"), {x, 0.0, 1.0}), "");
  EXPECT_EQ(why_not(operator_of("aten::record_stream"), {x, c10::Stream(c10::Stream::DEFAULT, x.device())}),
            "its argument 's' cannot be a constant of a graph");
}

TEST(Traceable, IsRefusedWithSparseTensors) {
  const at::Tensor x = at::eye(3);
  for (const at::Tensor& sparse : {x.to_sparse(), x.to_sparse_csr()}) {
    EXPECT_EQ(why_not(operator_of("aten::mm"), {sparse, x}), "its argument 'self' is a sparse tensor");
    EXPECT_EQ(why_not(operator_of("aten::mm"), {x, sparse}), "its argument 'mat2' is a sparse tensor");
    const c10::List<at::Tensor> list({x, sparse});
    EXPECT_EQ(why_not(operator_of("aten::cat"), {list, 0}), "its argument 'tensors' has a sparse tensor");
  }
  EXPECT_EQ(why_not(operator_of("aten::mm"), {x, x}), "");
}

TEST(Traceable, IsRefusedWhereANumberIsReadFromElements) {
  const std::string reason = "it reads a number from a tensor, on which what follows may depend";
  const at::Tensor x = at::ones({1});
  EXPECT_EQ(why_not(operator_of("aten::_local_scalar_dense"), {x}), reason);
  EXPECT_EQ(why_not(operator_of("aten::equal"), {x, x}), reason);
  EXPECT_EQ(why_not(operator_of("aten::is_nonzero"), {x}), reason);
  EXPECT_EQ(why_not(operator_of("aten::allclose"), {x, x}), reason);
  EXPECT_EQ(why_not(operator_of("aten::sym_size", "int"), {x, 0}), "") << "no element";
  EXPECT_EQ(why_not(operator_of("aten::is_same_size"), {x, x}), "") << "no element";
}

TEST(Traceable, ReadsOfNumbersHaveNoOtherResult) {
  for (const char* name : {"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"}) {
    EXPECT_TRUE(reads_number(operator_of(name))) << name;
    EXPECT_FALSE(op_named(name).schema->is_mutable()) << name;
    EXPECT_FALSE(op_named(name).schema->returns()[0].type()->isSubtypeOf(*c10::TensorType::get())) << name;
  }
  EXPECT_FALSE(reads_number(operator_of("aten::sum")));
  EXPECT_FALSE(reads_number(operator_of("aten::sym_size", "int")));
}

// A number that LibTorch has made a tensor of promotes dtypes as a number does, so that the call with the number has the
// same results.
TEST(TracedCall, HasNumbersInPlaceOfTheirTensors) {
  const at::Tensor x = at::arange(6, at::kInt);
  at::Tensor two = at::scalar_tensor(2.5, at::kDouble);
  two.unsafeGetTensorImpl()->set_wrapped_number(true);
  const c10::OperatorHandle mul = operator_of("aten::mul", "Tensor");
  const TracedCall call = traced_call(mul, {x, two});
  EXPECT_EQ(call.op, &op_named("aten::mul", "Scalar"));
  EXPECT_EQ(call.arguments[1].toScalar().toDouble(), 2.5);
  const at::Tensor found = run_op(*call.op, call.arguments).front().toTensor();
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(found, x.mul(two)));

  const at::Tensor plain = at::scalar_tensor(2.5, at::kDouble);
  EXPECT_EQ(traced_call(mul, {x, plain}).op, &op_named("aten::mul", "Tensor")) << "a tensor of the program's";
  EXPECT_EQ(traced_call(operator_of("aten::mm"), {two, two}).op, &op_named("aten::mm")) << "no overload takes a number";
}

TEST(ViewInPlace, MakesOfATensorWhatTheViewIs) {
  struct View {
    const char* name;
    const char* overload;
    Values arguments;  // after the first
  };
  const std::vector<View> views = {
      {"aten::t_", "", {}},
      {"aten::transpose_", "", {0, 1}},
      {"aten::squeeze_", "", {}},
      {"aten::squeeze_", "dim", {1}},
      {"aten::squeeze_", "dims", {std::vector<int64_t>{0, 1}}},
      {"aten::unsqueeze_", "", {-1}},
      {"aten::as_strided_", "", {std::vector<int64_t>{2, 2}, std::vector<int64_t>{1, 2}, 1}},
  };
  for (const View& each : views) {
    const Op& in_place = op_named(each.name, each.overload);
    const Op* view = view_in_place_of(in_place);
    ASSERT_NE(view, nullptr) << each.name << "." << each.overload;
    const at::Tensor x = at::arange(5).unsqueeze(1);
    at::Tensor changed = x.detach();
    const auto with = [&](const at::Tensor& tensor) {
      Values all = {tensor};
      all.insert(all.end(), each.arguments.begin(), each.arguments.end());
      return all;
    };
    run_op(in_place, with(changed));
    const at::Tensor made = run_op(*view, with(x)).front().toTensor();
    EXPECT_TRUE(made.is_alias_of(x)) << each.name;
    EXPECT_EQ(x.sizes(), at::IntArrayRef({5, 1})) << each.name << " changes its operand";
    EXPECT_EQ(made.sizes(), changed.sizes()) << each.name;
    EXPECT_EQ(made.strides(), changed.strides()) << each.name;
    EXPECT_EQ(made.storage_offset(), changed.storage_offset()) << each.name;
  }
}

TEST(ViewInPlace, IsNoneWhereElementsOrMemoryChange) {
  EXPECT_EQ(view_in_place_of(op_named("aten::relu_")), nullptr);
  EXPECT_EQ(view_in_place_of(op_named("aten::resize_")), nullptr);
  EXPECT_EQ(view_in_place_of(op_named("aten::set_", "source_Tensor")), nullptr);
  EXPECT_EQ(view_in_place_of(op_named("aten::transpose", "int")), nullptr);
}

// With deterministic algorithms, LibTorch fills memory without contents with NaN.
TEST(NewMemory, HasNoContentsWhereOnlySizesAreGiven) {
  struct Factory {
    const char* name;
    const char* overload;
    Values arguments;
    bool has_contents;
  };
  const at::Tensor x = at::ones({2, 3});
  const std::vector<int64_t> sizes = {2, 3};
  const std::vector<int64_t> strides = {3, 1};
  const std::vector<Factory> factories = {
      {"aten::empty", "memory_format", {sizes}, false},
      {"aten::empty_strided", "", {sizes, strides}, false},
      {"aten::empty_like", "", {x}, false},
      {"aten::empty_permuted", "", {sizes, std::vector<int64_t>{1, 0}}, false},
      {"aten::new_empty", "", {x, sizes}, false},
      {"aten::new_empty_strided", "", {x, sizes, strides}, false},
      {"aten::zeros", "", {sizes}, true},
      {"aten::full", "", {sizes, 2.0}, true},
      {"aten::ones_like", "", {x}, true},
      {"aten::new_zeros", "", {x, sizes}, true},
      {"aten::rand", "", {sizes}, true},
      {"aten::clone", "", {x}, true},
  };
  at::globalContext().setDeterministicAlgorithms(true, false);
  for (const Factory& each : factories) {
    const Op& op = op_named(each.name, each.overload);
    EXPECT_EQ(op.makes_no_contents, !each.has_contents) << each.name;
    const at::Tensor made = run_op(op, each.arguments).front().toTensor();
    EXPECT_EQ(made.isnan().all().item<bool>(), !each.has_contents) << each.name;
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

// Runs the operator on two tensors of different contents. Returns whether they hold the same afterwards.
bool forgets_contents(const Op& op, const Values& arguments, size_t index) {
  std::vector<at::Tensor> written;
  for (const double before : {1.0, std::numeric_limits<double>::quiet_NaN()}) {
    Values all = arguments;
    all[index] = at::full({2, 3}, before);
    at::manual_seed(3);
    run_op(op, all);
    written.push_back(all[index].toTensor());
  }
  return at::equal(written[0], written[1]);
}

TEST(OverwrittenArgument, KeepsNothingOfWhatItHeld) {
  struct Call {
    const char* name;
    const char* overload;
    Values arguments;
    size_t index = 0;
  };
  const at::Tensor x = at::randn({2, 3});
  const std::vector<Call> calls = {
      {"aten::fill_", "Scalar", {x, 2}},
      {"aten::fill_", "Tensor", {x, at::scalar_tensor(2)}},
      {"aten::zero_", "", {x}},
      {"aten::copy_", "", {x, at::ones({3})}},
      {"aten::normal_", "", {x}},
      {"aten::uniform_", "", {x}},
      {"aten::random_", "", {x}},
      {"aten::random_", "from", {x, 2, 9}},
      {"aten::bernoulli_", "float", {x, 0.5}},
      {"aten::bernoulli_", "Tensor", {x, at::full({2, 3}, 0.5)}},
      {"aten::exponential_", "", {x}},
      {"aten::add", "out", {x, x, 1, x}, 3},
      {"aten::cat", "out", {c10::List<at::Tensor>({x.slice(0, 1), x.slice(0, 1)}), 0, x}, 2},
  };
  for (const Call& call : calls) {
    const Op& op = op_named(call.name, call.overload);
    EXPECT_TRUE(overwrites_argument(op, call.index)) << call.name << "." << call.overload;
    EXPECT_TRUE(forgets_contents(op, call.arguments, call.index)) << call.name << "." << call.overload;
    EXPECT_FALSE(call.index == 0 ? call.arguments.size() > 1 && overwrites_argument(op, 1) : overwrites_argument(op, 0))
        << call.name << "." << call.overload << " overwrites one argument";
  }
}

TEST(OverwrittenArgument, IsNoneThatIsReadOrWrittenInPart) {
  const at::Tensor x = at::randn({2, 3});
  for (const auto& [name, overload, arguments] : std::vector<std::tuple<const char*, const char*, Values>>{
           {"aten::add_", "Tensor", {x, x}},
           {"aten::relu_", "", {x}},
           {"aten::masked_fill_", "Scalar", {x, x > 0, 7}},
           {"aten::index_fill_", "int_Scalar", {x, 0, at::zeros({1}, at::kLong), 7}}}) {
    const Op& op = op_named(name, overload);
    EXPECT_FALSE(overwrites_argument(op, 0)) << name;
    EXPECT_FALSE(forgets_contents(op, arguments, 0)) << name;
  }
}

}  // namespace
}  // namespace sconce::testing
