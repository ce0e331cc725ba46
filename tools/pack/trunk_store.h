// The directory of a packed trunk while it is written.
//
//   trunk.bin.partial     the runs, as far as they are copied; renamed to trunk.bin
//   trunk.journal.partial what the partial file is of, and a line with the checksum of each finished
//                         run: "k3-pack 1 <fingerprint>", then "<layer> <xxh128>"
//   trunk.json.partial    the manifest; renamed to trunk.json
//
// trunk.json is removed before trunk.bin is replaced and appears last, when the device has everything
// else. So whatever stops the process, a directory with a trunk.json holds one whole trunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "output_file.h"

namespace k3::tools {

class TrunkStore {
 public:
  // Makes the directory where it is missing and locks it against another k3-pack until destroyed.
  // Throws k3::Error(kUserFile) for what is no directory or locked, k3::Error(kIo) for one that
  // cannot be made.
  explicit TrunkStore(std::filesystem::path directory);
  ~TrunkStore();
  TrunkStore(const TrunkStore&) = delete;
  TrunkStore& operator=(const TrunkStore&) = delete;
  TrunkStore(TrunkStore&&) = delete;
  TrunkStore& operator=(TrunkStore&&) = delete;

  [[nodiscard]] bool has_manifest() const;

  // trunk.bin without trunk.json is there and no journal says that it is an unfinished trunk of this
  // plan.
  [[nodiscard]] bool has_foreign_data(const std::string& fingerprint) const;

  // Takes up the partial file of an earlier run of the same plan: [layer] checksum of its finished
  // runs, which nobody has verified. Other leftovers are removed.
  [[nodiscard]] std::map<std::size_t, std::string> find_partial(const std::string& fingerprint);

  // Bytes of disk that the partial file occupies.
  [[nodiscard]] std::uint64_t occupied() const;

  // Opens the partial file, `bytes` long, with room on the disk, and a journal of `finished`.
  void begin(const std::string& fingerprint,
             const std::map<std::size_t, std::string>& finished,
             std::uint64_t bytes);

  [[nodiscard]] OutputFile& data() { return *data_; }

  [[nodiscard]] std::filesystem::path partial_path() const;

  // Notes a finished run.
  void note(std::size_t layer, const std::string& checksum);

  // Makes trunk.bin and trunk.json of the partial file and `manifest`.
  void commit(const std::string& manifest);

  // Removes what an interruption has left besides a whole trunk.
  void remove_leftovers();

 private:
  [[nodiscard]] std::optional<std::map<std::size_t, std::string>> read_journal(
      const std::string& fingerprint) const;

  std::filesystem::path directory_;
  int lock_ = -1;
  std::optional<OutputFile> data_;
  int journal_ = -1;
};

}  // namespace k3::tools
