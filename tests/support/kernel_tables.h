// The kernel tables that a test compares with the scalar one.
#pragma once

#include <vector>

#include "kernels/kernel_table.h"

namespace k3::test {

// Those of this machine beside scalar, and AVX-512 in emulation (SIMDe) where the machine lacks it
// and the library is installed.
[[nodiscard]] std::vector<const kernels::KernelTable*> tables_to_compare();

}  // namespace k3::test
