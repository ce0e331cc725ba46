#include "base/dtype.h"

#include <array>

namespace k3 {
namespace {

struct DTypeFact {
  DType type;
  std::string_view name;
  std::size_t size;
};

constexpr std::array<DTypeFact, 5> kFacts = {{
    {DType::kBf16, "BF16", 2},
    {DType::kF32, "F32", 4},
    {DType::kF16, "F16", 2},
    {DType::kU8, "U8", 1},
    {DType::kF8E8M0, "F8_E8M0", 1},
}};

}  // namespace

std::string_view dtype_name(DType type) noexcept {
  for (const DTypeFact& fact : kFacts) {
    if (fact.type == type) {
      return fact.name;
    }
  }
  return "other";
}

DType dtype_from_name(std::string_view name) noexcept {
  for (const DTypeFact& fact : kFacts) {
    if (fact.name == name) {
      return fact.type;
    }
  }
  return DType::kOther;
}

std::size_t dtype_size(DType type) noexcept {
  for (const DTypeFact& fact : kFacts) {
    if (fact.type == type) {
      return fact.size;
    }
  }
  return 0;
}

}  // namespace k3
