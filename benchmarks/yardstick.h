// How the public C engine (v1.0.0) multiplies MXFP4 rows, as a yardstick: byte look-ups, a sum in eight
// double lanes per group of 32, reduced and scaled group by group. Not the contract's bits.
#pragma once

#include "base/matrix_types.h"

namespace k3::bench {

// y[r] of all rows. x: [cols], cols a multiple of 32; the widening of x is not part of the work.
void c_engine_multiply(const Mxfp4Matrix& matrix, const double* x, float* y);

}  // namespace k3::bench
