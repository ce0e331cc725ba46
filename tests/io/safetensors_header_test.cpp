#include "io/safetensors_header.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::io {
namespace {

using test::SafetensorsBuilder;
using test::throws;

constexpr const char* kWhere = "model-00007-of-000009.safetensors";
constexpr std::uint64_t kLarge = std::numeric_limits<std::int64_t>::max();

// A header that holds `entry` as the tensor "layer.weight".
std::string header_of(const std::string& entry) {
  return R"({"layer.weight":)" + entry + "}";
}

std::string entry_of(const std::string& dtype,
                     const std::string& shape,
                     const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

testing::AssertionResult refused(const std::string& header,
                                 std::vector<std::string> parts,
                                 std::uint64_t file_bytes = kLarge) {
  parts.emplace_back(kWhere);
  SafetensorsHeader reader;
  return throws(ErrorKind::kCheckpoint, parts,
                [&] { static_cast<void>(reader.parse(header, file_bytes, kWhere)); });
}

testing::AssertionResult entry_refused(const std::string& entry,
                                       std::vector<std::string> parts,
                                       std::uint64_t file_bytes = kLarge) {
  parts.emplace_back("layer.weight");
  return refused(header_of(entry), parts, file_bytes);
}

struct Parsed {
  std::string name;
  std::string dtype_text;
  DType dtype = DType::kOther;
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;

  friend bool operator==(const Parsed&, const Parsed&) = default;
};

std::vector<Parsed> copied(std::span<const HeaderTensor> tensors) {
  std::vector<Parsed> copies;
  for (const HeaderTensor& tensor : tensors) {
    copies.push_back({.name = std::string(tensor.name),
                      .dtype_text = std::string(tensor.dtype_text),
                      .dtype = tensor.dtype,
                      .shape = {tensor.shape.begin(), tensor.shape.end()},
                      .offset = tensor.offset,
                      .nbytes = tensor.nbytes});
  }
  return copies;
}

std::vector<Parsed> parse(const std::string& header, std::uint64_t file_bytes = kLarge) {
  SafetensorsHeader reader;
  return copied(reader.parse(header, file_bytes, kWhere));
}

TEST(SafetensorsHeader, OffsetsCountFromTheEndOfTheHeader) {
  const std::string header = R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[2,26]},)"
                             R"("a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})";
  const std::uint64_t data = 8 + header.size();
  EXPECT_EQ(parse(header), (std::vector<Parsed>{
                               {"b", "F32", DType::kF32, {2, 3}, data + 2, 24},
                               {"a", "BF16", DType::kBf16, {1}, data, 2},
                           }));
}

TEST(SafetensorsHeader, KeysOfAnEntryMayStandInAnyOrder) {
  EXPECT_EQ(parse(header_of(R"({"data_offsets":[0,4],"extra":{"a":[1]},"shape":[4],"dtype":"U8"})"))
                .at(0)
                .nbytes,
            4U);
}

TEST(SafetensorsHeader, MetadataIsSkipped) {
  EXPECT_TRUE(parse(R"({"__metadata__":{"format":"pt"}})").empty());
  const auto tensors = parse(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("__metadata__":{"dtype":"U8"}})");
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_TRUE(refused(R"({"__metadata__":{},"__metadata__":{}})", {"__metadata__", "twice"}));
}

TEST(SafetensorsHeader, NamesAreDecoded) {
  EXPECT_EQ(parse(R"({"a\"\\\u0041\n\u00e9":)" + entry_of("U8", "[1]", "[0,1]") + "}").at(0).name,
            "a\"\\A\n\xc3\xa9");
  // Two spellings of one name are one name.
  EXPECT_TRUE(refused(R"({"aA":)" + entry_of("U8", "[1]", "[0,1]") + R"(,"a\u0041":)" +
                          entry_of("U8", "[1]", "[1,2]") + "}",
                      {"aA", "duplicate", "once", "twice"}));
}

TEST(SafetensorsHeader, ScalarsAndEmptyTensorsAreFine) {
  const auto tensors = parse(R"({"scalar":)" + entry_of("F32", "[]", "[0,4]") + R"(,"empty":)" +
                             entry_of("F32", "[0,8]", "[2,2]") + R"(,"none":)" +
                             entry_of("BF16", "[4294967296,4294967296,0]", "[4,4]") + "}");
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_TRUE(tensors[0].shape.empty());
  EXPECT_EQ(tensors[0].nbytes, 4U);
  EXPECT_EQ(tensors[1].nbytes, 0U);
  EXPECT_EQ(tensors[2].shape.size(), 3U);
  EXPECT_TRUE(entry_refused(entry_of("F32", "[]", "[0,8]"), {"4 bytes", "8 bytes"}));
  EXPECT_TRUE(entry_refused(entry_of("F32", "[0]", "[0,4]"), {"0 bytes", "4 bytes"}));
}

TEST(SafetensorsHeader, GapsAndBytesAfterTheLastTensorAreFine) {
  const std::string header = R"({"a":)" + entry_of("U8", "[1]", "[10,11]") + R"(,"b":)" +
                             entry_of("U8", "[1]", "[20,21]") + "}";
  EXPECT_EQ(parse(header, 8 + header.size() + 500).size(), 2U);
}

TEST(SafetensorsHeader, TrailingSpacesAreFine) {
  EXPECT_EQ(parse(header_of(entry_of("U8", "[1]", "[0,1]")) + "      ").size(), 1U);
  EXPECT_TRUE(refused(header_of(entry_of("U8", "[1]", "[0,1]")) + "  x", {"not valid JSON"}));
  EXPECT_TRUE(parse("{}").empty());
}

TEST(SafetensorsHeader, UnknownTypesAndAnyRankAreAccepted) {
  const auto tensor = parse(header_of(entry_of("F4", "[1,2,3,4,5,6,7,8]", "[0,3]"))).at(0);
  EXPECT_EQ(tensor.dtype, DType::kOther);
  EXPECT_EQ(tensor.dtype_text, "F4");
  EXPECT_EQ(tensor.shape.size(), 8U);
  EXPECT_EQ(tensor.nbytes, 3U);
}

TEST(SafetensorsHeader, OffsetsBeyondTwoToThe53AreExact) {
  const std::string begin = "9007199254740993";  // 2^53 + 1: no double
  const auto tensor = parse(header_of(entry_of("U8", "[2]", "[" + begin + ",9007199254740995]")));
  const std::string header = header_of(entry_of("U8", "[2]", "[" + begin + ",9007199254740995]"));
  EXPECT_EQ(tensor.at(0).offset, 9007199254740993U + 8 + header.size());
  EXPECT_EQ(tensor.at(0).nbytes, 2U);
}

TEST(SafetensorsHeader, SizesOfAllKnownTypesAreChecked) {
  const std::vector<std::pair<std::string, std::size_t>> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"I64", 8}, {"U64", 8}, {"F64", 8},     {"C64", 8}};
  for (const auto& [name, size] : sizes) {
    const std::string right = "[0," + std::to_string(15 * size) + "]";
    const std::string wrong = "[0," + std::to_string(15 * size - 1) + "]";
    EXPECT_EQ(parse(header_of(entry_of(name, "[3,5]", right))).size(), 1U) << name;
    EXPECT_TRUE(entry_refused(entry_of(name, "[3,5]", wrong),
                              {"disagree", "expected " + std::to_string(15 * size) + " bytes",
                               "found " + std::to_string(15 * size - 1) + " bytes"}));
  }
}

TEST(SafetensorsHeader, ShapeProductsThatWrapAreRefused) {
  // 2^32 * 2^32 wraps to 0, 2^63 * 2 bytes too; of an unknown type the count alone.
  EXPECT_TRUE(entry_refused(entry_of("U8", "[4294967296,4294967296]", "[0,0]"), {"overflows"}));
  EXPECT_TRUE(entry_refused(entry_of("BF16", "[9223372036854775808]", "[0,0]"), {"overflows"}));
  EXPECT_TRUE(entry_refused(entry_of("Q7", "[4294967296,4294967296]", "[0,0]"), {"overflows"}));
}

TEST(SafetensorsHeader, BadOffsetsAreRefused) {
  const auto bad = [](const std::string& offsets, std::vector<std::string> parts) {
    return entry_refused(entry_of("U8", "[4]", offsets), std::move(parts));
  };
  EXPECT_TRUE(bad("[8,4]", {"reversed", "[8, 4]"}));
  EXPECT_TRUE(bad("[-4,0]", {"expected a whole number", "found -4"}));
  EXPECT_TRUE(bad("[0,4.0]", {"expected a whole number", "fractional", "4.0"}));
  EXPECT_TRUE(bad("[0.5,4]", {"expected a whole number", "fractional", "0.5"}));
  EXPECT_TRUE(bad("[0,1e3]", {"expected a whole number", "fractional"}));
  EXPECT_TRUE(bad("[0,\"4\"]", {"expected a whole number", "the string \"4\""}));
  EXPECT_TRUE(bad("[0,null]", {"expected a whole number", "found null"}));
  EXPECT_TRUE(bad("[0,true]", {"expected a whole number", "found true"}));
  EXPECT_TRUE(bad("[0]", {"[begin, end]", "1 numbers"}));
  EXPECT_TRUE(bad("[]", {"[begin, end]", "0 numbers"}));
  EXPECT_TRUE(bad("[0,4,8]", {"[begin, end]", "3 numbers"}));
  EXPECT_TRUE(bad("{\"0\":4}", {"[begin, end]", "an object"}));
  EXPECT_TRUE(bad("4", {"[begin, end]", "found 4"}));
}

TEST(SafetensorsHeader, OffsetsThatOverflowAreRefused) {
  const auto bad = [](const std::string& offsets, std::vector<std::string> parts) {
    return entry_refused(entry_of("U8", "[4]", offsets), std::move(parts));
  };
  EXPECT_TRUE(bad("[18446744073709551611,18446744073709551615]",
                  {"expected 18446744073709551615 bytes", "found"}));
  EXPECT_TRUE(bad("[0,18446744073709551616]", {"below 2^64", "found 18446744073709551616"}));
  EXPECT_TRUE(bad("[-99999999999999999999,4]", {"below 2^64", "found -99999999999999999999"}));
}

TEST(SafetensorsHeader, BadShapesAndTypesAreRefused) {
  EXPECT_TRUE(entry_refused(entry_of("U8", "[-1]", "[0,1]"), {"bad shape", "found -1"}));
  EXPECT_TRUE(entry_refused(entry_of("U8", "[1.5]", "[0,1]"), {"bad shape", "1.5"}));
  EXPECT_TRUE(entry_refused(entry_of("U8", "4", "[0,4]"), {"bad shape", "an array", "found 4"}));
  EXPECT_TRUE(entry_refused(R"({"dtype":5,"shape":[1],"data_offsets":[0,1]})",
                            {"bad dtype", "a string", "found 5"}));
}

TEST(SafetensorsHeader, IncompleteAndRepeatedEntriesAreRefused) {
  EXPECT_TRUE(entry_refused(R"({"shape":[1],"data_offsets":[0,1]})", {"found no dtype"}));
  EXPECT_TRUE(entry_refused(R"({"dtype":"U8","data_offsets":[0,1]})", {"found no shape"}));
  EXPECT_TRUE(entry_refused(R"({"dtype":"U8","shape":[1]})", {"found no data_offsets"}));
  EXPECT_TRUE(entry_refused("{}", {"found no dtype shape data_offsets"}));
  EXPECT_TRUE(entry_refused("[]", {"an object", "found an array"}));
  EXPECT_TRUE(entry_refused("null", {"an object", "found null"}));
  for (const std::string key : {R"("dtype":"U8")", R"("shape":[1])", R"("data_offsets":[0,1])"}) {
    EXPECT_TRUE(entry_refused(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],)" + key + "}",
                              {"duplicate", "twice"}));
  }
}

TEST(SafetensorsHeader, DuplicateNamesAreRefused) {
  const std::string entry = entry_of("U8", "[1]", "[0,1]");
  EXPECT_TRUE(refused(R"({"x.weight":)" + entry + R"(,"y":)" + entry_of("U8", "[1]", "[1,2]") +
                          R"(,"x.weight":)" + entry_of("U8", "[1]", "[2,3]") + "}",
                      {"x.weight", "duplicate tensor name", "once", "twice"}));
}

TEST(SafetensorsHeader, OverlapIsRefused) {
  const std::string a = R"({"a":)" + entry_of("U8", "[10]", "[0,10]") + R"(,"b":)";
  EXPECT_TRUE(refused(a + entry_of("U8", "[10]", "[9,19]") + "}",
                      {": b", "overlaps that of a", "10 or later", "begin at 9"}));
  EXPECT_TRUE(refused(a + entry_of("U8", "[2]", "[4,6]") + "}", {": b", "overlaps that of a"}));
  EXPECT_TRUE(refused(a + entry_of("U8", "[10]", "[0,10]") + "}", {"overlaps"}));
  EXPECT_EQ(parse(a + entry_of("U8", "[10]", "[10,20]") + "}").size(), 2U);
}

TEST(SafetensorsHeader, InvalidJsonIsRefused) {
  for (const std::string& text :
       {std::string("{"), std::string("{]"), std::string("{\"a\":}"), std::string("not json"),
        std::string("{\"a\":1,}"), std::string("\0\0\0\0", 4), std::string("{'a':1}"),
        std::string(3000, '['), std::string("{\"\xff\xfe\":1}"), std::string("{\"a\xc0\xaf\":1}"),
        std::string("{\"\\ud800\":1}")}) {
    EXPECT_TRUE(refused(text, {"not valid JSON", "expected a JSON object", "found"}));
  }
  for (const char* text : {"[]", "null", "\"text\"", "17", "true"}) {
    EXPECT_TRUE(refused(text, {"not a JSON object", "expected an object", "found"}));
  }
}

TEST(SafetensorsHeader, NamesInMessagesAreCutAndPrintable) {
  const std::string name = "\\u001b[31m" + std::string(100'000, 'x');
  SafetensorsHeader reader;
  try {
    static_cast<void>(reader.parse("{\"" + name + "\":5}", kLarge, kWhere));
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_LT(message.size(), 1000U);
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
  }
}

TEST(SafetensorsHeader, ReaderIsReusableAfterAFault) {
  SafetensorsHeader reader;
  EXPECT_THROW(static_cast<void>(reader.parse("{\"a\":", kLarge, kWhere)), Error);
  const std::string large = header_of(entry_of("U8", "[1]", "[0,1]")) + std::string(100'000, ' ');
  EXPECT_EQ(reader.parse(large, kLarge, kWhere).size(), 1U);
  EXPECT_EQ(reader.parse("{}", kLarge, kWhere).size(), 0U);
  EXPECT_EQ(reader.parse(header_of(entry_of("U8", "[1]", "[0,1]")), kLarge, kWhere).size(), 1U);
}

// Whole files.

class SafetensorsFile : public testing::Test {
 protected:
  SafetensorsFile() : path_(dir_.path() / kWhere) {}

  std::vector<Parsed> read(const std::string& bytes, const test::Faults& faults = {}) {
    test::write_file(path_, bytes);
    test::FaultyFileSystem file_system(faults);
    SafetensorsHeader reader;
    return copied(reader.read(*open_file(file_system, path_, ErrorKind::kCheckpoint)));
  }

  testing::AssertionResult refused_file(const std::string& bytes,
                                        std::vector<std::string> parts,
                                        const test::Faults& faults = {}) {
    parts.push_back(path_.string());
    return throws(ErrorKind::kCheckpoint, parts, [&] { read(bytes, faults); });
  }

  test::TempDir dir_;
  std::filesystem::path path_;
};

std::string two_tensors() {
  return SafetensorsBuilder()
      .add("first", "U8", "[6000]", std::string(6000, 'a'))
      .add("last", "F32", "[1000]", std::string(4000, 'b'))
      .bytes();
}

// `length` in the place of the header's length.
std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes = test::safetensors_bytes("", "");
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>((length >> (8 * i)) & 0xffU);
  }
  return bytes + rest;
}

TEST_F(SafetensorsFile, AWholeFileIsRead) {
  const auto tensors = read(two_tensors());
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(two_tensors().substr(tensors[1].offset, tensors[1].nbytes), std::string(4000, 'b'));
  EXPECT_EQ(tensors[1].offset + tensors[1].nbytes, two_tensors().size());
}

TEST_F(SafetensorsFile, TruncationIsRefused) {
  const std::string whole = two_tensors();
  EXPECT_TRUE(refused_file(whole.substr(0, whole.size() - 1),
                           {"last", "truncated", "expected 10000 bytes", "found 9999 bytes"}));
  EXPECT_TRUE(refused_file(whole.substr(0, whole.size() - 4096),
                           {"first", "truncated", "expected 6000 bytes", "found 5904 bytes"}));
  EXPECT_TRUE(refused_file(whole.substr(0, whole.size() / 2), {"first", "truncated", "found"}));
  EXPECT_TRUE(refused_file(whole.substr(0, 40), {"header longer than the file", "found"}));
  EXPECT_TRUE(refused_file(whole.substr(0, 5), {"truncated", "expected at least 8", "5 bytes"}));
}

TEST_F(SafetensorsFile, PlaceholdersAreRecognised) {
  EXPECT_TRUE(refused_file("", {"empty file", "0 bytes"}));
  EXPECT_TRUE(refused_file("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 99\n",
                           {"Git LFS pointer", "expected a safetensors file"}));
}

TEST_F(SafetensorsFile, BadHeaderLengthsAreRefused) {
  const std::string rest = "{}" + std::string(100, ' ');
  EXPECT_TRUE(refused_file(with_length(0, rest), {"bad header length", "found 0 bytes"}));
  EXPECT_TRUE(refused_file(with_length(1, rest), {"bad header length", "found 1 bytes"}));
  EXPECT_TRUE(refused_file(with_length(103, rest), {"expected at most 102", "found 103 bytes"}));
  for (const std::uint64_t length :
       {std::uint64_t{1} << 40U, UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 8}) {
    EXPECT_TRUE(refused_file(with_length(length, rest),
                             {"header longer than the file", "found " + std::to_string(length)}));
  }
  EXPECT_TRUE(read(with_length(2, rest)).empty());
  EXPECT_TRUE(read(with_length(102, rest)).empty());
}

TEST_F(SafetensorsFile, AHeaderAboveTheFormatsLimitIsRefused) {
  test::write_file(path_, with_length(kMaxHeaderBytes + 1, ""));
  std::filesystem::resize_file(path_, kMaxHeaderBytes + 1000);
  SafetensorsHeader reader;
  const auto file = open_file(posix_file_system(), path_, ErrorKind::kCheckpoint);
  EXPECT_TRUE(throws(ErrorKind::kCheckpoint, {"bad header length", "found 100000001 bytes"},
                     [&] { static_cast<void>(reader.read(*file)); }));
}

TEST_F(SafetensorsFile, ReadFaultsWhileIndexing) {
  EXPECT_EQ(read(two_tensors(), {.max_read_bytes = 5, .interruptions_per_read = 2}).size(), 2U);
  EXPECT_TRUE(refused_file(two_tensors(), {"Input/output error"}, {.eio_from_byte = 30}));
  EXPECT_TRUE(refused_file(two_tensors(), {"end of file"}, {.file_ends_at = 30}));
}

}  // namespace
}  // namespace k3::io
