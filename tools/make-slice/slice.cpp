#include "slice.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "k3/atomic_file.h"
#include "k3/errors.h"

#include "free_space.h"
#include "io/config_checks.h"
#include "random_weights.h"
#include "replica.h"
#include "replica_config.h"
#include "shard_layout.h"

namespace k3::tools {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{4} << 20U;
static_assert(kChunkBytes % TensorFiller::kStep == 0);

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what, int error) {
  throw Error(ErrorKind::kIo, path.string() + ": " + what + ": " +
                                  std::error_code(error, std::generic_category()).message());
}

// A new file.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path)
      : path_(std::move(path)),
        descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) {
      fail(path_, "cannot create", errno);
    }
  }

  ~OutputFile() { ::close(descriptor_); }

  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  OutputFile(OutputFile&&) = delete;
  OutputFile& operator=(OutputFile&&) = delete;

  // From any thread.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written =
          ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0 && errno != EINTR) {
        fail(path_, "writing failed", errno);
      }
      const auto done = static_cast<std::size_t>(std::max<ssize_t>(written, 0));
      offset += done;
      bytes = bytes.subspan(done);
    }
  }

  // Waits for the device, then leaves the page cache to others.
  void sync() const {
    if (::fdatasync(descriptor_) != 0) {
      fail(path_, "writing failed", errno);
    }
    static_cast<void>(::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED));
  }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

struct Chunk {
  std::size_t tensor = 0;
  std::uint64_t begin = 0;  // in the tensor
  std::size_t bytes = 0;
};

// Fills one shard from several threads.
class ShardWriter {
 public:
  ShardWriter(const OutputFile& file,
              const Shard& shard,
              std::uint64_t data_begin,
              WeightSource& source,
              const SliceOptions& options)
      : file_(file), shard_(shard), data_begin_(data_begin), options_(options) {
    for (std::size_t i = 0; i < shard.size(); ++i) {
      fillers_.push_back(source.filler(shard[i]));
      for (std::uint64_t begin = 0; begin < shard[i].bytes; begin += kChunkBytes) {
        const std::uint64_t left = shard[i].bytes - begin;
        chunks_.push_back(
            {i, begin, static_cast<std::size_t>(std::min<std::uint64_t>(left, kChunkBytes))});
      }
    }
  }

  void run() {
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < options_.threads; ++i) {
      try {
        threads.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        break;  // fewer will do
      }
    }
    work();
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (failure_ != nullptr) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  void work() noexcept {
    try {
      std::vector<std::byte> memory(kChunkBytes);
      while (!failed_) {
        const std::size_t next = next_++;
        if (next >= chunks_.size()) {
          return;
        }
        if (options_.stop != nullptr && *options_.stop) {
          throw Error(ErrorKind::kInterrupted, "interrupted while writing");
        }
        const Chunk& chunk = chunks_[next];
        const std::span<std::byte> bytes(memory.data(), chunk.bytes);
        fillers_[chunk.tensor].fill(chunk.begin, bytes);
        file_.write(data_begin_ + shard_[chunk.tensor].begin + chunk.begin, bytes);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      failed_ = true;
    }
  }

  const OutputFile& file_;
  const Shard& shard_;
  std::uint64_t data_begin_;
  const SliceOptions& options_;
  std::vector<TensorFiller> fillers_;  // [tensor]
  std::vector<Chunk> chunks_;
  std::atomic<std::size_t> next_ = 0;  // chunk
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

// Writes shards one after the other; each goes to the device while the next one is made.
class SliceWriter {
 public:
  SliceWriter(std::filesystem::path directory, std::size_t shards, const SliceOptions& options)
      : directory_(std::move(directory)),
        shards_(shards),
        options_(options),
        source_(options.seed) {}

  void write(Shard shard) {
    const std::string header = lay_out(shard);
    auto file = std::make_unique<OutputFile>(directory_ / shard_name(facts_.shards + 1, shards_));
    file->write(0, std::as_bytes(std::span(header)));
    ShardWriter(*file, shard, header.size(), source_, options_).run();
    finish();
    syncing_ = std::async(std::launch::async, [written = std::move(file)] { written->sync(); });
    facts_.shards += 1;
    facts_.tensors += shard.size();
    facts_.shard_bytes += header.size() + data_bytes(shard);
  }

  void finish() {
    if (syncing_.valid()) {
      syncing_.get();
    }
  }

  [[nodiscard]] const SliceFacts& facts() const { return facts_; }

 private:
  std::filesystem::path directory_;
  std::size_t shards_;
  const SliceOptions& options_;
  WeightSource source_;
  std::future<void> syncing_;  // the shard before; waits on destruction
  SliceFacts facts_;
};

// Calls `visit` for every shard: the layers, then the model level.
template <typename Visit>
void for_each_shard(const ModelConfig& config, const Visit& visit) {
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    visit(layer_shard(config, layer));
  }
  visit(model_shard(config));
}

// A directory that is removed with all that is in it unless it gets its final name.
class PartialDirectory {
 public:
  explicit PartialDirectory(const std::filesystem::path& final_path)
      : final_(final_path), part_(final_path.string() + ".part") {
    std::error_code error;
    if (!std::filesystem::create_directory(part_, error)) {
      throw Error(ErrorKind::kUsage,
                  ErrorDetail{.what = "cannot create the directory to write in",
                              .where = part_.string(),
                              .expected = "a place for a new directory",
                              .found = error ? error.message() : "one that is there already"});
    }
  }

  ~PartialDirectory() {
    std::error_code ignored;
    if (!part_.empty()) {
      std::filesystem::remove_all(part_, ignored);
    }
  }

  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;
  PartialDirectory(PartialDirectory&&) = delete;
  PartialDirectory& operator=(PartialDirectory&&) = delete;

  void commit() {
    std::error_code error;
    std::filesystem::rename(part_, final_, error);  // takes the place of an empty directory
    if (error) {
      fail(final_, "cannot rename " + part_.string(), error.value());
    }
    part_.clear();
  }

  [[nodiscard]] const std::filesystem::path& path() const { return part_; }

 private:
  std::filesystem::path final_;
  std::filesystem::path part_;
};

void require_empty(const std::filesystem::path& directory) {
  std::error_code error;
  const auto status = std::filesystem::status(directory, error);
  if (std::filesystem::exists(status) &&
      (!std::filesystem::is_directory(status) || !std::filesystem::is_empty(directory, error))) {
    throw Error(ErrorKind::kUsage, ErrorDetail{.what = "not a place for a slice",
                                               .where = directory.string(),
                                               .expected = "an absent or empty directory",
                                               .found = "something there"});
  }
}

[[noreturn]] void refuse(const std::string& what,
                         const std::string& expected,
                         const std::string& found) {
  throw Error(ErrorKind::kUsage, ErrorDetail{.what = what, .expected = expected, .found = found});
}

// The kinds of layers, and how many of the first are dense.
void set_layers(const std::vector<std::string>& layers, ModelConfig& config) {
  config.num_hidden_layers = layers.size();
  config.is_mla.assign(layers.size(), false);
  config.first_k_dense_replace = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::string_view kind = layers[i];
    constexpr std::string_view kDense = "-dense";
    if (kind.ends_with(kDense)) {
      kind.remove_suffix(kDense.size());
      if (config.first_k_dense_replace != i) {
        refuse("dense layer " + std::to_string(i + 1), "dense layers before all others", layers[i]);
      }
      config.first_k_dense_replace = i + 1;
    }
    if (kind != "kda" && kind != "mla") {
      refuse("unknown kind of layer", "kda, mla, kda-dense or mla-dense", "'" + layers[i] + "'");
    }
    config.is_mla[i] = kind == "mla";
  }
}

}  // namespace

ModelConfig slice_config(const SliceShape& shape) {
  ModelConfig config = released_config();
  const std::size_t divisor = shape.width_divisor;
  if (divisor == 0 || divisor > 16 || (divisor & (divisor - 1)) != 0) {
    refuse("width divisor", "1, 2, 4, 8 or 16", std::to_string(divisor));
  }
  for (std::size_t* width :
       {&config.hidden_size, &config.kda_num_heads, &config.num_attention_heads,
        &config.q_lora_rank, &config.kv_lora_rank, &config.routed_expert_hidden_size,
        &config.moe_intermediate_size, &config.intermediate_size}) {
    *width /= divisor;
  }
  set_layers(shape.layers, config);
  config.num_experts = shape.experts;
  config.vocab_size = shape.vocabulary;
  if (shape.experts < config.num_experts_per_token || shape.experts > 65536) {
    refuse("experts", "16 to 65536", std::to_string(shape.experts));
  }
  if (shape.vocabulary < 1 || shape.vocabulary > io::kMaxConfigSize) {
    refuse("vocabulary", "1 to " + std::to_string(io::kMaxConfigSize),
           std::to_string(shape.vocabulary));
  }
  try {
    io::check_config(config, "the slice");
  } catch (const Error& fault) {
    throw Error(ErrorKind::kUsage, fault.what());
  }
  return config;
}

std::uint64_t slice_bytes(const ModelConfig& config) {
  std::uint64_t bytes = 0;
  for_each_shard(config, [&](Shard shard) {
    bytes += lay_out(shard).size();
    bytes += data_bytes(shard);
  });
  return bytes;
}

SliceFacts write_slice(const ModelConfig& config,
                       const std::filesystem::path& directory,
                       const SliceOptions& options) {
  std::filesystem::path target = std::filesystem::absolute(directory).lexically_normal();
  if (!target.has_filename()) {
    target = target.parent_path();  // a slash at the end
  }
  require_empty(target);
  require_free_space(target.parent_path(), slice_bytes(config), "a slice");
  PartialDirectory partial(target);
  SliceWriter writer(partial.path(), config.num_hidden_layers + 1, options);
  for_each_shard(config, [&](Shard shard) { writer.write(std::move(shard)); });
  writer.finish();
  AtomicFile text(partial.path() / "config.json");
  text.write(config_text(config));
  text.commit();
  partial.commit();
  return writer.facts();
}

}  // namespace k3::tools
