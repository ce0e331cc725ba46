#include "runtime/device_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "k3/errors.h"

#include "base/window_buffer.h"
#include "io/window_file.h"
#include "runtime/reader_pool.h"

namespace k3::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using Files = std::vector<std::unique_ptr<io::WindowFile>>;

constexpr double kExpertShare = 0.2;  // of the bytes of the mix
constexpr double kNoise = 0.03;       // differences below it decide nothing

struct Piece {
  io::WindowFile* file = nullptr;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  ReadPriority priority = ReadPriority::kTape;
};

// Places to read, without end. Successive samples go on where the last one stopped, so that nothing
// is read twice before everything was read once.
class Places {
 public:
  Places(const std::vector<std::uint64_t>& sizes, std::uint64_t seed)
      : sizes_(sizes), random_(seed) {}

  // A sample begins: what is left of the last one's expert is forgotten.
  void begin() {
    expert_left_ = 0;
    expert_bytes_ = 0;
    all_bytes_ = 0;
  }

  Piece next(const Files& files, ReadPattern pattern, std::size_t request, std::size_t expert) {
    const bool behind = static_cast<double>(expert_bytes_) <
                        kExpertShare * static_cast<double>(all_bytes_ + request);
    const bool is_expert = pattern == ReadPattern::kExperts ||
                           (pattern == ReadPattern::kMix && (expert_left_ > 0 || behind));
    const Piece piece =
        is_expert ? expert_piece(files, request, expert) : tape_piece(files, request);
    expert_bytes_ += is_expert ? piece.bytes : 0;
    all_bytes_ += piece.bytes;
    return piece;
  }

 private:
  Piece tape_piece(const Files& files, std::size_t request) {
    if (tape_offset_ >= sizes_[tape_file_]) {
      tape_file_ = (tape_file_ + 1) % sizes_.size();
      tape_offset_ = 0;
    }
    const std::uint64_t offset = tape_offset_;
    const auto bytes =
        static_cast<std::size_t>(std::min<std::uint64_t>(request, sizes_[tape_file_] - offset));
    tape_offset_ += bytes;
    return {files[tape_file_].get(), offset, bytes, ReadPriority::kTape};
  }

  Piece expert_piece(const Files& files, std::size_t request, std::size_t expert) {
    if (expert_left_ == 0) {
      std::discrete_distribution<std::size_t> pick(sizes_.begin(), sizes_.end());
      expert_file_ = pick(random_);
      const std::uint64_t size = sizes_[expert_file_];
      expert_left_ = static_cast<std::size_t>(std::min<std::uint64_t>(expert, size));
      expert_offset_ =
          std::uniform_int_distribution<std::uint64_t>(0, size - expert_left_)(random_);
    }
    const std::uint64_t offset = expert_offset_;
    const std::size_t bytes = std::min(request, expert_left_);
    expert_offset_ += bytes;
    expert_left_ -= bytes;
    return {files[expert_file_].get(), offset, bytes, ReadPriority::kExpert};
  }

  std::vector<std::uint64_t> sizes_;  // [file], none of them 0
  std::mt19937_64 random_;
  std::size_t tape_file_ = 0;
  std::uint64_t tape_offset_ = 0;
  std::size_t expert_file_ = 0;
  std::uint64_t expert_offset_ = 0;
  std::size_t expert_left_ = 0;  // bytes of the expert that is being read
  std::uint64_t expert_bytes_ = 0;
  std::uint64_t all_bytes_ = 0;
};

// One sample: as many requests as readers, each of which goes on to the next place by itself until
// the time is over.
class Sampler {
 public:
  Sampler(const Files& files, Places& places, std::size_t expert_bytes)
      : files_(files), places_(places), expert_bytes_(expert_bytes) {}

  BandwidthSample run(const ReadSetting& setting, ReadPattern pattern, double seconds) {
    setting_ = setting;
    pattern_ = pattern;
    places_.begin();
    std::deque<Request> requests;
    for (std::size_t i = 0; i < setting.readers; ++i) {
      requests.emplace_back(*this, buffer_bytes(), files_.front()->alignment());
    }
    ReaderPool pool(setting.readers);
    pool_ = &pool;
    begun_ = Clock::now();
    deadline_ = begun_ +
                std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    running_ = requests.size();
    for (Request& request : requests) {
      request.advance();
    }
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return running_ == 0; });
    if (failure_ != nullptr) {
      std::rethrow_exception(failure_);
    }
    return {setting, pattern, seconds_, bytes_};
  }

 private:
  class Request final : public ReadRequest {
   public:
    Request(Sampler& sampler, std::size_t capacity, std::size_t alignment)
        : sampler_(sampler), memory_(capacity, alignment) {
      buffer = memory_.span();
      std::fill(buffer.begin(), buffer.end(), std::byte{0});  // no page fault in the sample
    }

    void advance() noexcept { sampler_.advance(*this); }

    void on_done(std::byte* /*payload*/, std::exception_ptr error) noexcept override {
      if (sampler_.note(*this, std::move(error))) {
        sampler_.advance(*this);
      }
    }

   private:
    Sampler& sampler_;
    WindowBuffer memory_;
  };

  [[nodiscard]] std::size_t buffer_bytes() const {
    return io::aligned_capacity(setting_.request_bytes, files_.front()->alignment());
  }

  void advance(Request& request) noexcept {
    {
      const std::lock_guard lock(mutex_);
      const Piece piece = places_.next(files_, pattern_, setting_.request_bytes, expert_bytes_);
      request.file = piece.file;
      request.offset = piece.offset;
      request.bytes = piece.bytes;
      request.priority = piece.priority;
    }
    pool_->submit(request);
  }

  // Counts a request that is done. True: it goes on.
  bool note(const Request& request, std::exception_ptr error) noexcept {
    const Clock::time_point now = Clock::now();
    const std::lock_guard lock(mutex_);
    if (error != nullptr && failure_ == nullptr) {
      failure_ = std::move(error);
    }
    if (!over_) {
      bytes_ += request.bytes;
      over_ = now >= deadline_ || failure_ != nullptr;
      if (over_) {  // the others are anywhere in their requests, on average in the middle
        seconds_ = std::chrono::duration<double>(now - begun_).count();
        bytes_ += (setting_.readers - 1) * request.bytes / 2;
      }
    }
    if (!over_) {
      return true;
    }
    running_ -= 1;
    if (running_ == 0) {
      ended_.notify_all();
    }
    return false;
  }

  const Files& files_;
  Places& places_;
  std::size_t expert_bytes_;
  ReadSetting setting_;
  ReadPattern pattern_ = ReadPattern::kMix;
  ReaderPool* pool_ = nullptr;
  Clock::time_point begun_;
  Clock::time_point deadline_;
  std::mutex mutex_;  // guards the places and what follows
  std::condition_variable ended_;
  std::size_t running_ = 0;  // requests that go on
  bool over_ = false;
  double seconds_ = 0.0;
  std::uint64_t bytes_ = 0;
  std::exception_ptr failure_;
};

class Measurement {
 public:
  Measurement(io::FileSystem& file_system,
              std::span<const std::filesystem::path> paths,
              const BandwidthOptions& options)
      : options_(options),
        direct_(open(file_system, paths, true)),
        buffered_(open(file_system, paths, false)),
        places_(sizes_of(buffered_), options.seed) {
    if (options.readers.empty() || options.request_bytes.empty() ||
        options.request_bytes.front() == 0 || !(options.direct || options.buffered)) {
      throw Error(ErrorKind::kUsage,
                  "nothing to measure: readers, request sizes and a way to read");
    }
    report_.alignment = buffered_.front()->alignment();
  }

  BandwidthReport run() {
    bool direct = options_.direct;
    if (direct) {
      report_.direct_refused = probe_direct();
      direct = report_.direct_refused.empty();
    }
    if (options_.whole_grid) {
      measure_grid(direct);
    } else {
      measure_in_steps(direct);
    }
    report_.best = best_setting(report_.samples);
    report_.mix_bytes_per_second = sample(report_.best, ReadPattern::kMix);
    report_.tape_bytes_per_second = sample(report_.best, ReadPattern::kTape);
    report_.experts_bytes_per_second = sample(report_.best, ReadPattern::kExperts);
    return report_;
  }

 private:
  static Files open(io::FileSystem& file_system,
                    std::span<const std::filesystem::path> paths,
                    bool direct) {
    Files files;
    for (const std::filesystem::path& path : paths) {
      auto file = std::make_unique<io::WindowFile>(file_system, path, ErrorKind::kIo,
                                                   io::WindowFileOptions{.direct = direct});
      if (file->size() > 0) {
        files.push_back(std::move(file));
      }
    }
    if (files.empty()) {
      throw Error(ErrorKind::kUsage, "no file with bytes to measure a device with");
    }
    return files;
  }

  static std::vector<std::uint64_t> sizes_of(const Files& files) {
    std::vector<std::uint64_t> sizes;
    for (const auto& file : files) {
      sizes.push_back(file->size());
    }
    return sizes;
  }

  // One small read of each file, since a file system may refuse at the first read.
  std::string probe_direct() {
    const WindowBuffer buffer(io::aligned_capacity(1, report_.alignment), report_.alignment);
    for (const auto& file : direct_) {
      file->read(0, 1, buffer.span());
      if (!file->direct()) {
        return file->path().string() + ": " + file->fallback_reason();
      }
    }
    return {};
  }

  double sample(const ReadSetting& setting, ReadPattern pattern) {
    const Files& files = setting.direct ? direct_ : buffered_;
    if (!setting.direct) {
      for (const auto& file : files) {
        file->drop_cached();
      }
    }
    const BandwidthSample taken = Sampler(files, places_, options_.expert_bytes)
                                      .run(setting, pattern, options_.sample_seconds);
    report_.samples.push_back(taken);
    return taken.bytes_per_second();
  }

  void measure_grid(bool direct) {
    for (const bool way : {true, false}) {
      const bool wanted = way ? direct : options_.buffered || !direct;
      if (!wanted) {
        continue;
      }
      for (const std::size_t request : options_.request_bytes) {
        for (const std::size_t readers : options_.readers) {
          sample({readers, request, way}, ReadPattern::kMix);
        }
      }
    }
  }

  // Readers at the middle request size, then request sizes with the best of these, then the page
  // cache in the same way.
  void measure_in_steps(bool direct) {
    const std::size_t middle = options_.request_bytes[options_.request_bytes.size() / 2];
    for (const std::size_t readers : options_.readers) {
      sample({readers, middle, direct}, ReadPattern::kMix);
    }
    const std::size_t readers = best_setting(report_.samples).readers;
    for (const std::size_t request : options_.request_bytes) {
      if (request != middle) {
        sample({readers, request, direct}, ReadPattern::kMix);
      }
    }
    if (direct && options_.buffered) {
      ReadSetting other = best_setting(report_.samples);
      other.direct = false;
      sample(other, ReadPattern::kMix);
    }
  }

  const BandwidthOptions& options_;
  Files direct_;
  Files buffered_;
  Places places_;
  BandwidthReport report_;
};

}  // namespace

std::string pattern_name(ReadPattern pattern) {
  switch (pattern) {
    case ReadPattern::kTape:
      return "tape";
    case ReadPattern::kExperts:
      return "experts";
    case ReadPattern::kMix:
      break;
  }
  return "mix";
}

ReadSetting best_setting(std::span<const BandwidthSample> samples) {
  double fastest = 0.0;
  for (const BandwidthSample& sample : samples) {
    if (sample.pattern == ReadPattern::kMix) {
      fastest = std::max(fastest, sample.bytes_per_second());
    }
  }
  const auto cost = [](const ReadSetting& setting) {
    return std::tuple(setting.readers, setting.request_bytes, !setting.direct);
  };
  const ReadSetting* best = nullptr;
  for (const BandwidthSample& sample : samples) {
    if (sample.pattern == ReadPattern::kMix &&
        sample.bytes_per_second() >= (1.0 - kNoise) * fastest &&
        (best == nullptr || cost(sample.setting) < cost(*best))) {
      best = &sample.setting;
    }
  }
  if (best == nullptr) {
    throw std::invalid_argument("no sample of the mix to choose from");
  }
  return *best;
}

BandwidthReport measure_bandwidth(io::FileSystem& file_system,
                                  std::span<const std::filesystem::path> files,
                                  const BandwidthOptions& options) {
  return Measurement(file_system, files, options).run();
}

}  // namespace k3::runtime
