// A GPU for the checks of this program: the driver alone, without LibTorch. Failures are exceptions, which fail the
// check that they happen in.
#pragma once

#include "cuda/driver.h"
#include "cuda/nvrtc.h"

#include <functional>
#include <string>
#include <vector>

namespace sconce::gpu_check {

// Throws std::runtime_error with the driver's message.
void need(const Expected<void>& status);

template <typename T>
T value_of(Expected<T> result) {
  need(result ? Expected<void>() : result.refusal());
  return std::move(*result);
}

class Gpu {
 public:
  // Opens device 0. Throws, with the reason, if there is none.
  Gpu(cuda::Driver& driver, const cuda::Nvrtc& nvrtc);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  cuda::Driver& driver() { return driver_; }
  const cuda::Nvrtc& nvrtc() const { return nvrtc_; }
  CUstream stream() const { return stream_; }
  const std::string& name() const { return name_; }
  const std::string& architecture() const { return architecture_; }  // "sm_90"

  // Compiles the text for this GPU and returns the kernel of this name, which is valid as long as the Gpu.
  CUfunction kernel(const std::string& text, const std::string& name);
  void synchronize() { need(driver_.synchronize_stream(stream_)); }

 private:
  cuda::Driver& driver_;
  const cuda::Nvrtc& nvrtc_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::string name_;
  std::string architecture_;
  std::vector<CUmodule> modules_;
};

// Device memory for `size` floats.
class Floats {
 public:
  Floats(Gpu& gpu, size_t size);
  ~Floats();
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  CUdeviceptr pointer() const { return pointer_; }
  size_t size() const { return size_; }
  void write(const std::vector<float>& values);  // both wait until it is done
  std::vector<float> read() const;

 private:
  Gpu& gpu_;
  size_t size_;
  CUdeviceptr pointer_ = 0;
};

// Returns the milliseconds of GPU time that `work` takes on the stream: the median of `repeats` runs, after three warm-up
// runs.
double median_milliseconds(Gpu& gpu, int repeats, const std::function<void()>& work);

}  // namespace sconce::gpu_check
