// The floating-point mode of the numeric contract: round to nearest, gradual underflow.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace k3 {

// While alive, the calling thread rounds to nearest and neither flushes denormal results to zero
// nor reads denormal operands as zero, whatever the host program has set.
class ScopedFloatEnvironment {
 public:
#if defined(__SSE__)
  ScopedFloatEnvironment() noexcept : saved_(_mm_getcsr()) {
    constexpr unsigned kDefaultControl = 0x1F80;  // exceptions masked, all modes off
    _mm_setcsr(kDefaultControl);
  }

  ~ScopedFloatEnvironment() {
    _mm_setcsr(saved_);
  }
#else
  ScopedFloatEnvironment() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }

  ~ScopedFloatEnvironment() {
    std::fesetenv(&saved_);
  }
#endif
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
#if defined(__SSE__)
  unsigned saved_;
#else
  std::fenv_t saved_ = {};
#endif
};

}  // namespace k3
