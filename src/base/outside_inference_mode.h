// OutsideInferenceMode: makes ordinary tensors also where the caller is in inference mode.
#pragma once

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

namespace sconce {

// During its life, c10::InferenceMode is off, and gradients are recorded if the caller records them. LibTorch counts no
// writes to inference tensors, so that what is computed from them cannot be kept, and autograd cannot save them.
class OutsideInferenceMode {
 private:
  const bool records_gradients_ = c10::GradMode::is_enabled();  // which InferenceMode sets
  const c10::InferenceMode normal_{false};
  const c10::AutoGradMode gradients_{records_gradients_};
};

}  // namespace sconce
