// The gradients of convolutions by tiles.
#pragma once

#include "kernels/packed/block_convolution.h"

namespace sconce {

// Returns whether tiles compute the gradients of such a convolution faster than oneDNN does.
bool suits_tiled_gradients(const ConvolutionForm& form);

// Computes the gradients of a convolution that suits tiles, on LibTorch's intra-op threads; the bits do not depend on their
// number. Zeros around images are multiplied: the weights must be finite where the gradient of the image is asked for, and
// the gradients of results where that of the weights is, if the image is padded.
//
// Both gradients are convolutions themselves. That of the image is one of the result's gradients with the kernel turned
// around. With a stride, the pixels whose places have the same remainder are reached by the same elements of the kernel, and
// are one convolution. That of the weights is a product whose rows are the elements of the kernel, whose columns are the
// channels of the result, and whose depth are the pixels of the result in all images.
void compute_gradients_by_tiles(const ConvolutionForm& form, const ConvolutionGradients& gradients);

}  // namespace sconce
