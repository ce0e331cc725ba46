// The table of each instruction set, by the file that is compiled for it.
#pragma once

#include "kernels/kernel_table.h"

namespace k3::kernels {

const KernelTable& scalar_table();

// In x86-64 builds alone.
const KernelTable& avx2_table();
const KernelTable& avx512_table();

}  // namespace k3::kernels
