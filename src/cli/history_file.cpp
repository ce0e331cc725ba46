#include "cli/history_file.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "k3/atomic_file.h"
#include "k3/errors.h"

namespace k3::cli {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path,
                         const char* what,
                         const char* expected,
                         std::string found) {
  refuse_user_file("--history " + path.string(), what, expected, std::move(found));
}

// The whole file; nothing when there is none.
std::string read_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return {};
  }
  if (status.type() != std::filesystem::file_type::regular) {
    refuse(path, "cannot be read", "a regular file",
           error ? error.message() : "another kind of file");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    refuse(path, "cannot be read", "", std::generic_category().message(errno));
  }
  return text;
}

}  // namespace

HistoryFile::HistoryFile(std::filesystem::path path)
    : path_(std::move(path)),
      content_(read_file(path_)),
      conversation_(read_chat_history({.text = content_, .name = "--history " + path_.string()})) {}

void HistoryFile::require_writable() const {
  const AtomicFile writable(path_);  // nothing is committed
}

void HistoryFile::append(std::string_view lines) {
  if (read_file(path_) != content_) {
    refuse(path_, "changed since it was read", "the lines of this chat", "others");
  }
  std::string content = content_;
  if (!content.empty() && content.back() != '\n') {
    content += '\n';
  }
  content += lines;
  AtomicFile file(path_);
  file.write(content);
  file.commit();
  content_ = std::move(content);
}

}  // namespace k3::cli
