// Choice of the instruction set at run time.
#pragma once

#include <span>
#include <string_view>

#include "kernels/isa_tables.h"
#include "kernels/kernel_table.h"

namespace k3::kernels {

// The table that runs: K3_ISA when it is set, else the widest that processor and operating system
// support. Chosen at the first call. Throws Error(kUsage) naming the choices when K3_ISA names a set
// that is unknown or not supported here; a later call tries again.
[[nodiscard]] const KernelTable& kernels();

// Tables that this machine can run, scalar first, widest last.
[[nodiscard]] std::span<const KernelTable* const> supported_tables();

// The table of a name. Throws Error(kUsage) like kernels().
[[nodiscard]] const KernelTable& table_of(std::string_view name);

// Makes kernels() return `table` from now on, for tests and benchmarks. Not while kernels run.
void force_table(const KernelTable& table);

}  // namespace k3::kernels
