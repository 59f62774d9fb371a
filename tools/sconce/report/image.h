// Images in pages.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace sconce::cli {

// Returns whether a tensor has the form of an image: [height, width], or [channels, height, width] with 1, 3 or 4 channels
// (gray, RGB, RGBA), of uint8 or floating-point numbers, with at least six pixels in each direction.
bool is_image(const at::Tensor& tensor);

// Returns an <img> with the image inside: at most 64 pixels in each direction, taken at equal distances. Numbers outside of
// [0, 1] are spread over the range from black to white; RGBA is drawn on white. Requires `is_image`.
std::string image_element(const at::Tensor& tensor);

}  // namespace sconce::cli
