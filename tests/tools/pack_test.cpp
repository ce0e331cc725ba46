// The library of k3-pack: what it writes, what it refuses, and what is left when it is stopped.
//
// Over 400 lines because the states in which a pack can stop have one fixture.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/errors.h"

#include "base/checksum.h"
#include "packer.h"
#include "runtime/checkpoint.h"
#include "runtime/packed_trunk.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"
#include "support/tiny_checkpoint.h"
#include "tools/pack_support.h"
#include "trunk_store.h"

namespace k3::tools {
namespace {

namespace fs = std::filesystem;

using model::TensorSpec;
using nlohmann::json;
using runtime::Checkpoint;
using runtime::PackedTrunk;
using test::Faults;
using test::FaultyFileSystem;
using test::read_file;
using test::throws;
using test::write_file;
using testing::HasSubstr;

const std::string kLayers = "language_model.model.layers.";

// A checkpoint and what the library makes of it. Blocks are small, so that runs have several.
class Pack : public testing::Test {
 protected:
  Pack() : config_(test::tiny_config()), tiny_(config_) { tiny_.write(model()); }

  [[nodiscard]] fs::path model() const {
    fs::create_directories(dir_.path() / "model");
    return dir_.path() / "model";
  }

  [[nodiscard]] fs::path out() const { return dir_.path() / "out"; }

  [[nodiscard]] Checkpoint checkpoint() const {
    return {io::posix_file_system(), model(), config_};
  }

  PackFacts pack(io::FileSystem& files = io::posix_file_system()) {
    Progress progress(Progress::Style::kNone);
    return tools::pack(files, checkpoint(), out(), config_, options_, progress);
  }

  PackFacts check(io::FileSystem& files = io::posix_file_system()) {
    Progress progress(Progress::Style::kNone);
    return tools::check(files, checkpoint(), out(), config_, options_, progress);
  }

  testing::AssertionResult pack_fails(ErrorKind kind,
                                      const std::vector<std::string>& parts,
                                      io::FileSystem& files = io::posix_file_system()) {
    return throws(kind, parts, [&] { static_cast<void>(pack(files)); });
  }

  // The engine's reader accepts it, and every tensor is that of the shards.
  void expect_equal_to_shards() const {
    const Checkpoint shards = checkpoint();
    const PackedTrunk trunk(io::posix_file_system(), out(), shards, config_);
    const std::string data = read_file(trunk.data_path());
    for (std::size_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      model::for_each_trunk_tensor(config_, layer, [&](const TensorSpec& spec) {
        const auto wanted = shards.find(layer, spec.role);
        const auto found = trunk.find(layer, spec.role);
        ASSERT_EQ(found.has_value(), wanted.has_value()) << spec.name;
        if (wanted.has_value()) {
          std::string bytes(wanted->nbytes, '?');
          shards.read_bytes(*wanted, 0, std::as_writable_bytes(std::span(bytes)));
          EXPECT_EQ(data.substr(found->offset, found->nbytes), bytes) << spec.name;
        }
      });
    }
    EXPECT_EQ(names_in(out()), kWhole);
  }

  [[nodiscard]] json manifest() const { return json::parse(read_file(out() / "trunk.json")); }

  test::TempDir dir_;
  ModelConfig config_;
  test::TinyCheckpoint tiny_;
  std::atomic<bool> stop_ = false;
  PackOptions options_{.reading = {.readers = 3, .block_bytes = 4096}, .stop = &stop_};
};

TEST_F(Pack, WritesWhatTheEngineReads) {
  const PackFacts facts = pack();
  EXPECT_EQ(facts.layers, 3U);
  EXPECT_EQ(facts.bytes, fs::file_size(out() / "trunk.bin"));
  EXPECT_EQ(facts.copied_bytes, facts.bytes);
  expect_equal_to_shards();
  EXPECT_EQ(check().tensors, facts.tensors);
}

TEST_F(Pack, RunsAreAlignedPaddedAndHaveTheirChecksums) {
  pack();
  const std::string data = read_file(out() / "trunk.bin");
  std::size_t end = 0;
  const json document = manifest();
  for (const json& layer : document.at("layers")) {
    const auto offset = layer.at("file_off").get<std::size_t>();
    const auto bytes = layer.at("nbytes").get<std::size_t>();
    EXPECT_EQ(offset, end);
    EXPECT_EQ(bytes % 4096, 0U);
    EXPECT_EQ(layer.at("xxh128"),
              checksum_text(checksum_of(std::as_bytes(std::span(data).subspan(offset, bytes)))));
    end = offset + bytes;
    std::size_t used = 0;
    for (const json& tensor : layer.at("tensors")) {
      used = std::max(used,
                      tensor.at("off").get<std::size_t>() + tensor.at("nbytes").get<std::size_t>());
    }
    EXPECT_LT(bytes - used, 4096U);
    EXPECT_EQ(data.substr(offset + used, bytes - used), std::string(bytes - used, '\0'));
  }
  EXPECT_EQ(end, data.size());
}

TEST_F(Pack, NoByteOfARoutedExpertIsCopied) {
  pack();
  const json document = manifest();
  for (const json& layer : document.at("layers")) {
    for (const auto& item : layer.at("tensors").items()) {
      EXPECT_EQ(item.key().find(".experts."), std::string::npos) << item.key();
    }
  }
  const std::string data = read_file(out() / "trunk.bin");
  model::for_each_expert_tensor(config_, 1, 0, [&](const TensorSpec& spec) {
    EXPECT_EQ(data.find(tiny_.at(spec.name).data), std::string::npos) << spec.name;
  });
}

// Known values of the algorithm, by xxhsum -H2.
// Moves tensors of layer 1 into shards of their own, with gaps between them.
TEST_F(Pack, ALayerThatSpansShardsIsCopiedTensorByTensor) {
  pack();
  const auto padded_before = fs::file_size(out() / "trunk.bin");
  fs::remove_all(out());
  test::SafetensorsBuilder own;
  for (const std::string name : {"1.self_attn.q_proj.weight", "1.input_layernorm.weight",
                                 "1.block_sparse_moe.gate.weight"}) {
    const test::TinyTensor& tensor = tiny_.at(kLayers + name);
    own.gap(13).add(kLayers + name, tensor.dtype, json(tensor.shape).dump(), tensor.data);
  }
  for (const std::string name : {"1.self_attn.q_proj.weight", "1.input_layernorm.weight",
                                 "1.block_sparse_moe.gate.weight"}) {
    tiny_.erase(kLayers + name);
  }
  tiny_.write(model());
  own.write(model() / "a-first.safetensors");
  pack();
  expect_equal_to_shards();
  EXPECT_EQ(fs::file_size(out() / "trunk.bin"), padded_before);
  check();
}

TEST_F(Pack, WithFewerLayersLaterShardsMayBeMissing) {
  fs::remove(model() / test::TinyCheckpoint::shard_name(3));
  config_.num_hidden_layers = 2;
  EXPECT_EQ(pack().layers, 2U);
  EXPECT_EQ(manifest().at("n_layers"), 2);
  expect_equal_to_shards();
}

TEST_F(Pack, NothingIsWrittenBesideTheShards) {
  const std::vector<std::string> before = names_in(model());
  for (const std::string& name : before) {
    fs::permissions(model() / name, fs::perms::owner_read);
  }
  pack();
  check();
  EXPECT_EQ(names_in(model()), before);
}

TEST_F(Pack, TheModelDirectoryMayBeNamed) {
  Progress progress(Progress::Style::kNone);
  tools::pack(io::posix_file_system(), checkpoint(), model(), config_, options_, progress);
  tools::check(io::posix_file_system(), checkpoint(), model(), config_, options_, progress);
  EXPECT_TRUE(fs::exists(model() / "trunk.json"));
}

TEST_F(Pack, ASecondRunDoesNothing) {
  pack();
  const auto changed = fs::last_write_time(out() / "trunk.bin");
  write_file(out() / "trunk.journal.partial", "left by a kill after the last rename");
  const PackFacts facts = pack();
  EXPECT_TRUE(facts.already_packed);
  EXPECT_EQ(facts.copied_bytes, 0U);
  EXPECT_EQ(fs::last_write_time(out() / "trunk.bin"), changed);
  EXPECT_EQ(names_in(out()), kWhole);
}

TEST_F(Pack, AnotherTrunkIsReplacedOnlyByForce) {
  pack();
  const std::string before = read_file(out() / "trunk.json");
  tiny_.set(kLayers + "0.input_layernorm.weight", "BF16", {24});
  tiny_.write(model());
  EXPECT_TRUE(pack_fails(ErrorKind::kUserFile,
                         {out().string(), "another trunk", "--force", "dtype differs"}));
  EXPECT_EQ(read_file(out() / "trunk.json"), before);
  options_.force = true;
  EXPECT_EQ(pack().kept_layers, 0U);
  expect_equal_to_shards();
}

TEST_F(Pack, SameShapesInChangedShardsAreAnotherTrunk) {
  pack();
  tiny_.set(kLayers + "0.input_layernorm.weight", "F32", {24}, std::string(96, 'x'));
  tiny_.write(model());
  EXPECT_TRUE(pack_fails(ErrorKind::kUserFile, {"another trunk", "shards that were changed"}));
  EXPECT_TRUE(
      throws(ErrorKind::kIo, {"trunk.bin", "0.input_layernorm.weight, byte 0"}, [&] { check(); }));
}

TEST_F(Pack, FilesThatAreNoTrunkAreNotOverwritten) {
  fs::create_directories(out());
  write_file(out() / "trunk.bin", "mine");
  EXPECT_TRUE(pack_fails(ErrorKind::kUserFile, {"--force", "trunk.bin without trunk.json"}));
  write_file(out() / "trunk.json", "{}");
  EXPECT_TRUE(pack_fails(ErrorKind::kUserFile, {"--force", "n_layers"}));
  EXPECT_EQ(read_file(out() / "trunk.bin"), "mine");
  options_.force = true;
  pack();
  expect_equal_to_shards();
}

TEST_F(Pack, CheckFindsAnyChangedByte) {
  pack();
  const std::string whole = read_file(out() / "trunk.bin");
  for (const std::size_t at : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_file(out() / "trunk.bin", damaged);
    EXPECT_TRUE(throws(ErrorKind::kIo, {"trunk.bin"}, [&] { check(); })) << at;
  }
  write_file(out() / "trunk.bin", whole.substr(0, whole.size() - 1));
  EXPECT_TRUE(throws(ErrorKind::kUserFile, {"truncated"}, [&] { check(); }));
  write_file(out() / "trunk.bin", whole);
  check();
}

TEST_F(Pack, ShortReadsInterruptedReadsAndRefusedDirectReadsChangeNothing) {
  for (const Faults& faults :
       {Faults{.max_read_bytes = 700}, Faults{.interruptions_per_read = 3},
        Faults{.refuse_direct = true}, Faults{.refuse_direct_reads = true}}) {
    FaultyFileSystem files(faults);
    fs::remove_all(out());
    options_.read_back = true;
    pack(files);
    expect_equal_to_shards();
    check(files);
  }
}

// Stops the pack by an error on every single read, one after the other; each time the next run goes
// on, and the result is whole.
TEST_F(Pack, AfterAFailedReadTheNextRunGoesOn) {
  pack();
  const std::string whole = read_file(out() / "trunk.bin");
  options_.reading = {.readers = 1, .block_bytes = 4096};
  std::size_t kept_somewhere = 0;
  for (std::uint64_t read = 1;; ++read) {
    fs::remove_all(out());
    FaultyFileSystem files(Faults{.eio_on_read = read});
    try {
      pack(files);
      EXPECT_GT(read, 3U);
      break;  // it needs fewer reads
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("Input/output error"));
    }
    EXPECT_FALSE(fs::exists(out() / "trunk.json"));
    EXPECT_FALSE(fs::exists(out() / "trunk.bin"));
    kept_somewhere += pack().kept_layers;
    EXPECT_EQ(read_file(out() / "trunk.bin"), whole) << read;
    EXPECT_EQ(names_in(out()), kWhole);
  }
  EXPECT_GT(kept_somewhere, 0U);
}

// An interrupted pack: layers 0 and 1 are finished, layer 2 is not.
class InterruptedPack : public Pack {
 protected:
  InterruptedPack() {
    pack();
    whole_ = read_file(out() / "trunk.bin");
    whole_manifest_ = read_file(out() / "trunk.json");
    fs::remove_all(out());
    FaultyFileSystem files({});
    files.add(test::TinyCheckpoint::shard_name(3), Faults{.eio_from_byte = 0});
    EXPECT_TRUE(pack_fails(ErrorKind::kIo, {test::TinyCheckpoint::shard_name(3)}, files));
    EXPECT_EQ(names_in(out()),
              (std::vector<std::string>{"trunk.bin.partial", "trunk.journal.partial"}));
  }

  void expect_whole() const {
    EXPECT_EQ(read_file(out() / "trunk.bin"), whole_);
    EXPECT_EQ(read_file(out() / "trunk.json"), whole_manifest_);
    EXPECT_EQ(names_in(out()), kWhole);
  }

  [[nodiscard]] fs::path partial() const { return out() / "trunk.bin.partial"; }

  [[nodiscard]] fs::path journal() const { return out() / "trunk.journal.partial"; }

  std::string whole_;
  std::string whole_manifest_;
};

TEST_F(InterruptedPack, FinishedLayersAreKept) {
  const PackFacts facts = pack();
  EXPECT_EQ(facts.kept_layers, 2U);
  EXPECT_LT(facts.copied_bytes, facts.bytes);
  expect_whole();
}

TEST_F(InterruptedPack, IsNotAccepted) {
  EXPECT_TRUE(throws(ErrorKind::kUserFile, {"trunk.json"}, [&] { check(); }));
}

TEST_F(InterruptedPack, ADamagedLayerIsCopiedAgain) {
  std::string data = read_file(partial());
  data[5] = static_cast<char>(data[5] ^ 1);
  write_file(partial(), data);
  EXPECT_EQ(pack().kept_layers, 1U);
  expect_whole();
}

TEST_F(InterruptedPack, AJournalThatLiesIsFoundOut) {
  write_file(journal(), read_file(journal()) + "2 0123456789abcdef0123456789abcdef\n");
  EXPECT_EQ(pack().kept_layers, 2U);
  expect_whole();
}

TEST_F(InterruptedPack, AJournalThatIsCutOffCountsAsFarAsItIsWhole) {
  const std::string text = read_file(journal());
  for (std::size_t bytes = 0; bytes <= text.size(); bytes += 7) {
    fs::remove(out() / "trunk.json");
    if (fs::exists(out() / "trunk.bin")) {
      fs::rename(out() / "trunk.bin", partial());
    }
    write_file(journal(), text.substr(0, bytes));
    EXPECT_LE(pack().kept_layers, 2U) << bytes;
    expect_whole();
  }
}

TEST_F(InterruptedPack, AMissingOrShortPartialFileIsMadeAnew) {
  fs::resize_file(partial(), 100);
  EXPECT_EQ(pack().kept_layers, 0U);
  expect_whole();
}

TEST_F(InterruptedPack, OfChangedShardsNothingIsKept) {
  tiny_.set(kLayers + "0.input_layernorm.weight", "F32", {24}, std::string(96, 'x'));
  tiny_.write(model());
  EXPECT_EQ(pack().kept_layers, 0U);
  expect_equal_to_shards();
}

TEST_F(InterruptedPack, StoppedBetweenTheTwoRenamesItGoesOn) {
  const std::string text = read_file(journal());
  pack();
  fs::rename(out() / "trunk.json", out() / "trunk.json.partial");
  write_file(journal(), text);
  EXPECT_EQ(pack().kept_layers, 2U);
  expect_whole();
}

TEST_F(InterruptedPack, AnotherPackInTheSameDirectoryIsRefused) {
  const TrunkStore other(out());
  EXPECT_TRUE(pack_fails(ErrorKind::kUserFile, {out().string(), "another k3-pack"}));
}

TEST_F(Pack, AStopRequestEndsItAndLeavesWhatCanGoOn) {
  stop_ = true;
  EXPECT_TRUE(pack_fails(ErrorKind::kInterrupted, {"interrupted"}));
  EXPECT_FALSE(fs::exists(out() / "trunk.json"));
  stop_ = false;
  pack();
  expect_equal_to_shards();
}

TEST_F(Pack, ALinkInPlaceOfThePartialFileIsNotFollowed) {
  write_file(dir_.path() / "precious", "precious");
  fs::create_directories(out());
  fs::create_symlink(dir_.path() / "precious", out() / "trunk.bin.partial");
  pack();
  EXPECT_EQ(read_file(dir_.path() / "precious"), "precious");
  expect_equal_to_shards();
}

TEST_F(Pack, ShardsThatChangeMeanwhileAreNotAccepted) {
  FaultyFileSystem files({});
  files.hold(test::TinyCheckpoint::shard_name(3));
  std::string message;
  std::thread packing([&] {
    try {
      pack(files);
    } catch (const Error& error) {
      message = error.what();
    }
  });
  files.wait_held(1);
  fs::last_write_time(model() / test::TinyCheckpoint::shard_name(3),
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  files.release();
  packing.join();
  EXPECT_THAT(message, HasSubstr("the shards were changed"));
  EXPECT_FALSE(fs::exists(out() / "trunk.json"));
}

}  // namespace
}  // namespace k3::tools
