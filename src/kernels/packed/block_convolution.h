// Depthwise convolutions over blocks of channels, and their gradients.
#pragma once

#include "kernels/packed/packed_convolution.h"

namespace sconce {

// Returns whether loops over blocks of channels compute such a convolution and its gradients.
bool suits_blocks(const ConvolutionForm& form);

// The operands of a convolution, and where its result goes.
struct ConvolutionMemory {
  const float* image = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;  // null: zeros
  float* out = nullptr;
};

// Both of the following run on LibTorch's intra-op threads; the bits do not depend on their number.
//
// Computes a convolution that suits blocks.
void compute_convolution(const ConvolutionForm& form, const ConvolutionMemory& memory, Bounds bounds);

// The operands of the gradients, and where these go; null: nowhere.
struct ConvolutionGradients {
  const float* gradient = nullptr;  // of the result; form.result_is_channels_last says how it lies
  const float* image = nullptr;
  const float* weight = nullptr;
  float* of_image = nullptr;
  bool of_image_is_channels_last = false;
  float* of_weight = nullptr;
  bool of_weight_is_channels_last = false;
  float* of_bias = nullptr;  // {channels}
};

// Computes the gradients of a convolution that suits blocks.
void compute_gradients(const ConvolutionForm& form, const ConvolutionGradients& gradients);

}  // namespace sconce
