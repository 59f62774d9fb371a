// The loops of SoftmaxRows with vectors of kLanes elements. See vectors_code.h for what the code may call.

// Combines halves with each other: one element after the other would wait for each comparison.
SCONCE_INLINE float greatest_of(Vector value) {
  float parts[kLanes];
  store(parts, value);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      parts[i] = parts[i] <= parts[i + half] || parts[i + half] != parts[i + half] ? parts[i + half] : parts[i];
    }
  }
  return parts[0];
}

inline SoftmaxRows::Sum exponentiate(float* scores, int64_t count) {
  const float infinity = __builtin_inff();
  const int64_t whole = count / kLanes * kLanes;
  Vector most = Vector{} - infinity;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vector value = load(scores + i);
    most = select(value <= most, most, value);  // also NaN
  }
  float greatest = greatest_of(most);
  for (int64_t i = whole; i < count; ++i) {
    greatest = scores[i] <= greatest ? greatest : scores[i];
  }
  if (greatest == -infinity) {
    for (int64_t i = 0; i < count; ++i) {
      scores[i] = 0;
    }
    return {0, 0};
  }
  Vector sum = {};
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vector value = exp_of(load(scores + i) - greatest);
    store(scores + i, value);
    sum += value;
  }
  if (const auto rest = static_cast<int>(count - whole); rest > 0) {
    const Vector value = exp_of(load_some(scores + whole, rest, -infinity) - greatest);
    store_some(scores + whole, value, rest);
    sum += value;
  }
  return {greatest, sum_of(sum)};
}

SCONCE_INLINE void differentiate_some(Vector& scores, Vector& gradients, float shift, float mean, float scale) {
  scores = exp_of(scores - shift);
  gradients = scores * (gradients - mean) * scale;
}

inline void differentiate_rows(float* scores, float* gradients, int64_t count, float shift, float mean, float scale) {
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    Vector value = load(scores + i);
    Vector gradient = load(gradients + i);
    differentiate_some(value, gradient, shift, mean, scale);
    store(scores + i, value);
    store(gradients + i, gradient);
  }
  if (const auto rest = static_cast<int>(count - whole); rest > 0) {
    Vector value = load_some(scores + whole, rest);
    Vector gradient = load_some(gradients + whole, rest);
    differentiate_some(value, gradient, shift, mean, scale);
    store_some(scores + whole, value, rest);
    store_some(gradients + whole, gradient, rest);
  }
}

inline void prepare_scores(float* scores, int64_t count, float scale, const float* mask, int64_t distance) {
  const int64_t whole = mask == nullptr || distance == 1 ? count / kLanes * kLanes : 0;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vector value = load(scores + i) * scale;
    store(scores + i, mask != nullptr ? value + load(mask + i) : value);
  }
  for (int64_t i = whole; i < count; ++i) {
    scores[i] = scores[i] * scale + (mask != nullptr ? mask[i * distance] : 0.0F);
  }
}

inline float dot_of(const float* a, const float* b, int64_t count) {
  const int64_t whole = count / kLanes * kLanes;
  Vector sum = {};
  for (int64_t i = 0; i < whole; i += kLanes) {
    sum += load(a + i) * load(b + i);
  }
  float result = sum_of(sum);
  for (int64_t i = whole; i < count; ++i) {
    result += a[i] * b[i];
  }
  return result;
}

constexpr SoftmaxRows make_softmax_rows() { return {kLanes, exponentiate, differentiate_rows, prepare_scores, dot_of}; }
