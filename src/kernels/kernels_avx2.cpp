// Compiled with -mavx2 -mfma. Everything here has internal linkage but avx2_table().

#include "kernels/isa_tables.h"
#include "kernels/simd/table.h"

namespace k3::kernels {

const KernelTable& avx2_table() {
  static constexpr KernelTable kTable = make_table("avx2");
  return kTable;
}

}  // namespace k3::kernels
