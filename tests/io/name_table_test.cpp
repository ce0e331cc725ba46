#include "io/name_table.h"

#include <string>

#include <gtest/gtest.h>

namespace k3::io {
namespace {

TEST(NameTable, IdsCountInOrderOfInsertion) {
  NameTable table;
  EXPECT_EQ(table.find("a"), std::nullopt);
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const NameTable::Inserted inserted = table.insert("tensor." + std::to_string(i));
    EXPECT_TRUE(inserted.fresh);
    EXPECT_EQ(inserted.id, i);
  }
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    EXPECT_EQ(table.find("tensor." + std::to_string(i)), i);
    EXPECT_EQ(table.name(i), "tensor." + std::to_string(i));
  }
  EXPECT_EQ(table.size(), 20'000U);
  EXPECT_EQ(table.find("tensor.20000"), std::nullopt);
}

TEST(NameTable, ARepeatedNameKeepsItsId) {
  NameTable table;
  table.insert("a");
  table.insert("b");
  const NameTable::Inserted again = table.insert("a");
  EXPECT_FALSE(again.fresh);
  EXPECT_EQ(again.id, 0U);
  EXPECT_EQ(table.size(), 2U);
}

TEST(NameTable, NamesOfAnyLengthAndByte) {
  NameTable table;
  const std::string longer_than_a_chunk(1'000'000, 'x');
  const std::string zero("a\0b", 3);
  EXPECT_EQ(table.insert("").id, 0U);
  EXPECT_EQ(table.insert(longer_than_a_chunk).id, 1U);
  EXPECT_EQ(table.insert(zero).id, 2U);
  EXPECT_EQ(table.insert("a").id, 3U);
  EXPECT_EQ(table.find(""), 0U);
  EXPECT_EQ(table.name(1), longer_than_a_chunk);
  EXPECT_EQ(table.name(2), zero);
  EXPECT_EQ(table.find(zero), 2U);
}

TEST(NameTable, MemoryIsAccounted) {
  NameTable table;
  const std::size_t before = table.memory_bytes();
  const std::string name(1000, 'n');
  for (int i = 0; i < 1000; ++i) {
    table.insert(name + std::to_string(i));
  }
  EXPECT_GE(table.memory_bytes(), before + 1'000'000);
  EXPECT_LT(table.memory_bytes(), before + 2'000'000);
}

}  // namespace
}  // namespace k3::io
