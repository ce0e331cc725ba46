#include "runtime/weight_files.h"

#include <algorithm>
#include <stdexcept>

namespace k3::runtime {

WeightFiles::WeightFiles(io::FileSystem& file_system,
                         const Checkpoint& checkpoint,
                         const std::optional<std::filesystem::path>& trunk,
                         bool direct)
    : has_trunk_(trunk.has_value()) {
  const io::WindowFileOptions options{.direct = direct};
  sources_.resize(checkpoint.index().shard_count() + (has_trunk_ ? 1 : 0));
  for (std::uint32_t shard = 0; shard < checkpoint.index().shard_count(); ++shard) {
    if (checkpoint.uses_shard(shard)) {
      sources_[shard].file = std::make_unique<io::WindowFile>(
          file_system, checkpoint.index().shard_path(shard), ErrorKind::kIo, options);
    }
  }
  if (has_trunk_) {
    sources_.back().file =
        std::make_unique<io::WindowFile>(file_system, *trunk, ErrorKind::kUserFile, options);
  }
  for (const WeightFile& source : sources_) {
    if (source.file != nullptr) {
      alignment_ = std::max(alignment_, source.file->alignment());
    }
  }
}

void WeightFiles::start_readers(const ReadSettings& settings) {
  settings_ = settings;
  settings_.request_bytes =
      std::max(settings.request_bytes / alignment_, std::size_t{1}) * alignment_;
  pools_ = std::make_unique<ReaderPools>(settings.readers);
  for (WeightFile& source : sources_) {
    if (source.file != nullptr) {
      source.pool = &pools_->pool_of(*source.file);
    }
  }
}

FileRange WeightFiles::range(const WeightFile& source, std::uint64_t offset, std::size_t bytes) {
  if (source.file == nullptr) {
    throw std::logic_error("WeightFiles: the shard holds no bound tensor");
  }
  return {&source, offset, bytes};
}

FileRange WeightFiles::in_shard(std::uint32_t shard,
                                std::uint64_t offset,
                                std::size_t bytes) const {
  return range(sources_.at(shard), offset, bytes);
}

FileRange WeightFiles::in_trunk(std::uint64_t offset, std::size_t bytes) const {
  if (!has_trunk_) {
    throw std::logic_error("WeightFiles: there is no packed trunk");
  }
  return range(sources_.back(), offset, bytes);
}

bool WeightFiles::all_direct() const {
  return std::ranges::all_of(sources_, [](const WeightFile& source) {
    return source.file == nullptr || source.file->direct();
  });
}

std::vector<std::string> WeightFiles::take_notices() {
  std::vector<std::string> notices;
  for (const WeightFile& source : sources_) {
    if (source.file != nullptr) {
      if (std::optional<std::string> notice = source.file->take_fallback_notice()) {
        notices.push_back(std::move(*notice));
      }
    }
  }
  return notices;
}

std::vector<std::filesystem::path> WeightFiles::largest_files(std::size_t count) const {
  std::vector<const io::WindowFile*> files;
  for (const WeightFile& source : sources_) {
    if (source.file != nullptr) {
      files.push_back(source.file.get());
    }
  }
  std::ranges::stable_sort(files, std::ranges::greater(), &io::WindowFile::size);
  files.resize(std::min(count, files.size()));
  std::vector<std::filesystem::path> paths;
  paths.reserve(files.size());
  for (const io::WindowFile* file : files) {
    paths.push_back(file->path());
  }
  return paths;
}

}  // namespace k3::runtime
