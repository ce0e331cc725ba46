// The Vector of the instruction set that the including file is compiled for, or of AVX-512 where a
// test emulates it.
#pragma once

#if defined(__AVX512F__) || defined(K3_EMULATED_AVX512)
#include "kernels/simd/vector_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "kernels/simd/vector_avx2.h"
#else
#error "compiled without the flags of an instruction set; see src/CMakeLists.txt"
#endif
