#include "k3/errors.h"

#include <utility>

namespace k3 {
namespace {

std::string compose(const ErrorDetail& detail) {
  std::string text = detail.where;
  const auto append = [&text](std::string_view separator, const std::string& part) {
    if (part.empty()) {
      return;
    }
    if (!text.empty()) {
      text += separator;
    }
    text += part;
  };
  append(": ", detail.what);
  if (!detail.expected.empty()) {
    append(": ", "expected " + detail.expected);
  }
  if (!detail.found.empty()) {
    append(detail.expected.empty() ? ": " : ", ", "found " + detail.found);
  }
  return text;
}

}  // namespace

int exit_status(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kConfig:
    case ErrorKind::kUserFile:
      return 2;
    case ErrorKind::kExpertIo:
      return 4;
    case ErrorKind::kInterrupted:
      return 130;
    case ErrorKind::kCheckpoint:
    case ErrorKind::kIo:
    case ErrorKind::kNonFinite:
    case ErrorKind::kMemory:
      return 1;
  }
  return 1;
}

Error::Error(ErrorKind kind, const ErrorDetail& detail)
    : std::runtime_error(compose(detail)), kind_(kind) {}

Error::Error(ErrorKind kind, const std::string& message)
    : std::runtime_error(message), kind_(kind) {}

void refuse_user_file(const std::string& where,
                      std::string what,
                      std::string expected,
                      std::string found) {
  throw Error(ErrorKind::kUserFile, {.what = std::move(what),
                                     .where = where,
                                     .expected = std::move(expected),
                                     .found = std::move(found)});
}

}  // namespace k3
