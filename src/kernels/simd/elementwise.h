// Elementary functions and element-by-element stages, for any Vector: operation by operation the
// sequences of elementary.h. Included by one file per instruction set.
#pragma once

#include <cstddef>

#include "kernels/activation.h"
#include "kernels/elementary_constants.h"
#include "kernels/kda.h"
#include "kernels/simd/vector.h"

namespace k3::kernels {
namespace {

inline Vector exp_vector(Vector x) {
  namespace c = exp_constants;
  x = at_most(at_least(x, c::kLowest), c::kHighest);
  const Vector shifted = fma(x, Vector::all(c::kLog2E), Vector::all(c::kRoundMagic));
  const Vector n = shifted - Vector::all(c::kRoundMagic);
  Vector r = fma(n, Vector::all(-c::kLn2High), x);
  r = fma(n, Vector::all(-c::kLn2Low), r);
  Vector q = Vector::all(c::kPolynomial[0]);
  for (int i = 1; i < 6; ++i) {
    q = fma(q, r, Vector::all(c::kPolynomial[i]));
  }
  const Vector p = Vector::all(1.0F) + fma(r * r, q, r);
  return scale_by_power(p, shifted, c::kRoundMagic);
}

inline Vector sigmoid_vector(Vector x) {
  const Vector one = Vector::all(1.0F);
  return one / (one + exp_vector(negate(x)));
}

inline Vector tanh_vector(Vector x) {
  namespace c = tanh_constants;
  const Vector a = magnitude(x);
  const Vector z = a * a;
  Vector p = Vector::all(c::kPolynomial[0]);
  for (int i = 1; i < 5; ++i) {
    p = fma(p, z, Vector::all(c::kPolynomial[i]));
  }
  const Vector small = fma(p * z, a, a);
  const Vector one = Vector::all(1.0F);
  const Vector big = one - Vector::all(2.0F) / (exp_vector(a + a) + one);
  return copy_sign(select_below(a, c::kPolynomialLimit, small, big), x);
}

// First `count` floats of memory, the rest of the vector zero.
inline Vector load_part(const float* p, std::size_t count) {
  float memory[Vector::kWidth] = {};
  for (std::size_t i = 0; i < count; ++i) {
    memory[i] = p[i];
  }
  return Vector::load(memory);
}

inline void store_part(Vector v, float* p, std::size_t count) {
  float memory[Vector::kWidth];
  v.store(memory);
  for (std::size_t i = 0; i < count; ++i) {
    p[i] = memory[i];
  }
}

// out[i] = function(inputs[i]...) for `count` elements. `out` may be one of the inputs.
template <typename Function, typename... Inputs>
inline void map(std::size_t count, float* out, const Function& function, const Inputs*... inputs) {
  std::size_t i = 0;
  for (; i + Vector::kWidth <= count; i += Vector::kWidth) {
    function(Vector::load(inputs + i)...).store(out + i);
  }
  if (i < count) {
    store_part(function(load_part(inputs + i, count - i)...), out + i, count - i);
  }
}

inline void exponentials(float* values, std::size_t count, float shift) {
  const Vector by = Vector::all(shift);
  map(
      count, values, [by](Vector x) { return exp_vector(x - by); }, values);
}

inline void sigmoid(float* values, std::size_t count) {
  map(
      count, values, [](Vector x) { return sigmoid_vector(x); }, values);
}

inline void tanh(float* values, std::size_t count) {
  map(
      count, values, [](Vector x) { return tanh_vector(x); }, values);
}

inline void gate(const float* gate, std::size_t count, float* values) {
  map(
      count, values, [](Vector x, Vector g) { return x * sigmoid_vector(g); }, values, gate);
}

inline void situ_glu_vector(
    const float* gate, const float* up, const SituBetas& betas, std::size_t count, float* out) {
  const Vector b1 = Vector::all(betas.gate);
  const Vector b2 = Vector::all(betas.linear);
  map(
      count, out,
      [b1, b2](Vector g, Vector u) {
        const Vector gated = b1 * tanh_vector(g / b1) * sigmoid_vector(g);
        return gated * (b2 * tanh_vector(u / b2));
      },
      gate, up);
}

inline void add_scaled_vector(float weight, const float* value, std::size_t count, float* sum) {
  const Vector factor = Vector::all(weight);
  map(
      count, sum, [factor](Vector s, Vector v) { return fma(factor, v, s); }, sum, value);
}

inline void scale_by_gain(
    const float* x, const float* gain, float scale, std::size_t count, float* out) {
  const Vector factor = Vector::all(scale);
  map(
      count, out, [factor](Vector v, Vector g) { return g * (v * factor); }, x, gain);
}

// Inputs that tap j sees: from the tail where they precede the first token.
inline const float* under_tap(const ShortConv& conv, const ConvPart& part, std::size_t j) {
  const std::size_t index = part.token + j;  // counted from the oldest row of the tail
  const std::size_t past = conv.kernel - 1;
  return index < past ? part.tail + index * conv.channels
                      : part.in + (index - past) * conv.channels;
}

inline void convolve(const ShortConv& conv, const ConvPart& part, float* out) {
  const auto silu = [](Vector sum) { return sum * sigmoid_vector(sum); };
  std::size_t c = part.first;
  for (; c + Vector::kWidth <= part.last; c += Vector::kWidth) {
    Vector sum = Vector::zero();
    for (std::size_t j = 0; j < conv.kernel; ++j) {
      sum = fma(Vector::load(conv.taps + j * conv.channels + c),
                Vector::load(under_tap(conv, part, j) + c), sum);
    }
    silu(sum).store(out + c);
  }
  if (c < part.last) {
    const std::size_t count = part.last - c;
    Vector sum = Vector::zero();
    for (std::size_t j = 0; j < conv.kernel; ++j) {
      sum = fma(load_part(conv.taps + j * conv.channels + c, count),
                load_part(under_tap(conv, part, j) + c, count), sum);
    }
    store_part(silu(sum), out + c, count);
  }
}

inline void kda_decay_vector(const DecayGate& gate, float* z) {
  const Vector bound = Vector::all(gate.lower_bound);
  for (std::size_t h = 0; h < gate.heads; ++h) {
    const Vector rate = Vector::all(gate.rate[h]);
    map(
        gate.width, z + h * gate.width,
        [bound, rate](Vector x, Vector bias) {
          return exp_vector(bound * sigmoid_vector(rate * (x + bias)));
        },
        z + h * gate.width, gate.bias + h * gate.width);
  }
}

}  // namespace
}  // namespace k3::kernels
