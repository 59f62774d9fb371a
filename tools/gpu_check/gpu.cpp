#include "tools/gpu_check/gpu.h"

#include <algorithm>
#include <stdexcept>

namespace sconce::gpu_check {

using cuda::ignore;

void need(const Expected<void>& status) {
  if (!status) {
    throw std::runtime_error(status.refusal().reason);
  }
}

Gpu::Gpu(cuda::Driver& driver, const cuda::Nvrtc& nvrtc) : driver_(driver), nvrtc_(nvrtc) {
  int count = 0;
  int major = 0;
  int minor = 0;
  need(driver_.device_count(&count));
  if (count == 0) {
    throw std::runtime_error("the driver reports no GPU");
  }
  need(driver_.device(0, &device_));
  need(driver_.device_name(device_, &name_));
  need(driver_.device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_, &major));
  need(driver_.device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_, &minor));
  architecture_ = "sm_" + std::to_string(major) + std::to_string(minor);
  need(driver_.retain_primary_context(device_, &context_));
  need(driver_.push_context(context_));
  need(driver_.create_stream(CU_STREAM_NON_BLOCKING, &stream_));
}

Gpu::~Gpu() {
  ignore(driver_.synchronize_context());
  for (const CUmodule module : modules_) {
    ignore(driver_.unload_module(module));
  }
  ignore(driver_.destroy_stream(stream_));
  ignore(driver_.pop_context());
  ignore(driver_.release_primary_context(device_));
}

CUfunction Gpu::kernel(const std::string& text, const std::string& name) {
  const auto cubin = nvrtc_.compile(text, architecture_);
  if (!cubin) {
    throw std::runtime_error(cubin.refusal().reason);
  }
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  need(driver_.load_module(cubin->bytes.data(), &module));
  modules_.push_back(module);
  need(driver_.module_function(module, name.c_str(), &function));
  return function;
}

Floats::Floats(Gpu& gpu, size_t size) : gpu_(gpu), size_(size) {
  need(gpu_.driver().allocate(size * sizeof(float), &pointer_));
}
Floats::~Floats() { ignore(gpu_.driver().free(pointer_)); }

void Floats::write(const std::vector<float>& values) {
  need(gpu_.driver().copy_to_device(pointer_, values.data(), values.size() * sizeof(float), gpu_.stream()));
  gpu_.synchronize();
}

std::vector<float> Floats::read() const {
  std::vector<float> values(size_);
  need(gpu_.driver().copy_to_host(values.data(), pointer_, size_ * sizeof(float), gpu_.stream()));
  gpu_.synchronize();
  return values;
}

namespace {

class Event {
 public:
  explicit Event(Gpu& gpu) : gpu_(gpu) { need(gpu_.driver().create_event(CU_EVENT_DEFAULT, &handle_)); }
  ~Event() { ignore(gpu_.driver().destroy_event(handle_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record() { need(gpu_.driver().record_event(handle_, gpu_.stream())); }
  double milliseconds_since(const Event& start) {
    float milliseconds = 0;
    need(gpu_.driver().synchronize_event(handle_));
    need(gpu_.driver().elapsed_milliseconds(start.handle_, handle_, &milliseconds));
    return milliseconds;
  }

 private:
  Gpu& gpu_;
  CUevent handle_ = nullptr;
};

}  // namespace

double median_milliseconds(Gpu& gpu, int repeats, const std::function<void()>& work) {
  for (int i = 0; i < 3; ++i) {
    work();
  }
  Event start(gpu);
  Event end(gpu);
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    start.record();
    work();
    end.record();
    times.push_back(end.milliseconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[size_t(repeats) / 2];
}

}  // namespace sconce::gpu_check
