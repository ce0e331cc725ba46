#include "trunk_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>
#include <system_error>
#include <utility>

#include "k3/errors.h"

#include "io/file.h"
#include "io/trunk_manifest.h"

namespace k3::tools {
namespace {

constexpr std::string_view kJournalHead = "k3-pack 1 ";
constexpr std::uint64_t kMaxJournalBytes = std::uint64_t{1} << 20U;
constexpr std::size_t kChecksumDigits = 32;

std::filesystem::path journal_path(const std::filesystem::path& directory) {
  return directory / "trunk.journal.partial";
}

std::filesystem::path manifest_path(const std::filesystem::path& directory) {
  return directory / io::kTrunkManifestName;
}

std::filesystem::path data_path(const std::filesystem::path& directory) {
  return directory / io::kTrunkDataName;
}

std::filesystem::path partial_manifest(const std::filesystem::path& directory) {
  return manifest_path(directory).concat(".partial");
}

// Also a link that leads nowhere.
bool is_there(const std::filesystem::path& path) {
  struct stat facts = {};
  return ::lstat(path.c_str(), &facts) == 0;
}

void remove_if_there(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    fail_with_errno(path, "cannot be removed");
  }
}

std::string journal_head(const std::string& fingerprint) {
  return std::string(kJournalHead) + fingerprint;
}

std::string journal_line(std::size_t layer, const std::string& checksum) {
  return std::to_string(layer) + " " + checksum + "\n";
}

}  // namespace

TrunkStore::TrunkStore(std::filesystem::path directory) : directory_(std::move(directory)) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error && !std::filesystem::is_directory(directory_)) {
    throw Error(
        ErrorKind::kUserFile,
        directory_.string() + ": no such directory, and it cannot be made: " + error.message());
  }
  lock_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) {
    fail_with_errno(directory_, "cannot be opened");
  }
  // Some network file systems lock no directory: then nobody keeps two of us apart.
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(lock_);
    throw Error(ErrorKind::kUserFile, directory_.string() + ": another k3-pack is writing here");
  }
}

TrunkStore::~TrunkStore() {
  if (journal_ >= 0) {
    ::close(journal_);
  }
  ::close(lock_);
}

std::filesystem::path TrunkStore::partial_path() const {
  return data_path(directory_).concat(".partial");
}

bool TrunkStore::has_manifest() const {
  return is_there(manifest_path(directory_));
}

bool TrunkStore::has_foreign_data(const std::string& fingerprint) const {
  return is_there(data_path(directory_)) && !read_journal(fingerprint).has_value();
}

// Nothing without a journal of this plan. A line that is cut off, and all after it, does not count.
std::optional<std::map<std::size_t, std::string>> TrunkStore::read_journal(
    const std::string& fingerprint) const {
  std::string text;
  try {
    text = io::read_whole(io::posix_file_system(), journal_path(directory_), kMaxJournalBytes,
                          ErrorKind::kIo);
  } catch (const Error&) {
    return std::nullopt;
  }
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  std::string line;
  if (!std::getline(lines, line) || line != journal_head(fingerprint)) {
    return std::nullopt;
  }
  std::map<std::size_t, std::string> finished;
  std::size_t layer = 0;
  std::string checksum;
  while (lines >> layer >> checksum && checksum.size() == kChecksumDigits) {
    finished[layer] = checksum;
  }
  return finished;
}

std::map<std::size_t, std::string> TrunkStore::find_partial(const std::string& fingerprint) {
  const auto journal = read_journal(fingerprint);
  if (journal.has_value() && !is_there(partial_path()) && !has_manifest() &&
      is_there(data_path(directory_))) {
    // Stopped between the two renames of commit().
    rename_synced(data_path(directory_), partial_path());
  }
  if (journal.has_value() && is_there(partial_path())) {
    return *journal;
  }
  remove_leftovers();
  return {};
}

std::uint64_t TrunkStore::occupied() const {
  struct stat facts = {};
  return ::lstat(partial_path().c_str(), &facts) == 0
             ? static_cast<std::uint64_t>(facts.st_blocks) * 512U
             : 0;
}

void TrunkStore::begin(const std::string& fingerprint,
                       const std::map<std::size_t, std::string>& finished,
                       std::uint64_t bytes) {
  // The journal first: a partial file without one is of no use.
  std::string text = journal_head(fingerprint) + "\n";
  for (const auto& [layer, checksum] : finished) {
    text += journal_line(layer, checksum);
  }
  const std::filesystem::path path = journal_path(directory_);
  write_synced(path, text);
  journal_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
  if (journal_ < 0) {
    fail_with_errno(path, "cannot be written");
  }
  data_.emplace(partial_path());
  data_->reserve(bytes);
}

// The data need not be on the device yet: who takes the partial file up verifies them.
void TrunkStore::note(std::size_t layer, const std::string& checksum) {
  const std::string line = journal_line(layer, checksum);
  if (::write(journal_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    fail_with_errno(journal_path(directory_), "cannot be written");
  }
}

void TrunkStore::commit(const std::string& manifest) {
  data_->sync();
  write_synced(partial_manifest(directory_), manifest);
  remove_if_there(manifest_path(directory_));
  sync_directory(directory_);
  rename_synced(partial_path(), data_path(directory_));
  rename_synced(partial_manifest(directory_), manifest_path(directory_));
  remove_if_there(journal_path(directory_));
}

void TrunkStore::remove_leftovers() {
  remove_if_there(partial_path());
  remove_if_there(partial_manifest(directory_));
  remove_if_there(journal_path(directory_));
}

}  // namespace k3::tools
