// k3-make-slice: its weights, its files, and the engine on them.

#include "slice.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "k3/errors.h"

#include "base/float_bits.h"
#include "io/config_reader.h"
#include "io/file.h"
#include "random_weights.h"
#include "replica.h"
#include "runtime/checkpoint.h"
#include "shard_layout.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/run_program.h"
#include "support/safetensors_builder.h"

namespace k3::tools {
namespace {

using model::TensorRole;
using test::run_program;
using test::throws;
using testing::HasSubstr;

ShardTensor tensor(TensorRole role, DType dtype, std::vector<std::uint64_t> shape) {
  Shard shard = {{.name = "some.tensor", .dtype = dtype, .shape = std::move(shape), .role = role}};
  static_cast<void>(lay_out(shard));
  return shard.front();
}

std::vector<std::byte> content(const ShardTensor& of, std::uint64_t seed = 1) {
  std::vector<std::byte> bytes(of.bytes);
  WeightSource(seed).filler(of).fill(0, bytes);
  return bytes;
}

// The values of a float32 or bf16 tensor.
std::vector<double> values(const ShardTensor& of) {
  const std::vector<std::byte> bytes = content(of);
  std::vector<double> result(of.bytes / dtype_size(of.dtype));
  for (std::size_t i = 0; i < result.size(); ++i) {
    float value = 0.0F;
    std::uint16_t bits = 0;
    if (of.dtype == DType::kF32) {
      std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    } else {
      std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
      value = bf16_to_float(bits);
    }
    result[i] = static_cast<double>(value);
  }
  return result;
}

double mean(const std::vector<double>& of) {
  double sum = 0.0;
  for (const double value : of) {
    sum += value;
  }
  return sum / static_cast<double>(of.size());
}

double deviation(const std::vector<double>& of) {
  const double middle = mean(of);
  double sum = 0.0;
  for (const double value : of) {
    sum += (value - middle) * (value - middle);
  }
  return std::sqrt(sum / static_cast<double>(of.size()));
}

TEST(RandomWeights, ChunksGiveTheBytesOfTheWhole) {
  for (const ShardTensor& of : {tensor(TensorRole::kKdaQ, DType::kBf16, {33, 101}),
                                tensor(TensorRole::kKdaDtBias, DType::kF32, {999}),
                                tensor(TensorRole::kExpertW1, DType::kU8, {31, 67})}) {
    const std::vector<std::byte> whole = content(of);
    const TensorFiller filler = WeightSource(1).filler(of);
    for (const std::size_t step : {TensorFiller::kStep, 5 * TensorFiller::kStep}) {
      std::vector<std::byte> parts(of.bytes);
      for (std::size_t begin = 0; begin < parts.size(); begin += step) {
        const std::size_t bytes = std::min(step, parts.size() - begin);
        filler.fill(begin, std::span(parts).subspan(begin, bytes));
      }
      EXPECT_EQ(parts, whole) << step;
    }
  }
}

TEST(RandomWeights, SeedAndNameDecide) {
  ShardTensor of = tensor(TensorRole::kKdaQ, DType::kBf16, {16, 64});
  const std::vector<std::byte> first = content(of, 1);
  EXPECT_EQ(content(of, 1), first);
  EXPECT_NE(content(of, 2), first);
  of.name = "another.tensor";
  EXPECT_NE(content(of, 1), first);
}

TEST(RandomWeights, MatricesKeepTheSizeOfWhatTheyMultiply) {
  const std::vector<double> weights = values(tensor(TensorRole::kKdaQ, DType::kBf16, {100, 1024}));
  EXPECT_NEAR(deviation(weights) * std::sqrt(1024.0), 1.0, 0.02);
  EXPECT_NEAR(mean(weights) * std::sqrt(1024.0), 0.0, 0.02);
  // Normal, not uniform: the largest of 100,000 lies beyond four deviations.
  EXPECT_GT(*std::max_element(weights.begin(), weights.end()) * std::sqrt(1024.0), 3.8);
}

TEST(RandomWeights, VectorsHaveTheSpreadOfTheirRole) {
  const std::vector<double> norm = values(tensor(TensorRole::kInputNorm, DType::kBf16, {4096}));
  EXPECT_NEAR(mean(norm), 1.0, 0.01);
  EXPECT_NEAR(deviation(norm), 0.1, 0.01);
  const std::vector<double> decay = values(tensor(TensorRole::kKdaALog, DType::kF32, {4096}));
  EXPECT_GE(*std::min_element(decay.begin(), decay.end()), 0.0);
  EXPECT_LE(*std::max_element(decay.begin(), decay.end()), std::log(16.0));
  EXPECT_NEAR(mean(decay), 1.96, 0.05);  // the mean of log over 1 to 16
  const std::vector<double> bias = values(tensor(TensorRole::kKdaDtBias, DType::kF32, {4096}));
  EXPECT_NEAR(*std::min_element(bias.begin(), bias.end()), -6.9, 0.05);
  EXPECT_NEAR(*std::max_element(bias.begin(), bias.end()), -2.25, 0.05);
}

// The packed expert of the release: every code, scales around 120, a spread of columns^-1/2.
TEST(RandomWeights, PackedRowsHaveTheSpreadOfAMatrix) {
  constexpr std::array<double, 8> kCodes = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  const std::vector<std::byte> packed =
      content(tensor(TensorRole::kExpertW1, DType::kU8, {64, 1792}));
  const std::vector<std::byte> scales =
      content(tensor(TensorRole::kExpertW1Scale, DType::kU8, {64, 112}));
  std::map<unsigned, int> seen;
  double squares = 0.0;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    const double scale = std::exp2(std::to_integer<int>(scales[i / 16]) - 127);
    for (const unsigned code :
         {std::to_integer<unsigned>(packed[i]) & 15U, std::to_integer<unsigned>(packed[i]) >> 4U}) {
      ++seen[code];
      squares += std::pow(kCodes[code & 7U] * scale, 2.0);
    }
  }
  EXPECT_EQ(seen.size(), 16U);
  EXPECT_NEAR(std::sqrt(squares / (64.0 * 3584) * 3584), 1.0, 0.15);
  for (const std::byte scale : scales) {
    EXPECT_GE(std::to_integer<int>(scale), 115);
    EXPECT_LE(std::to_integer<int>(scale), 121);
  }
}

SliceShape tiny() {
  return {
      .layers = {"kda-dense", "kda", "mla"}, .experts = 16, .vocabulary = 64, .width_divisor = 16};
}

TEST(SliceConfig, KeepsTheReleasedWidths) {
  ModelConfig expected = released_config();
  expected.num_hidden_layers = 7;
  expected.is_mla = {false, false, false, true, false, false, true};
  expected.num_experts = 32;
  expected.vocab_size = 4096;
  EXPECT_EQ(slice_config({}), expected);
}

TEST(SliceConfig, DefaultIsAboutTwelveAndAHalfGigabytes) {
  EXPECT_NEAR(static_cast<double>(slice_bytes(slice_config({}))) / 1e9, 12.5, 0.8);
}

TEST(SliceConfig, ShapesThatThereAreNotAreRefused) {
  const auto refused = [](SliceShape shape, const std::vector<std::string>& parts) {
    return throws(ErrorKind::kUsage, parts, [&] { static_cast<void>(slice_config(shape)); });
  };
  EXPECT_TRUE(refused({.layers = {"kda", "mlp"}}, {"kind of layer", "'mlp'"}));
  EXPECT_TRUE(refused({.layers = {"kda", "kda-dense"}}, {"dense layer 2", "before all others"}));
  EXPECT_TRUE(refused({.layers = {"mla"}}, {"the slice"}));  // no KDA layer
  EXPECT_TRUE(refused({.experts = 15}, {"experts", "16 to"}));
  EXPECT_TRUE(refused({.vocabulary = 0}, {"vocabulary"}));
  EXPECT_TRUE(refused({.width_divisor = 3}, {"width divisor", "1, 2, 4, 8 or 16"}));
  EXPECT_TRUE(refused({.width_divisor = 32}, {"width divisor"}));
}

std::map<std::string, std::string> files_of(const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files[entry.path().filename().string()] = test::read_file(entry.path());
  }
  return files;
}

TEST(Slice, BytesDependOnTheSeedAndNotOnThreads) {
  const test::TempDir dir;
  const ModelConfig config = slice_config(tiny());
  const SliceFacts facts = write_slice(config, dir.path() / "a", {.threads = 1});
  write_slice(config, dir.path() / "b", {.threads = 3});
  write_slice(config, dir.path() / "c", {.seed = 2});
  const auto a = files_of(dir.path() / "a");
  EXPECT_EQ(a.size(), 5U);  // 3 layers, the model level, the config
  EXPECT_EQ(facts.shards, 4U);
  EXPECT_EQ(facts.shard_bytes, slice_bytes(config));
  EXPECT_EQ(files_of(dir.path() / "b"), a);
  EXPECT_NE(files_of(dir.path() / "c"), a);
}

TEST(Slice, BindsToItsConfig) {
  const test::TempDir dir;
  const ModelConfig config = slice_config(tiny());
  const SliceFacts facts = write_slice(config, dir.path() / "model/", {.threads = 2});
  EXPECT_EQ(io::read_config(dir.path() / "model" / "config.json"), config);
  const runtime::Checkpoint checkpoint(io::posix_file_system(), dir.path() / "model", config);
  EXPECT_EQ(checkpoint.bound_tensor_count(), facts.tensors);
}

TEST(Slice, OnlyAnAbsentOrEmptyDirectoryIsWritten) {
  const test::TempDir dir;
  const ModelConfig config = slice_config(tiny());
  std::filesystem::create_directory(dir.path() / "empty");
  write_slice(config, dir.path() / "empty", {});
  EXPECT_TRUE(throws(ErrorKind::kUsage, {"empty", "absent or empty"},
                     [&] { write_slice(config, dir.path() / "empty", {}); }));
  std::filesystem::create_directory(dir.path() / "x.part");
  EXPECT_TRUE(
      throws(ErrorKind::kUsage, {"x.part"}, [&] { write_slice(config, dir.path() / "x", {}); }));
  EXPECT_TRUE(std::filesystem::exists(dir.path() / "x.part"));  // it may be somebody's
  EXPECT_TRUE(throws(ErrorKind::kUsage, {"absent"},
                     [&] { write_slice(config, dir.path() / "absent" / "x", {}); }));
}

TEST(Slice, AFullDiskIsRefusedBeforeAByteIsWritten) {
  const test::TempDir dir;
  const ModelConfig huge = slice_config({.layers = {"kda-dense"}, .vocabulary = 2'000'000'000});
  EXPECT_TRUE(throws(ErrorKind::kUsage, {"disk too full for a slice"},
                     [&] { write_slice(huge, dir.path() / "huge", {}); }));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Slice, InterruptedItLeavesNothing) {
  const test::TempDir dir;
  const std::atomic<bool> stop = true;
  EXPECT_TRUE(throws(ErrorKind::kInterrupted, {"interrupted"}, [&] {
    write_slice(slice_config(tiny()), dir.path() / "model", {.stop = &stop});
  }));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(SliceProgram, TheEngineRunsOnWhatItWrites) {
  const test::TempDir dir;
  const std::string model = (dir.path() / "model").string();
  const auto made =
      run_program({K3_MAKE_SLICE, model, "--layers", "kda-dense,kda,kda,mla,kda,kda,mla",
                   "--experts", "17", "--vocab", "100", "--width-divisor", "16", "--threads", "2"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("in 8 shards"));
  for (const char* layers : {"2", "7"}) {
    const auto ran = run_program({K3_EXECUTABLE, model, "--ids", "1,2,99", "--gen", "2", "--layers",
                                  layers, "--out", (dir.path() / "run.json").string()});
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("generated ids: "));
  }
}

TEST(SliceProgram, UsageErrorsAreStatus2) {
  const test::TempDir dir;
  const std::string model = (dir.path() / "model").string();
  EXPECT_EQ(run_program({K3_MAKE_SLICE}).status, 2);
  EXPECT_EQ(run_program({K3_MAKE_SLICE, model, "--experts", "3"}).status, 2);
  EXPECT_EQ(run_program({K3_MAKE_SLICE, model, "--experts", "-1"}).status, 2);
  EXPECT_EQ(run_program({K3_MAKE_SLICE, model, "--layers", "kda,conv"}).status, 2);
  EXPECT_EQ(run_program({K3_MAKE_SLICE, "--help"}).status, 0);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace k3::tools
