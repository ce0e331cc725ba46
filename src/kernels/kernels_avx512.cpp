// Compiled with -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma. Everything here has internal
// linkage but avx512_table().

#include "kernels/isa_tables.h"
#include "kernels/simd/table.h"

namespace k3::kernels {

const KernelTable& avx512_table() {
  static constexpr KernelTable kTable = make_table("avx512");
  return kTable;
}

}  // namespace k3::kernels
