// Sessions on disk: resuming equals never having stopped, and whatever is not the whole file of this
// model is refused.
// Over 400 lines because every way to damage a saved state has its test here.

#include "k3/session_file.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "k3/atomic_file.h"
#include "k3/engine.h"
#include "k3/generate.h"

#include "runtime/checkpoint.h"
#include "runtime/session_file.h"
#include "support/expect_error.h"
#include "support/model_answers.h"
#include "support/numbers.h"
#include "support/paths.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;
using test::same_bits;
using test::throws;
using Ids = std::vector<std::int32_t>;

EngineOptions options_of(const std::string& model) {
  return {.model_dir = test::fixture("models/" + model), .memory = {.positions = 160}};
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void feed(Engine& engine, Session& session, std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    const std::size_t count = std::min(ids.size(), engine.memory_plan().chunk);
    const SessionStep step{&session, ids.first(count)};
    engine.forward({&step, 1}, {});
    ids = ids.subspan(count);
  }
}

void save(Engine& engine, const Session& session, const Ids& ids, const fs::path& path) {
  AtomicFile file(path);
  engine.save_session(session, ids, file);
}

// The ids of a prompt after so many of them have passed the layers.
void save_prefix(Engine& engine, const Ids& ids, std::size_t position, const fs::path& path) {
  Session session = engine.new_session();
  feed(engine, session, std::span(ids).first(position));
  save(engine, session, ids, path);
}

// Logits of the ids behind the position of a session, one token at a time.
std::vector<float> logits_behind(Engine& engine, Session& session, const Ids& ids) {
  const std::size_t vocab = engine.config().vocab_size;
  std::vector<float> all;
  const std::vector<std::size_t> row = {0};
  for (std::size_t at = session.position(); at < ids.size(); ++at) {
    std::vector<float> logits(vocab);
    const SessionStep step{&session, std::span(ids).subspan(at, 1), row};
    engine.forward({&step, 1}, logits);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

Ids made_up_ids(std::size_t count, std::size_t vocab) {
  Ids ids;
  for (std::size_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>((i * i * 7 + i * 13 + 5) % vocab));
  }
  return ids;
}

class SessionFile : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] fs::path file() const { return dir_.path() / "state"; }

  // Half of the trunk in memory, the least experts, and one thread.
  [[nodiscard]] static EngineOptions small(const Engine& large) {
    EngineOptions options = options_of(GetParam());
    const MemoryPlan& plan = large.memory_plan();
    options.memory.trunk_bytes = plan.pinned_memory * 2 / 3;
    options.memory.cache_bytes = plan.slot_bytes * large.config().num_experts_per_token;
    options.memory.chunk = 5;
    options.threads = 1;
    return options;
  }

  // Resumes `ids`, saved at `position`, in another engine.
  void expect_resumed(Engine& from, Engine& to, const Ids& ids, std::size_t position) {
    save_prefix(from, ids, position, file());
    const SavedSession saved(file(), "--load-state x");
    ASSERT_EQ(saved.position(), position);
    ASSERT_TRUE(std::ranges::equal(saved.ids(), ids));
    Session session = to.load_session(saved);
    EXPECT_EQ(session.position(), position);
    EXPECT_TRUE(session.intact());
    const std::size_t first = position * to.config().vocab_size;
    EXPECT_TRUE(same_bits(logits_behind(to, session, ids), std::span(whole_).subspan(first)))
        << "saved at " << position;
  }

  test::TempDir dir_;
  std::vector<float> whole_;  // logits of a sequence that never stopped
};

TEST_P(SessionFile, ResumingAtEveryPointEqualsNeverStopping) {
  EngineOptions options = options_of(GetParam());
  options.threads = 3;
  Engine large(options);
  Engine little(small(large));
  ASSERT_GT(little.memory_plan().ring_bytes, 0U);
  const Ids ids = test::fixture_answers(GetParam()).front().full_ids();
  whole_ = test::all_logits(large, ids, 0);
  for (std::size_t position = 0; position < ids.size(); ++position) {
    const bool up = position % 2 == 0;
    expect_resumed(up ? little : large, up ? large : little, ids, position);
  }
}

TEST_P(SessionFile, ResumingAroundTheBlocksOfPositions) {
  Engine engine(options_of(GetParam()));
  const Ids ids = made_up_ids(135, engine.config().vocab_size);
  whole_ = test::all_logits(engine, ids, 0);
  for (const std::size_t position : {1U, 62U, 63U, 64U, 65U, 127U, 128U, 129U, 134U}) {
    expect_resumed(engine, engine, ids, position);
  }
}

TEST_P(SessionFile, GeneratingOnGivesTheSameTokens) {
  Engine large(options_of(GetParam()));
  Engine little(small(large));
  const Ids prompt = test::fixture_answers(GetParam()).front().ids;
  for (const Sampling& sampling :
       {Sampling{}, Sampling{.temperature = 1.5, .top_p = 0.9, .seed = 7}}) {
    const Ids expected =
        generate(large, prompt, {.max_new_tokens = 9, .sampling = sampling}).generated;
    for (const std::size_t stop : {1U, 4U, 8U}) {
      Ids ids = prompt;
      {
        Session session = little.new_session();
        const Ids begun =
            generate(little, session, ids, {.max_new_tokens = stop, .sampling = sampling})
                .generated;
        ids.insert(ids.end(), begun.begin(), begun.end());
        save(little, session, ids, file());
      }
      const SavedSession saved(file(), "state");
      EXPECT_EQ(saved.position() + 1, saved.ids().size());
      Session session = large.load_session(saved);
      const GenerateResult rest =
          generate(large, session, ids, {.max_new_tokens = 9 - stop, .sampling = sampling});
      ids.insert(ids.end(), rest.generated.begin(), rest.generated.end());
      EXPECT_EQ(Ids(ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()), ids.end()), expected)
          << "stopped after " << stop;
    }
  }
}

TEST_P(SessionFile, SavingAgainGivesTheSameBytes) {
  Engine engine(options_of(GetParam()));
  const Ids ids = made_up_ids(70, engine.config().vocab_size);
  save_prefix(engine, ids, 66, file());
  const std::string first = read(file());
  const SavedSession saved(file(), "state");
  const Session session = engine.load_session(saved);
  save(engine, session, ids, file());  // over the file that it came from
  EXPECT_EQ(read(file()), first);
}

INSTANTIATE_TEST_SUITE_P(All,
                         SessionFile,
                         testing::Values("demo", "deep", "odd", "nodense", "edge"),
                         [](const auto& model) { return std::string(model.param); });

// Faults, on the smallest model.
class SessionFaults : public testing::Test {
 protected:
  SessionFaults() : engine_(options_of("edge")) {
    save_prefix(engine_, made_up_ids(kIds, engine_.config().vocab_size), 5, file());
    whole_ = read(file());
  }

  [[nodiscard]] fs::path file() const { return dir_.path() / "state"; }

  void load(Engine& engine) const {
    const SavedSession saved(file(), kWhere);
    const Session session = engine.load_session(saved);
  }

  [[nodiscard]] testing::AssertionResult refused(const std::vector<std::string>& parts) {
    std::vector<std::string> all = parts;
    all.emplace_back(kWhere);
    return throws(ErrorKind::kUserFile, all, [this] { load(engine_); });
  }

  // Another engine refuses the file.
  [[nodiscard]] testing::AssertionResult refused_by(const EngineOptions& options,
                                                    const std::string& part) const {
    Engine other(options);
    return throws(ErrorKind::kUserFile, {kWhere, part}, [&] { load(other); });
  }

  static constexpr std::size_t kIds = 7;
  static constexpr const char* kWhere = "--load-state state";
  test::TempDir dir_;
  Engine engine_;
  std::string whole_;
};

TEST_F(SessionFaults, TheWholeFileIsAccepted) {
  load(engine_);
}

TEST_F(SessionFaults, TruncatedAtEveryLength) {
  for (std::size_t length = 0; length < whole_.size(); ++length) {
    fs::resize_file(file(), length);
    ASSERT_TRUE(refused({"truncated", std::to_string(length) + " bytes"})) << length;
    write(file(), whole_);
  }
}

TEST_F(SessionFaults, EveryByteFlipped) {
  const std::size_t header = runtime::kSessionPreambleBytes + kIds * 4 + 16;
  for (std::size_t at = 0; at < whole_.size(); ++at) {
    std::string damaged = whole_;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    write(file(), damaged);
    ASSERT_TRUE(at < header ? refused({}) : refused({"damaged", "checksum of layer"})) << at;
  }
}

TEST_F(SessionFaults, SectionsOfAnotherFileAreDamage) {
  const fs::path other = dir_.path() / "other";
  save_prefix(engine_, made_up_ids(kIds, 3), 5, other);
  const std::size_t header = runtime::kSessionPreambleBytes + kIds * 4 + 16;
  write(file(), whole_.substr(0, header) + read(other).substr(header));
  EXPECT_TRUE(refused({"checksum of layer 0"}));
}

TEST_F(SessionFaults, AnotherMagicVersionAndTrailingBytes) {
  std::string bytes = whole_;
  bytes[0] = 'K';
  write(file(), bytes);
  EXPECT_TRUE(refused({"no saved state", "k3 state"}));
  bytes = whole_;
  bytes[8] = 2;
  write(file(), bytes);
  EXPECT_TRUE(refused({"version", "expected 1, found 2"}));
  write(file(), whole_ + "x");
  EXPECT_TRUE(refused({"longer", std::to_string(whole_.size() + 1)}));
}

TEST_F(SessionFaults, AbsentOrADirectory) {
  fs::remove(file());
  EXPECT_TRUE(refused({"cannot be read", "No such file"}));
  fs::create_directory(file());
  EXPECT_TRUE(refused({"cannot be read", "directory"}));
}

TEST_F(SessionFaults, OfAnotherModel) {
  EXPECT_TRUE(refused_by(options_of("nodense"), "layers"));
  EngineOptions fewer = options_of("edge");
  fewer.layers = 2;
  EXPECT_TRUE(refused_by(fewer, "expected 2, found 3"));
}

TEST_F(SessionFaults, OfAnotherConfigOfTheSameWeights) {
  std::string config = read(test::fixture("models/edge") / "config.json");
  const std::size_t at = config.find("rms_norm_eps");
  ASSERT_NE(at, std::string::npos);
  const std::size_t begin = config.find_first_of("0123456789", at);
  config.replace(begin, config.find_first_of(",\n}", begin) - begin, "0.003");
  write(dir_.path() / "config.json", config);
  EngineOptions options = options_of("edge");
  options.config_path = dir_.path() / "config.json";
  EXPECT_TRUE(refused_by(options, "fingerprint"));
}

// The same model elsewhere is the same; with one bit of one weight changed it is another.
TEST_F(SessionFaults, OfOtherWeightsWithTheSameConfig) {
  EngineOptions options = options_of("edge");
  const fs::path copy = dir_.path() / "copy";
  fs::copy(options.model_dir, copy, fs::copy_options::recursive);
  const ModelConfig config = load_config(options);
  options.model_dir = copy;
  {
    Engine same(options);
    load(same);
  }
  const runtime::Checkpoint checkpoint(io::posix_file_system(), copy, config);
  const runtime::TensorExtent norm = checkpoint.tensor(1, model::TensorRole::kInputNorm);
  const fs::path shard = checkpoint.index().shard_path(norm.shard);
  std::string bytes = read(shard);
  bytes[norm.offset] = static_cast<char>(bytes[norm.offset] ^ 1);
  fs::permissions(shard, fs::perms::owner_write, fs::perm_options::add);
  write(shard, bytes);
  EXPECT_TRUE(refused_by(options, "fingerprint"));
}

TEST_F(SessionFaults, APackedTrunkIsTheSameModel) {
  EngineOptions options = options_of("edge");
  options.trunk_dir = test::fixture("trunk/edge");
  Engine packed(options);
  load(packed);
}

TEST_F(SessionFaults, MorePositionsThanThePlanHolds) {
  EngineOptions options = options_of("edge");
  options.memory.positions = 4;
  Engine little(options);
  EXPECT_TRUE(
      throws(ErrorKind::kMemory, {"positions", "at most 4, found 5"}, [&] { load(little); }));
}

TEST_F(SessionFaults, OneStateForAllLayersIsNeitherSavedNorResumed) {
  EngineOptions options = options_of("edge");
  options.memory.ultra_low_memory = true;
  options.memory.full_recompute = true;
  Engine one(options);
  EXPECT_TRUE(throws(ErrorKind::kUsage, {"one state"}, [&] { load(one); }));
  const Session session = one.new_session();
  EXPECT_TRUE(throws(ErrorKind::kUsage, {"one state"}, [&] { save(one, session, {1}, file()); }));
  EXPECT_EQ(read(file()), whole_);
}

TEST_F(SessionFaults, ATornSessionIsNotSaved) {
  std::atomic<bool> stop = false;
  EngineOptions options = options_of("edge");
  options.stop = &stop;
  Engine engine(options);
  Session session = engine.new_session();
  const Ids ids = {1, 2, 3};
  const SessionStep step{&session, ids};
  const ResidualObserver observer = [&](std::size_t layers_done, std::span<const float>) {
    stop = layers_done == 1;
  };
  EXPECT_TRUE(throws(ErrorKind::kInterrupted, {}, [&] {
    engine.forward({&step, 1}, {}, {.observer = &observer});
  }));
  EXPECT_FALSE(session.intact());
  EXPECT_THROW(save(engine, session, ids, file()), std::logic_error);
  EXPECT_EQ(read(file()), whole_);
}

TEST_F(SessionFaults, ASessionOfAnotherEngineOrWithTooFewIdsIsNotSaved) {
  Engine other(options_of("edge"));
  Session session = engine_.new_session();
  EXPECT_THROW(save(other, session, {1}, file()), std::logic_error);
  feed(engine_, session, Ids{1, 2});
  EXPECT_THROW(save(engine_, session, {1}, file()), std::logic_error);
  EXPECT_EQ(read(file()), whole_);
}

// A limit on the size of files, as long as it lives.
class FullDisk {
 public:
  explicit FullDisk(std::size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }

  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_ = {};
};

TEST_F(SessionFaults, AFailedWriteLeavesTheOldFile) {
  const Ids ids = {1, 2, 3};
  std::optional<Session> session = engine_.new_session();
  feed(engine_, *session, ids);
  for (const std::size_t room : {std::size_t{0}, std::size_t{100}, whole_.size() / 2}) {
    const FullDisk full(room);
    EXPECT_TRUE(
        throws(ErrorKind::kIo, {file().string()}, [&] { save(engine_, *session, ids, file()); }));
  }
  EXPECT_EQ(read(file()), whole_);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), {}), 1);
  save(engine_, *session, ids, file());
  session.reset();
  load(engine_);
}

}  // namespace
}  // namespace k3
