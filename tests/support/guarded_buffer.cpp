#include "support/guarded_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

namespace k3::test {

GuardedMemory::GuardedMemory(std::size_t bytes, Border border) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t inner_bytes = (bytes + page - 1) / page * page;
  mapped_bytes_ = inner_bytes + 2 * page;
  void* mapping = ::mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    throw std::runtime_error("mmap of guarded memory failed");
  }
  mapping_ = static_cast<std::byte*>(mapping);
  std::byte* inner = mapping_ + page;
  if (inner_bytes > 0 && ::mprotect(inner, inner_bytes, PROT_READ | PROT_WRITE) != 0) {
    ::munmap(mapping_, mapped_bytes_);
    throw std::runtime_error("mprotect of guarded memory failed");
  }
  data_ = border == Border::kBegin ? inner : inner + (inner_bytes - bytes);
}

GuardedMemory::~GuardedMemory() {
  ::munmap(mapping_, mapped_bytes_);
}

}  // namespace k3::test
