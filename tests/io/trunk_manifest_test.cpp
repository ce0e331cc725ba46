#include "io/trunk_manifest.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/errors.h"

#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::io {
namespace {

using nlohmann::json;
using test::throws;

// Two layers of 4096 bytes; layer 0 has a matrix of 12 bytes and a vector of 8.
json sample() {
  return json::parse(R"({
    "n_layers": 2, "align": 4096, "layers": [
      {"layer": 0, "shard": "a.safetensors", "run_start": 7, "nbytes": 4096, "file_off": 0,
       "tensors": {"m": {"off": 0, "nbytes": 12, "dtype": "BF16", "shape": [2, 3]},
                   "v": {"off": 12, "nbytes": 8, "dtype": "F32", "shape": [2]}}},
      {"layer": 1, "shard": "b.safetensors", "run_start": 9, "nbytes": 4096, "file_off": 4096,
       "tensors": {"w": {"off": 3, "nbytes": 4, "dtype": "F32", "shape": [1]}}}]})");
}

TrunkManifest parse(const json& document) {
  return parse_trunk_manifest(document.dump(), "dir/trunk.json");
}

testing::AssertionResult text_refused(const std::string& text, std::vector<std::string> parts) {
  parts.emplace_back("dir/trunk.json");
  return throws(ErrorKind::kUserFile, parts,
                [&] { static_cast<void>(parse_trunk_manifest(text, "dir/trunk.json")); });
}

// Refused with the value at a JSON pointer replaced.
testing::AssertionResult refused(const std::string& pointer,
                                 const json& value,
                                 const std::vector<std::string>& parts) {
  json document = sample();
  document[json::json_pointer(pointer)] = value;
  return text_refused(document.dump(), parts);
}

TEST(TrunkManifest, GivesRunsAndTensors) {
  const TrunkManifest manifest = parse(sample());
  EXPECT_EQ(manifest.layer_count, 2U);
  EXPECT_EQ(manifest.alignment, 4096U);
  EXPECT_EQ(manifest.data_bytes(), 8192U);
  ASSERT_EQ(manifest.runs.size(), 2U);
  const TrunkRun& run = manifest.runs.at(1);
  EXPECT_EQ(run.layer, 1U);
  EXPECT_EQ(run.offset, 4096U);
  EXPECT_EQ(run.nbytes, 4096U);
  EXPECT_EQ(run.xxh128, "");
  const TrunkTensor& matrix = manifest.runs.at(0).tensors.at("m");
  EXPECT_EQ(matrix.offset, 0U);
  EXPECT_EQ(matrix.nbytes, 12U);
  EXPECT_EQ(matrix.dtype, "BF16");
  EXPECT_EQ(matrix.shape, (std::vector<std::uint64_t>{2, 3}));
}

TEST(TrunkManifest, UnknownKeysGapsAndAnyOrderAreFine) {
  json document = sample();
  document["made_by"] = {{"name", "x"}, {"list", {1.5, nullptr, -3}}};
  document["layers"][0]["note"] = -1;
  document["layers"][0]["tensors"]["m"]["note"] = nullptr;
  document["layers"][0].erase("shard");      // told for people only
  document["layers"][0]["run_start"] = "?";  // likewise
  document["layers"][0]["tensors"]["m"]["off"] = 100;
  std::swap(document["layers"][0], document["layers"][1]);
  document["layers"][0]["file_off"] = 40960;
  const TrunkManifest manifest = parse(document);
  EXPECT_EQ(manifest.runs.at(0).offset, 0U);
  EXPECT_EQ(manifest.runs.at(1).offset, 40960U);
  EXPECT_EQ(manifest.data_bytes(), 45056U);
}

TEST(TrunkManifest, LayersMayBeAbsentAndTensorsOfUnknownTypesStayOpaque) {
  json document = sample();
  document["layers"].erase(0);
  document["layers"][0]["tensors"]["x"] = {
      {"off", 100}, {"nbytes", 5}, {"dtype", "Q5_K"}, {"shape", {77}}};
  document["layers"][0]["tensors"]["empty"] = {
      {"off", 5}, {"nbytes", 0}, {"dtype", "F32"}, {"shape", {0}}};
  const TrunkManifest manifest = parse(document);
  EXPECT_EQ(manifest.runs.size(), 1U);
  EXPECT_EQ(manifest.runs.at(1).tensors.at("x").dtype, "Q5_K");
}

TEST(TrunkManifest, AChecksumIsKept) {
  json document = sample();
  document["layers"][1]["xxh128"] = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(parse(document).runs.at(1).xxh128, "0123456789abcdef0123456789abcdef");
  for (const json& bad : std::vector<json>{"", "0123", "0123456789ABCDEF0123456789abcdef", 7}) {
    EXPECT_TRUE(refused("/layers/1/xxh128", bad, {"layers[1]: xxh128"})) << bad;
  }
}

TEST(TrunkManifest, TextThatIsNoJsonObjectIsRefused) {
  EXPECT_TRUE(text_refused("", {"empty file"}));
  const std::string whole = sample().dump();
  for (const std::string& text : {whole.substr(0, whole.size() - 1), whole + "}", std::string("{"),
                                  std::string("\xff\xfe"), std::string(2000, '[')}) {
    EXPECT_TRUE(text_refused(text, {"not valid JSON"})) << text.substr(0, 20);
  }
  EXPECT_TRUE(text_refused("[]", {"expected an object, found an array"}));
  EXPECT_TRUE(text_refused("null", {"expected an object, found null"}));
}

TEST(TrunkManifest, EveryPrefixIsRefused) {
  const std::string whole = sample().dump();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_TRUE(text_refused(whole.substr(0, bytes), {"expected"})) << bytes;
  }
}

TEST(TrunkManifest, EveryKeyIsRequired) {
  for (const std::string pointer :
       {"/n_layers", "/align", "/layers", "/layers/1/layer", "/layers/1/nbytes",
        "/layers/1/file_off", "/layers/1/tensors", "/layers/0/tensors/m/off",
        "/layers/0/tensors/m/nbytes", "/layers/0/tensors/m/dtype", "/layers/0/tensors/m/shape"}) {
    const std::size_t slash = pointer.rfind('/');
    json document = sample();
    document[json::json_pointer(pointer.substr(0, slash))].erase(pointer.substr(slash + 1));
    EXPECT_TRUE(text_refused(document.dump(), {pointer.substr(slash + 1) + ": missing key"}))
        << pointer;
  }
}

TEST(TrunkManifest, WrongTypesAreRefused) {
  const std::vector<json> all = {nullptr, true, -1, 1.0, "1", json::array(), json::object()};
  for (const std::string pointer :
       {"/n_layers", "/align", "/layers/1/layer", "/layers/1/nbytes", "/layers/1/file_off",
        "/layers/0/tensors/m/off", "/layers/0/tensors/m/nbytes", "/layers/0/tensors/m/shape/0"}) {
    for (const json& value : all) {
      EXPECT_TRUE(refused(pointer, value, {"expected a whole number of 0 to 2^64 - 1"}))
          << pointer << " " << value;
    }
  }
  EXPECT_TRUE(refused("/layers", json::object(), {"layers", "an array", "an object"}));
  EXPECT_TRUE(refused("/layers/1", 5, {"layers[1]", "an object", "found 5"}));
  EXPECT_TRUE(refused("/layers/1/tensors", json::array(), {"layers[1]: tensors", "an object"}));
  EXPECT_TRUE(refused("/layers/1/tensors/w", "x", {"layers[1]: tensors: w", "an object"}));
  EXPECT_TRUE(refused("/layers/1/tensors/w/dtype", 3, {"tensors: w: dtype", "a string"}));
  EXPECT_TRUE(refused("/layers/1/tensors/w/shape", 1, {"tensors: w: shape", "an array"}));
}

TEST(TrunkManifest, ANumberBeyond64BitsIsRefused) {
  std::string text = sample().dump();
  text.replace(text.find("\"align\":4096"), 12, "\"align\":18446744073709551616");
  EXPECT_TRUE(text_refused(text, {"align", "number too large", "18446744073709551616"}));
  text = sample().dump();
  text.replace(text.find("\"file_off\":4096"), 15, "\"file_off\":1e99999");
  EXPECT_TRUE(text_refused(text, {"expected"}));
}

TEST(TrunkManifest, AKeyTwiceIsRefusedInEveryObject) {
  const std::string whole = sample().dump();
  for (const std::string member :
       {"\"n_layers\":2", "\"file_off\":4096", "\"off\":3",
        "\"w\":{\"dtype\":\"F32\",\"nbytes\":4,\"off\":3,\"shape\":[1]}"}) {
    std::string text = whole;
    ASSERT_NE(text.find(member), std::string::npos) << member;
    text.insert(text.find(member), member + ",");
    EXPECT_TRUE(text_refused(text, {"duplicate key"})) << member;
  }
  std::string text = whole;
  text.insert(1, R"("x":1,"x":2,)");  // also of keys that nobody reads
  EXPECT_TRUE(text_refused(text, {"x: duplicate key"}));
  text = whole;
  text.insert(1, R"("\u0061lign":4096,)");  // escapes are decoded first
  EXPECT_TRUE(text_refused(text, {"align: duplicate key"}));
}

TEST(TrunkManifest, BadValuesAreRefused) {
  EXPECT_TRUE(refused("/n_layers", 0, {"n_layers", "1 to 4096"}));
  EXPECT_TRUE(refused("/n_layers", 4097, {"n_layers", "1 to 4096"}));
  for (const std::uint64_t align : {0U, 1U, 512U, 4095U, 4097U, 12288U}) {
    EXPECT_TRUE(refused("/align", align, {"align", "a power of two from 4096 on"}));
  }
  EXPECT_TRUE(refused("/layers/1/layer", 2, {"layers[1]: layer", "below n_layers, 2, found 2"}));
  EXPECT_TRUE(refused("/layers/1/layer", 0, {"layers[1]: layer", "layer 0 twice"}));
  EXPECT_TRUE(refused("/layers/1/file_off", 4097, {"layers[1]: file_off", "multiple of 4096"}));
  EXPECT_TRUE(refused("/align", 8192, {"layers[1]: file_off", "multiple of 8192"}));
  EXPECT_TRUE(refused("/layers/1/file_off", 1ULL << 63U, {"an end below 2^63"}));
  EXPECT_TRUE(refused("/layers/1/nbytes", UINT64_MAX, {"an end below 2^63"}));
}

TEST(TrunkManifest, RunsThatOverlapAreRefused) {
  EXPECT_TRUE(refused("/layers/0/nbytes", 4097, {"run of layer 1", "overlaps run of layer 0"}));
  EXPECT_TRUE(refused("/layers/1/file_off", 0, {"overlaps run of layer"}));
}

TEST(TrunkManifest, TensorsOutsideTheirRunOrOverEachOtherAreRefused) {
  EXPECT_TRUE(refused("/layers/0/tensors/m/off", 4085, {"tensors: m", "outside its run", "4085"}));
  EXPECT_TRUE(refused("/layers/0/tensors/m/off", UINT64_MAX - 5, {"m", "outside its run"}));
  EXPECT_TRUE(refused("/layers/0/tensors/m/nbytes", UINT64_MAX, {"m", "outside its run"}));
  EXPECT_TRUE(refused("/layers/0/tensors/v/off", 11, {"tensors: v", "overlaps m"}));
  EXPECT_TRUE(refused("/layers/0/tensors/v/off", 0, {"overlaps"}));
}

TEST(TrunkManifest, BytesMustAgreeWithShapeAndType) {
  EXPECT_TRUE(refused("/layers/0/tensors/m/nbytes", 10, {"m: nbytes", "expected 12, found 10"}));
  EXPECT_TRUE(refused("/layers/0/tensors/m/dtype", "F32", {"m: nbytes", "expected 24"}));
  EXPECT_TRUE(refused("/layers/0/tensors/m/shape", {1ULL << 32U, 1ULL << 32U},
                      {"m: shape", "shape too large"}));
}

TEST(TrunkManifest, NamesOfAHostileFileAreMadePrintable) {
  json document = sample();
  document["layers"][1]["tensors"]["\x1b[2J"] = 1;
  EXPECT_TRUE(text_refused(document.dump(), {"\\x1b[2J"}));
}

TEST(TrunkManifest, FilesThatCannotBeReadAreRefused) {
  const test::TempDir dir;
  const std::filesystem::path path = dir.path() / "trunk.json";
  const auto fails = [&](FileSystem& files, const std::string& reason) {
    return throws(ErrorKind::kUserFile, {path.string(), reason},
                  [&] { static_cast<void>(read_trunk_manifest(files, path)); });
  };
  EXPECT_TRUE(fails(posix_file_system(), "No such file"));
  test::write_file(path, sample().dump());
  EXPECT_EQ(read_trunk_manifest(posix_file_system(), path).runs.size(), 2U);
  test::FaultyFileSystem broken({.eio_from_byte = 10});
  EXPECT_TRUE(fails(broken, "Input/output error"));
  test::FaultyFileSystem shrinking({.file_ends_at = 100});
  EXPECT_TRUE(fails(shrinking, "100"));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_TRUE(fails(posix_file_system(), "directory"));
}

}  // namespace
}  // namespace k3::io
