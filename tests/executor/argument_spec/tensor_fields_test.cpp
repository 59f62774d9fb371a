#include "executor/argument_spec/tensor_fields.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sconce {
namespace {

bool has(const at::Tensor& tensor, tensor_traits::Flag flag) {
  return ((TensorFields::traits_of(*tensor.unsafeGetTensorImpl()) >> tensor_traits::kFlagsShift) & flag) != 0;
}

std::vector<at::Tensor> tensors() {
  const at::Tensor image = at::ones({2, 3, 4, 5});
  const at::Tensor leaf = at::ones({2}).requires_grad_(true);
  std::vector<at::Tensor> all = {
      at::ones({}),
      at::ones({0, 3}),
      image,
      image.contiguous(at::MemoryFormat::ChannelsLast),
      at::ones({2, 3, 4, 5, 6}).contiguous(at::MemoryFormat::ChannelsLast3d),
      image.transpose(1, 2),
      image.expand({2, 2, 3, 4, 5}),
      image.slice(3, 0, 5, 2),
      at::ones({1, 1, 1, 1, 1, 1, 2}),
      leaf,
      leaf * 2,
      leaf.detach(),
      at::empty({2}, at::kMeta),
      at::scalar_tensor(1.5),
      at::ones({3}).to_sparse(),
  };
  for (const auto dtype :
       {at::kBool, at::kByte, at::kLong, at::kHalf, at::kBFloat16, at::kDouble, at::kComplexFloat, at::kUInt64}) {
    all.push_back(at::empty({2}, dtype));
  }
  at::Tensor number = at::ones({});
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  all.push_back(number);
  return all;
}

TEST(TensorFields, AgreeWithTheAccessors) {
  for (const at::Tensor& tensor : tensors()) {
    SCOPED_TRACE(tensor.toString() + " " + c10::str(tensor.sizes()));
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    EXPECT_EQ(TensorFields::key_set_of(impl), tensor.key_set());
    EXPECT_EQ(TensorFields::autograd_meta_of(impl), impl.autograd_meta());
    EXPECT_EQ(TensorFields::traits_of(impl) & tensor_traits::kDtypeMask, static_cast<uint64_t>(tensor.scalar_type()));
    EXPECT_EQ(has(tensor, tensor_traits::kWrappedNumber), impl.is_wrapped_number());
    if (tensor.is_sparse()) {
      continue;  // without strides
    }
    const auto& shape = TensorFields::sizes_and_strides_of(impl);
    EXPECT_EQ(c10::IntArrayRef(shape.sizes_data(), shape.size()), tensor.sizes());
    EXPECT_EQ(c10::IntArrayRef(shape.strides_data(), shape.size()), tensor.strides());
    EXPECT_EQ(has(tensor, tensor_traits::kContiguous), tensor.is_contiguous());
    EXPECT_EQ(has(tensor, tensor_traits::kChannelsLast), impl.is_strides_like_channels_last());
    EXPECT_EQ(has(tensor, tensor_traits::kChannelsLast3d), impl.is_strides_like_channels_last_3d());
    EXPECT_EQ(has(tensor, tensor_traits::kDense), impl.is_non_overlapping_and_dense());
  }
}

// What is read of autograd's metadata without an accessor of its own.
TEST(TensorFields, SeeForwardGradients) {
  const at::Tensor tensor = at::ones({2});
  EXPECT_EQ(TensorFields::autograd_meta_of(*tensor.unsafeGetTensorImpl()), nullptr);
  const at::Tensor leaf = at::ones({2}).requires_grad_(true);
  const auto* meta = TensorFields::autograd_meta_of(*leaf.unsafeGetTensorImpl());
  ASSERT_NE(meta, nullptr);
  EXPECT_TRUE(meta->requires_grad_);
  EXPECT_EQ(meta->fw_grad_, nullptr);
  const at::Tensor computed = leaf * 2;
  EXPECT_NE(TensorFields::autograd_meta_of(*computed.unsafeGetTensorImpl())->grad_fn_, nullptr);
}

}  // namespace
}  // namespace sconce
