// What this machine can do at most: arithmetic and memory traffic, measured.
#pragma once

#include "report/json.h"

#include <sconce/step_trace.h>

#include <optional>
#include <vector>

namespace sconce::cli {

// The roofline of Williams, Waterman and Patterson ("Roofline: an insightful visual performance model", 2009), with the
// bandwidth as a function of the memory that is walked over, since caches differ from memory by factors.
struct MachineLimits {
  struct Bandwidth {
    double bytes;             // that all threads together read again and again
    double bytes_per_second;  // the best that was seen for so many bytes, or more
  };
  int threads = 1;
  double float_flops = 0;             // per second: multiplications and additions of float32, in vectors
  double double_flops = 0;            // of float64
  std::vector<Bandwidth> bandwidths;  // by bytes, the fewest first

  // Returns the bandwidth for memory of this size, between the measured points by the logarithm of the size.
  double bandwidth(double bytes) const;
  // Returns the least time of a step. `constant_bytes`: of all steps of the call, which are walked over from call to call.
  // Nothing for float16 and bfloat16, whose arithmetic is not measured; that of integers is taken to cost nothing.
  std::optional<double> seconds_of(const StepWork& work, double constant_bytes) const;
};

// Measures for about half a second, and returns the best that this processor has reached with this number of threads, now or
// earlier: the folder of kept kernels has the earlier figures. A machine that was busy then is measured right another time.
MachineLimits limits_of_this_machine(int threads);

Json to_json(const MachineLimits& limits);

}  // namespace sconce::cli
