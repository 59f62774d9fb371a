// torchvision::nms and torchvision::roi_align on the CPU, with torchvision's schemas. Its own library needs Python; this
// one is what `--ops-library` wants for torchvision's detection models.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/autograd.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

// ---- nms ------------------------------------------------------------------------------------------------------------

// (x1, y1, x2, y2)
template <typename T>
T intersection_over_union(const T* a, const T* b) {
  const auto area = [](const T* box) { return (box[2] - box[0]) * (box[3] - box[1]); };
  const T width = std::max(T(0), std::min(a[2], b[2]) - std::max(a[0], b[0]));
  const T height = std::max(T(0), std::min(a[3], b[3]) - std::max(a[1], b[1]));
  const T shared = width * height;
  return shared / (area(a) + area(b) - shared);
}

// Greedy non-maximum suppression (Girshick, Donahue, Darrell, Malik: Rich feature hierarchies, 2014, section 2.2): by
// falling score, a box is kept unless it overlaps a kept one by more than the threshold.
at::Tensor nms(const at::Tensor& boxes, const at::Tensor& scores, double threshold) {
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, "boxes should be a 2d tensor with 4 columns, got ", boxes.sizes());
  TORCH_CHECK(scores.dim() == 1 && scores.size(0) == boxes.size(0), "one score per box is wanted, got ", scores.sizes());
  const at::Tensor all = boxes.contiguous();
  const at::Tensor order = std::get<1>(scores.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true));
  std::vector<int64_t> kept;
  AT_DISPATCH_FLOATING_TYPES(boxes.scalar_type(), "nms", [&] {
    const scalar_t* box = all.const_data_ptr<scalar_t>();
    for (const int64_t candidate : at::ArrayRef<int64_t>(order.const_data_ptr<int64_t>(), boxes.size(0))) {
      if (std::none_of(kept.begin(), kept.end(), [&](int64_t better) {
            return intersection_over_union(box + 4 * better, box + 4 * candidate) > threshold;
          })) {
        kept.push_back(candidate);
      }
    }
  });
  return at::tensor(kept, boxes.options().dtype(at::kLong));
}

// ---- roi_align ------------------------------------------------------------------------------------------------------

// RoIAlign (He, Gkioxari, Dollár, Girshick: Mask R-CNN, 2017, section 3): each bin is the mean of the image at points
// spread evenly in it, each read by bilinear interpolation. `aligned` has the centers of pixels at whole numbers, by a
// shift of a half (Wu and others: Detectron2, 2019, ROIAlign). It is linear in the image: out[bin] = Σ weight ·
// image[pixel].
struct Geometry {
  double scale;
  int64_t pooled_height;
  int64_t pooled_width;
  int64_t sampling_ratio;  // points per bin and direction; 0 or less: as many as there are pixels
  bool aligned;
  int64_t height;
  int64_t width;
};

// A coordinate between two pixels.
struct Between {
  int64_t low;
  int64_t high;
  double to_high;  // the weight of `high`
};

// Points up to one pixel outside count as on the edge.
Between between_pixels(double place, int64_t size) {
  place = std::max(place, 0.0);
  const auto low = static_cast<int64_t>(place);
  if (low >= size - 1) {
    return {size - 1, size - 1, 0};
  }
  return {low, low + 1, place - static_cast<double>(low)};
}

// Calls visit(bin, pixel, weight) for each pixel of each bin of the region (image, x1, y1, x2, y2).
template <typename T, typename Visit>
void for_each_weight(const T* region, const Geometry& to, const Visit& visit) {
  const double shift = to.aligned ? 0.5 : 0.0;
  const double left = region[1] * to.scale - shift;
  const double top = region[2] * to.scale - shift;
  const double least = to.aligned ? -HUGE_VAL : 1.0;  // without the shift, regions have a pixel at least
  const double bin_width = std::max(region[3] * to.scale - shift - left, least) / static_cast<double>(to.pooled_width);
  const double bin_height = std::max(region[4] * to.scale - shift - top, least) / static_cast<double>(to.pooled_height);
  const auto points = [&](double bin_size) {
    return to.sampling_ratio > 0 ? to.sampling_ratio : static_cast<int64_t>(std::ceil(bin_size));
  };
  const int64_t rows = points(bin_height);
  const int64_t columns = points(bin_width);
  const double share = 1.0 / static_cast<double>(std::max<int64_t>(rows * columns, 1));
  for (int64_t bin = 0; bin < to.pooled_height * to.pooled_width; ++bin) {
    const double bin_top = top + static_cast<double>(bin / to.pooled_width) * bin_height;
    const double bin_left = left + static_cast<double>(bin % to.pooled_width) * bin_width;
    for (int64_t point = 0; point < rows * columns; ++point) {
      const double y = bin_top + (static_cast<double>(point / columns) + 0.5) * bin_height / static_cast<double>(rows);
      const double x = bin_left + (static_cast<double>(point % columns) + 0.5) * bin_width / static_cast<double>(columns);
      if (y < -1 || y > static_cast<double>(to.height) || x < -1 || x > static_cast<double>(to.width)) {
        continue;
      }
      const Between row = between_pixels(y, to.height);
      const Between column = between_pixels(x, to.width);
      visit(bin, row.low * to.width + column.low, share * (1 - row.to_high) * (1 - column.to_high));
      visit(bin, row.low * to.width + column.high, share * (1 - row.to_high) * column.to_high);
      visit(bin, row.high * to.width + column.low, share * row.to_high * (1 - column.to_high));
      visit(bin, row.high * to.width + column.high, share * row.to_high * column.to_high);
    }
  }
}

at::Tensor roi_align(const at::Tensor& images, const at::Tensor& regions, double scale, int64_t pooled_height,
                     int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
  TORCH_CHECK(images.dim() == 4, "images should be a 4d tensor, got ", images.sizes());
  TORCH_CHECK(regions.dim() == 2 && regions.size(1) == 5, "regions should have 5 columns, got ", regions.sizes());
  const int64_t channels = images.size(1);
  const Geometry geometry{scale, pooled_height, pooled_width, sampling_ratio, aligned, images.size(2), images.size(3)};
  const at::Tensor from = images.contiguous();
  const at::Tensor at_regions = regions.to(images.scalar_type()).contiguous();
  at::Tensor pooled = at::zeros({regions.size(0), channels, pooled_height, pooled_width}, images.options());
  const int64_t pixels = geometry.height * geometry.width;
  const int64_t bins = pooled_height * pooled_width;
  AT_DISPATCH_FLOATING_TYPES(images.scalar_type(), "roi_align", [&] {
    for (int64_t i = 0; i < regions.size(0); ++i) {
      const scalar_t* region = at_regions.const_data_ptr<scalar_t>() + 5 * i;
      const scalar_t* image = from.const_data_ptr<scalar_t>() + static_cast<int64_t>(region[0]) * channels * pixels;
      scalar_t* out = pooled.mutable_data_ptr<scalar_t>() + i * channels * bins;
      for_each_weight(region, geometry, [&](int64_t bin, int64_t pixel, double weight) {
        for (int64_t channel = 0; channel < channels; ++channel) {
          out[channel * bins + bin] += static_cast<scalar_t>(weight) * image[channel * pixels + pixel];
        }
      });
    }
  });
  return pooled;
}

// The transpose of the same linear map.
at::Tensor roi_align_backward(const at::Tensor& grad, const at::Tensor& regions, double scale, int64_t pooled_height,
                              int64_t pooled_width, int64_t batch, int64_t channels, int64_t height, int64_t width,
                              int64_t sampling_ratio, bool aligned) {
  const Geometry geometry{scale, pooled_height, pooled_width, sampling_ratio, aligned, height, width};
  const at::Tensor from = grad.contiguous();
  const at::Tensor at_regions = regions.to(grad.scalar_type()).contiguous();
  at::Tensor result = at::zeros({batch, channels, height, width}, grad.options());
  const int64_t pixels = height * width;
  const int64_t bins = pooled_height * pooled_width;
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "roi_align_backward", [&] {
    for (int64_t i = 0; i < regions.size(0); ++i) {
      const scalar_t* region = at_regions.const_data_ptr<scalar_t>() + 5 * i;
      const scalar_t* of_bins = from.const_data_ptr<scalar_t>() + i * channels * bins;
      scalar_t* image = result.mutable_data_ptr<scalar_t>() + static_cast<int64_t>(region[0]) * channels * pixels;
      for_each_weight(region, geometry, [&](int64_t bin, int64_t pixel, double weight) {
        for (int64_t channel = 0; channel < channels; ++channel) {
          image[channel * pixels + pixel] += static_cast<scalar_t>(weight) * of_bins[channel * bins + bin];
        }
      });
    }
  });
  return result;
}

// Differentiable in the images, not in the regions.
class RoiAlign : public torch::autograd::Function<RoiAlign> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& images, const at::Tensor& regions,
                            double scale, int64_t pooled_height, int64_t pooled_width, int64_t sampling_ratio,
                            bool aligned) {
    context->save_for_backward({regions});
    context->saved_data["sizes"] = images.sizes().vec();
    context->saved_data["pooled"] = std::vector<int64_t>{pooled_height, pooled_width};
    context->saved_data["scale"] = scale;
    context->saved_data["sampling_ratio"] = sampling_ratio;
    context->saved_data["aligned"] = aligned;
    const at::AutoDispatchBelowADInplaceOrView below;
    return roi_align(images, regions, scale, pooled_height, pooled_width, sampling_ratio, aligned);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    auto& saved = context->saved_data;
    const auto sizes = saved["sizes"].toIntVector();
    const auto pooled = saved["pooled"].toIntVector();
    at::Tensor of_images = roi_align_backward(grads[0], context->get_saved_variables()[0], saved["scale"].toDouble(),
                                              pooled[0], pooled[1], sizes[0], sizes[1], sizes[2], sizes[3],
                                              saved["sampling_ratio"].toInt(), saved["aligned"].toBool());
    return {of_images, {}, {}, {}, {}, {}, {}};
  }
};

at::Tensor roi_align_autograd(const at::Tensor& images, const at::Tensor& regions, double scale, int64_t pooled_height,
                              int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
  return RoiAlign::apply(images, regions, scale, pooled_height, pooled_width, sampling_ratio, aligned);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torchvision, library) {
  library.def("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor");
  library.def(
      "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
      "int sampling_ratio, bool aligned) -> Tensor");
}

TORCH_LIBRARY_IMPL(torchvision, CPU, library) {
  library.impl("nms", nms);
  library.impl("roi_align", roi_align);
}

TORCH_LIBRARY_IMPL(torchvision, AutogradCPU, library) { library.impl("roi_align", roi_align_autograd); }
