#include "base/dtype.h"

#include <gtest/gtest.h>

namespace k3 {
namespace {

TEST(DType, NamesRoundTrip) {
  for (const DType type : {DType::kBf16, DType::kF32, DType::kF16, DType::kU8, DType::kF8E8M0}) {
    EXPECT_EQ(dtype_from_name(dtype_name(type)), type);
    EXPECT_GT(dtype_size(type), 0U);
  }
}

TEST(DType, UnknownNamesAreOther) {
  for (const char* name : {"I64", "F8_E5M2", "bf16", "", "other"}) {
    EXPECT_EQ(dtype_from_name(name), DType::kOther) << name;
  }
  EXPECT_EQ(dtype_size(DType::kOther), 0U);
}

}  // namespace
}  // namespace k3
