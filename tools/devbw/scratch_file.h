// A file of random bytes without a name: it is gone when the process is, however that ends.
#pragma once

#include <cstdint>
#include <filesystem>

namespace k3::tools {

class ScratchFile {
 public:
  // Writes `bytes` bytes into a file in `directory` and waits until the device has them. Throws
  // k3::Error(kUsage) when the directory is none or has too little space (a tenth of the disk or
  // 1 GB, whichever is less, stays free), k3::Error(kIo) when a write fails.
  ScratchFile(const std::filesystem::path& directory, std::uint64_t bytes);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ScratchFile(ScratchFile&&) = delete;
  ScratchFile& operator=(ScratchFile&&) = delete;

  // By which this process opens it.
  [[nodiscard]] std::filesystem::path path() const;

 private:
  int descriptor_ = -1;
};

}  // namespace k3::tools
