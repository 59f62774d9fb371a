#include "base/compiled_meta_kernels.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

namespace sconce {
namespace {

// What Python registers: kernels that can be called with boxed arguments alone.
void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK(false, op.schema().name(), " ran by the other kernel");
}

class CompiledMetaKernelsTest : public ::testing::Test {
 protected:
  CompiledMetaKernelsTest() {
    aten_.impl("addmm", torch::CppFunction::makeFromBoxedFunction<&refuse>());
    own_.def("only_boxed(Tensor x) -> Tensor");
    own_meta_.impl("only_boxed", torch::CppFunction::makeFromBoxedFunction<&refuse>());
  }

  const at::Tensor x_ = at::empty({3, 4}, at::TensorOptions().device(at::kMeta));
  const at::Tensor w_ = at::empty({5, 4}, at::TensorOptions().device(at::kMeta));
  const at::Tensor b_ = at::empty({5}, at::TensorOptions().device(at::kMeta));

 private:
  torch::Library aten_{torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__};
  torch::Library own_{torch::Library::FRAGMENT, "sconce_test_meta", std::nullopt, __FILE__, __LINE__};
  torch::Library own_meta_{torch::Library::IMPL, "sconce_test_meta", c10::DispatchKey::Meta, __FILE__, __LINE__};
};

TEST_F(CompiledMetaKernelsTest, RunInPlaceOfOthers) {
  EXPECT_THROW(at::linear(x_, w_, b_), c10::Error);
  {
    const CompiledMetaKernels compiled;
    EXPECT_EQ(at::linear(x_, w_, b_).sizes(), (std::vector<int64_t>{3, 5}));
    EXPECT_EQ(at::zeros({2}, at::TensorOptions().device(at::kMeta)).sizes(), std::vector<int64_t>{2});
    EXPECT_TRUE(at::linear(at::ones({3, 4}), at::ones({5, 4}), at::ones({5})).is_cpu());
  }
  EXPECT_FALSE(CompiledMetaKernels::is_active());
  EXPECT_THROW(at::linear(x_, w_, b_), c10::Error);
}

TEST_F(CompiledMetaKernelsTest, SayWhenThereIsNone) {
  const auto call = [this] {
    torch::jit::Stack stack = {x_};
    c10::Dispatcher::singleton().findSchemaOrThrow("sconce_test_meta::only_boxed", "").callBoxed(&stack);
  };
  const CompiledMetaKernels compiled;
  EXPECT_THROW(call(), c10::NotImplementedError);
}

}  // namespace
}  // namespace sconce
