#include "tools/sconce/report/image.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>

namespace sconce::cli {
namespace {

constexpr int64_t kLeastSide = 6;
constexpr int64_t kMostSide = 64;

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = i; k < i + 3; ++k) {
      bits = bits << 8 | (k < bytes.size() ? static_cast<uint8_t>(bytes[k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k <= bytes.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

void add_number(std::string& bytes, int64_t number, int width) {
  for (int i = 0; i < width; ++i) {
    bytes += static_cast<char>(number >> (8 * i));
  }
}

// `pixels`: uint8 [3, height, width].
std::string bitmap(const at::Tensor& pixels) {
  constexpr int64_t kHeader = 54;
  const int64_t height = pixels.size(1);
  const int64_t width = pixels.size(2);
  const int64_t row = (3 * width + 3) / 4 * 4;
  std::string bytes = "BM";
  for (const int64_t number : {kHeader + row * height, int64_t{0}, kHeader, int64_t{40}, width, height}) {
    add_number(bytes, number, 4);
  }
  add_number(bytes, 1, 2);   // planes
  add_number(bytes, 24, 2);  // bits of a pixel
  bytes.resize(kHeader);
  const at::Tensor rows = pixels.flip({0, 1}).permute({1, 2, 0}).contiguous();  // from below, blue first
  for (int64_t y = 0; y < height; ++y) {
    const char* const data = reinterpret_cast<const char*>(rows.const_data_ptr<uint8_t>()) + y * 3 * width;
    bytes.append(data, static_cast<size_t>(3 * width));
    bytes.append(static_cast<size_t>(row - 3 * width), '\0');
  }
  return bytes;
}

// Returns uint8 [3, height, width].
at::Tensor pixels_of(const at::Tensor& image) {
  const int64_t step = (std::max(image.size(-1), image.size(-2)) + kMostSide - 1) / kMostSide;
  at::Tensor planes = image.dim() == 2 ? image.unsqueeze(0) : image;
  planes = planes.slice(1, 0, std::nullopt, step).slice(2, 0, std::nullopt, step);
  const bool has_bytes = planes.scalar_type() == at::kByte;
  planes = planes.to(at::kFloat).nan_to_num(/*nan=*/0, /*posinf=*/1, /*neginf=*/0);
  const double least = planes.min().item<double>();
  const double most = planes.max().item<double>();
  if (has_bytes) {
    planes = planes / 255;
  } else if (least < 0 || most > 1) {
    planes = (planes - least) / std::max(most - least, 1e-30);
  }
  if (planes.size(0) == 4) {
    const at::Tensor opacity = planes.slice(0, 3, 4);
    planes = planes.slice(0, 0, 3) * opacity + (1 - opacity);
  }
  return (planes * 255).round().clamp(0, 255).to(at::kByte).expand({3, planes.size(1), planes.size(2)});
}

}  // namespace

bool is_image(const at::Tensor& tensor) {
  const bool has_planes = tensor.dim() == 3 && (tensor.size(0) == 1 || tensor.size(0) == 3 || tensor.size(0) == 4);
  return (tensor.dim() == 2 || has_planes) && tensor.size(-1) >= kLeastSide && tensor.size(-2) >= kLeastSide &&
         (tensor.scalar_type() == at::kByte || at::isFloatingType(tensor.scalar_type()));
}

std::string image_element(const at::Tensor& tensor) {
  return "<img alt=\"\" src=\"data:image/bmp;base64," + base64(bitmap(pixels_of(tensor))) + "\"/>";
}

}  // namespace sconce::cli
