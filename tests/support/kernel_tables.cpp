#include "support/kernel_tables.h"

#include <algorithm>
#include <cstring>

#include "kernels/isa.h"

namespace k3::kernels {

#if defined(K3_EMULATED_AVX512)
const KernelTable& emulated_avx512_table();
#endif

}  // namespace k3::kernels

namespace k3::test {

std::vector<const kernels::KernelTable*> tables_to_compare() {
  const auto supported = kernels::supported_tables();
  std::vector<const kernels::KernelTable*> tables(supported.begin() + 1, supported.end());
#if defined(K3_EMULATED_AVX512)
  const auto is_avx512 = [](const kernels::KernelTable* table) {
    return std::strcmp(table->name, "avx512") == 0;
  };
  if (std::ranges::none_of(tables, is_avx512)) {
    tables.push_back(&kernels::emulated_avx512_table());
  }
#endif
  return tables;
}

}  // namespace k3::test
