#pragma once

#include <ATen/autocast_mode.h>

namespace sconce::testing {

// An autocast region for one kind of device.
class AutocastRegion {
 public:
  AutocastRegion(at::DeviceType device, at::ScalarType dtype)
      : device_(device), dtype_before_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_dtype(device, dtype);
    at::autocast::set_autocast_enabled(device, true);
  }
  ~AutocastRegion() {
    at::autocast::set_autocast_enabled(device_, false);
    at::autocast::set_autocast_dtype(device_, dtype_before_);
    at::autocast::clear_cache();
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  at::DeviceType device_;
  at::ScalarType dtype_before_;
};

}  // namespace sconce::testing
