#include "kernels/isa.h"

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "k3/errors.h"

#include "base/printable.h"

namespace k3::kernels {
namespace {

// __builtin_cpu_supports asks CPUID and, through XGETBV, whether the operating system keeps the wide
// registers.
std::vector<const KernelTable*> find_supported() {
  std::vector<const KernelTable*> tables = {&scalar_table()};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) {
    tables.push_back(&avx2_table());
  }
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    tables.push_back(&avx512_table());
  }
#endif
  return tables;
}

std::atomic<const KernelTable*>& chosen() {
  static std::atomic<const KernelTable*> table = nullptr;
  return table;
}

}  // namespace

std::span<const KernelTable* const> supported_tables() {
  static const std::vector<const KernelTable*> kTables = find_supported();
  return kTables;
}

const KernelTable& table_of(std::string_view name) {
  std::string choices;
  for (const KernelTable* table : supported_tables()) {
    if (name == table->name) {
      return *table;
    }
    choices += (choices.empty() ? "" : ", ") + std::string(table->name);
  }
  throw Error(ErrorKind::kUsage, {.what = "unknown or unsupported instruction set",
                                  .where = "K3_ISA",
                                  .expected = "one that this machine supports: " + choices,
                                  .found = "\"" + printable(name) + "\""});
}

const KernelTable& kernels() {
  const KernelTable* table = chosen().load(std::memory_order_relaxed);
  if (table == nullptr) {
    const char* forced = std::getenv("K3_ISA");
    table = forced != nullptr ? &table_of(forced) : supported_tables().back();
    chosen().store(table, std::memory_order_relaxed);
  }
  return *table;
}

void force_table(const KernelTable& table) {
  chosen().store(&table, std::memory_order_relaxed);
}

}  // namespace k3::kernels
