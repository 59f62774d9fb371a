// The loops of RecurrentCells with vectors of kLanes elements. See vectors_code.h for what the code may call.

// sigmoid(x) = 1 / sigmoid_divisor(x)
SCONCE_INLINE Vector sigmoid_divisor(Vector x) { return bounded_exp_of(-x) + 1.0F; }

// tanh(x) = sign(x) * (1 - exp(-2 |x|)) / (1 + exp(-2 |x|)), as a fraction, so that a product of it takes one division.
struct Fraction {
  Vector over;
  Vector under;
};
SCONCE_INLINE Fraction tanh_of(Vector x) {
  const Integers sign = reinterpret_cast<Integers>(x) & static_cast<int>(0x80000000);
  const Vector size = reinterpret_cast<Vector>(reinterpret_cast<Integers>(x) ^ sign);
  const Vector difference = expm1_below_0(size * -2.0F);
  // The sign of 0 stays.
  return {reinterpret_cast<Vector>(reinterpret_cast<Integers>(-difference) ^ sign), difference + 2.0F};
}

// All lanes, or the first `count`.
template <bool kAll>
SCONCE_INLINE Vector load_lanes(const float* from, int count) {
  if constexpr (kAll) {
    return load(from);
  } else {
    return load_some(from, count);
  }
}
template <bool kAll>
SCONCE_INLINE void store_lanes(float* to, Vector value, int count) {
  if constexpr (kAll) {
    store(to, value);
  } else {
    store_some(to, value, count);
  }
}

template <bool kKeeps>
struct LstmCell {
  static constexpr int64_t kGates = 4;
  template <bool kAll>
  static SCONCE_INLINE void compute(const RecurrentRow& row, int64_t j, int count) {
    const auto gate = [&](int64_t number) __attribute__((always_inline)) {
      const int64_t at = number * row.hidden + j;
      return load_lanes<kAll>(row.of_input + at, count) + load_lanes<kAll>(row.of_state + at, count);
    };
    const Fraction g = tanh_of(gate(2));
    if constexpr (kKeeps) {
      const auto keep = [&](int64_t number, Vector value) __attribute__((always_inline)) {
        store_lanes<kAll>(row.kept + number * row.hidden + j, value, count);
        return value;
      };
      const Vector i = keep(0, 1.0F / sigmoid_divisor(gate(0)));
      const Vector f = keep(1, 1.0F / sigmoid_divisor(gate(1)));
      const Vector new_c = keep(4, f * load_lanes<kAll>(row.c + j, count) + i * keep(2, g.over / g.under));
      const Fraction of_c = tanh_of(new_c);
      store_lanes<kAll>(row.c + j, new_c, count);
      store_lanes<kAll>(row.out + j, keep(3, 1.0F / sigmoid_divisor(gate(3))) * (of_c.over / of_c.under), count);
    } else {
      const Vector c =
          load_lanes<kAll>(row.c + j, count) / sigmoid_divisor(gate(1)) + g.over / (g.under * sigmoid_divisor(gate(0)));
      store_lanes<kAll>(row.c + j, c, count);
      const Fraction of_c = tanh_of(c);
      store_lanes<kAll>(row.out + j, of_c.over / (of_c.under * sigmoid_divisor(gate(3))), count);
    }
  }
};

struct GruCell {
  static constexpr int64_t kGates = 3;
  template <bool kAll>
  static SCONCE_INLINE void compute(const RecurrentRow& row, int64_t j, int count) {
    const auto of_input = [&](int64_t number) __attribute__((always_inline)) {
      return load_lanes<kAll>(row.of_input + number * row.hidden + j, count);
    };
    const auto of_state = [&](int64_t number) __attribute__((always_inline)) {
      return load_lanes<kAll>(row.of_state + number * row.hidden + j, count);
    };
    const Fraction n = tanh_of(of_input(2) + of_state(2) / sigmoid_divisor(of_input(0) + of_state(0)));
    const Vector fresh = n.over / n.under;
    const Vector h = load_lanes<kAll>(row.h + j, count);
    store_lanes<kAll>(row.out + j, (h - fresh) / sigmoid_divisor(of_input(1) + of_state(1)) + fresh, count);
  }
};

struct TanhCell {
  static constexpr int64_t kGates = 1;
  template <bool kAll>
  static SCONCE_INLINE void compute(const RecurrentRow& row, int64_t j, int count) {
    const Fraction sum = tanh_of(load_lanes<kAll>(row.of_input + j, count) + load_lanes<kAll>(row.of_state + j, count));
    store_lanes<kAll>(row.out + j, sum.over / sum.under, count);
  }
};

struct ReluCell {
  static constexpr int64_t kGates = 1;
  template <bool kAll>
  static SCONCE_INLINE void compute(const RecurrentRow& row, int64_t j, int count) {
    const Vector sum = load_lanes<kAll>(row.of_input + j, count) + load_lanes<kAll>(row.of_state + j, count);
    store_lanes<kAll>(row.out + j, select(sum < 0.0F, Vector{}, sum), count);  // NaN stays NaN
  }
};

template <bool kAll>
SCONCE_INLINE void compute_lstm_gradient(const LstmGradientRow& row, int64_t j, int count) {
  const auto kept = [&](int64_t number) __attribute__((always_inline)) {
    return load_lanes<kAll>(row.kept + number * row.hidden + j, count);
  };
  const auto store_sum = [&](int64_t number, Vector value) __attribute__((always_inline)) {
    store_lanes<kAll>(row.of_sums + number * row.hidden + j, value, count);
  };
  const Vector i = kept(0);
  const Vector f = kept(1);
  const Vector g = kept(2);
  const Vector o = kept(3);
  Vector of_h = {};
  if (row.of_out != nullptr) {
    of_h += load_lanes<kAll>(row.of_out + j, count);
  }
  if (row.of_next != nullptr) {
    of_h += load_lanes<kAll>(row.of_next + j, count);
  }
  const Fraction fraction = tanh_of(kept(4));
  const Vector tanh_c = fraction.over / fraction.under;
  const Vector of_c = load_lanes<kAll>(row.of_c + j, count) + of_h * o * (1.0F - tanh_c * tanh_c);
  store_sum(0, of_c * g * i * (1.0F - i));
  store_sum(1, of_c * load_lanes<kAll>(row.c + j, count) * f * (1.0F - f));
  store_sum(2, of_c * i * (1.0F - g * g));
  store_sum(3, of_h * tanh_c * o * (1.0F - o));
  store_lanes<kAll>(row.of_c + j, of_c * f, count);
}

inline void lstm_gradient_of_row(const LstmGradientRow& row) {
  const int64_t whole = row.hidden / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    compute_lstm_gradient<true>(row, j, kLanes);
  }
  if (const auto rest = static_cast<int>(row.hidden - whole); rest > 0) {
    compute_lstm_gradient<false>(row, whole, rest);
  }
}

template <class Cell>
void compute_row(const RecurrentRow& row) {
  const int64_t whole = row.hidden / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    for (int64_t gate = 0; gate < Cell::kGates; ++gate) {
      __builtin_prefetch(row.next + gate * row.hidden + j);
    }
    Cell::template compute<true>(row, j, kLanes);
  }
  if (const auto rest = static_cast<int>(row.hidden - whole); rest > 0) {
    Cell::template compute<false>(row, whole, rest);
  }
}

constexpr RecurrentCells make_recurrent_cells() {
  return {compute_row<LstmCell<false>>, compute_row<LstmCell<true>>, compute_row<GruCell>,
          compute_row<TanhCell>,        compute_row<ReluCell>,       lstm_gradient_of_row};
}
