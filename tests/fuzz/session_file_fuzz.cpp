// Any bytes as the header of a saved state: refused with Error(kUserFile), or sound. So that the
// fuzzer gets behind size and checksum, both are made right in a second try.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "k3/errors.h"

#include "base/checksum.h"
#include "runtime/session_file.h"

namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kFileBytesAt = 48;

void require(bool holds) {
  if (!holds) {
    std::abort();  // libFuzzer reports the input
  }
}

// Bytes of the header, 0 when it is refused.
std::uint64_t header_bytes(Bytes bytes, std::uint64_t file_bytes) {
  try {
    const std::uint64_t size = k3::runtime::session_header_bytes(
        bytes.first(std::min(bytes.size(), k3::runtime::kSessionPreambleBytes)), file_bytes,
        "fuzz");
    require(size > k3::runtime::kSessionPreambleBytes && size <= file_bytes);
    return size;
  } catch (const k3::Error& error) {
    require(error.kind() == k3::ErrorKind::kUserFile);
    return 0;
  }
}

void parse(Bytes header, std::uint64_t file_bytes) {
  try {
    const k3::runtime::SessionHeader parsed =
        k3::runtime::parse_session_header(header, file_bytes, "fuzz");
    require(parsed.bytes() == header.size() && parsed.file_bytes == file_bytes);
    require(parsed.position <= parsed.ids.size());
    require(
        std::all_of(parsed.ids.begin(), parsed.ids.end(), [](std::int32_t id) { return id >= 0; }));
  } catch (const k3::Error& error) {
    require(error.kind() == k3::ErrorKind::kUserFile);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes = std::as_bytes(std::span(data, size));
  parse(bytes, size);
  if (size < k3::runtime::kSessionPreambleBytes) {
    return 0;
  }
  std::uint64_t file_bytes = 0;
  std::memcpy(&file_bytes, data + kFileBytesAt, sizeof(file_bytes));
  const std::uint64_t header = header_bytes(bytes, file_bytes);
  if (header == 0 || header > size) {
    return 0;
  }
  std::vector<std::byte> whole(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  const std::size_t covered = whole.size() - sizeof(k3::ChecksumBytes);
  const k3::ChecksumBytes checksum = k3::checksum_of(Bytes(whole).first(covered));
  std::copy(checksum.begin(), checksum.end(), whole.begin() + static_cast<std::ptrdiff_t>(covered));
  parse(whole, file_bytes);
  return 0;
}
