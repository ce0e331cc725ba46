#include "runtime/session_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "k3/errors.h"
#include "k3/session_file.h"

namespace k3::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr std::string_view kMagic = "k3 state";

// Offsets in the preamble.
constexpr std::size_t kVersionAt = 8;       // uint32
constexpr std::size_t kLayersAt = 12;       // uint32
constexpr std::size_t kFingerprintAt = 16;  // 16 bytes
constexpr std::size_t kIdCountAt = 32;      // uint64
constexpr std::size_t kPositionAt = 40;     // uint64
constexpr std::size_t kFileBytesAt = 48;    // uint64

constexpr std::size_t kChecksumBytes = sizeof(ChecksumBytes);

template <typename T>
T value_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value = {};
  std::memcpy(&value, bytes.subspan(offset, sizeof(T)).data(), sizeof(T));
  return value;
}

template <typename T>
void put(std::span<std::byte> bytes, std::size_t offset, const T& value) {
  std::memcpy(bytes.subspan(offset, sizeof(T)).data(), &value, sizeof(T));
}

std::string bytes_text(std::uint64_t bytes) {
  return std::to_string(bytes) + " bytes";
}

// Of a file that holds `header_bytes` and the states of so many positions; nothing beyond 2^64.
std::uint64_t expected_bytes(const ModelConfig& config,
                             std::uint64_t header_bytes,
                             std::uint64_t positions) {
  std::uint64_t total = header_bytes;
  const std::uint64_t most = UINT64_MAX / (sizeof(float) * config.latent_width());
  if (positions > most) {
    return UINT64_MAX;
  }
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::uint64_t section =
        model::SequenceState::layer_bytes(config, layer, positions) + kChecksumBytes;
    if (section > UINT64_MAX - total) {
      return UINT64_MAX;
    }
    total += section;
  }
  return total;
}

std::uint64_t header_bytes_of(std::uint64_t ids) {
  return kSessionPreambleBytes + ids * sizeof(std::int32_t) + kChecksumBytes;
}

}  // namespace

std::uint64_t SessionHeader::bytes() const {
  return header_bytes_of(ids.size());
}

std::uint64_t session_header_bytes(std::span<const std::byte> preamble,
                                   std::uint64_t file_bytes,
                                   const std::string& where) {
  if (preamble.size() < kSessionPreambleBytes || file_bytes < header_bytes_of(0)) {
    refuse_user_file(where, "truncated, or no saved state",
                     "at least " + bytes_text(header_bytes_of(0)), bytes_text(file_bytes));
  }
  if (std::memcmp(preamble.data(), kMagic.data(), kMagic.size()) != 0) {
    refuse_user_file(where, "it is no saved state", "\"" + std::string(kMagic) + "\" at its begin",
                     "other bytes");
  }
  const auto version = value_at<std::uint32_t>(preamble, kVersionAt);
  if (version != kSessionVersion) {
    refuse_user_file(where, "saved in another version of the format",
                     std::to_string(kSessionVersion), std::to_string(version));
  }
  const auto saved_bytes = value_at<std::uint64_t>(preamble, kFileBytesAt);
  if (saved_bytes != file_bytes) {
    refuse_user_file(
        where, file_bytes < saved_bytes ? "truncated" : "longer than it was when it was saved",
        bytes_text(saved_bytes), bytes_text(file_bytes));
  }
  const auto ids = value_at<std::uint64_t>(preamble, kIdCountAt);
  const std::uint64_t most = (file_bytes - header_bytes_of(0)) / sizeof(std::int32_t);
  if (ids > most) {
    refuse_user_file(where, "damaged: more ids than the file has room for",
                     "at most " + std::to_string(most), std::to_string(ids));
  }
  return header_bytes_of(ids);
}

SessionHeader parse_session_header(std::span<const std::byte> header,
                                   std::uint64_t file_bytes,
                                   const std::string& where) {
  const std::uint64_t size = session_header_bytes(
      header.first(std::min(header.size(), kSessionPreambleBytes)), file_bytes, where);
  if (header.size() != size) {
    refuse_user_file(where, "truncated within its ids", bytes_text(size),
                     bytes_text(header.size()));
  }
  SessionHeader parsed;
  const std::size_t covered = header.size() - kChecksumBytes;
  parsed.checksum = value_at<ChecksumBytes>(header, covered);
  const ChecksumBytes found = checksum_of(header.first(covered));
  if (found != parsed.checksum) {
    refuse_user_file(where, "damaged: the checksum of its header is another",
                     checksum_text(parsed.checksum), checksum_text(found));
  }
  parsed.layers = value_at<std::uint32_t>(header, kLayersAt);
  parsed.fingerprint = value_at<ChecksumBytes>(header, kFingerprintAt);
  parsed.file_bytes = value_at<std::uint64_t>(header, kFileBytesAt);
  parsed.ids.resize(static_cast<std::size_t>(value_at<std::uint64_t>(header, kIdCountAt)));
  if (!parsed.ids.empty()) {
    std::memcpy(parsed.ids.data(), header.data() + kSessionPreambleBytes,
                parsed.ids.size() * sizeof(std::int32_t));
  }
  const auto position = value_at<std::uint64_t>(header, kPositionAt);
  if (position > parsed.ids.size()) {
    refuse_user_file(where, "its position is behind its ids",
                     "at most " + std::to_string(parsed.ids.size()), std::to_string(position));
  }
  parsed.position = static_cast<std::size_t>(position);
  const auto negative = std::ranges::find_if(parsed.ids, [](std::int32_t id) { return id < 0; });
  if (negative != parsed.ids.end()) {
    refuse_user_file(where, "a token id is negative", "0 or more", std::to_string(*negative));
  }
  return parsed;
}

void write_session(const ModelConfig& config,
                   const ChecksumBytes& fingerprint,
                   model::SequenceState& sequence,
                   std::span<const std::int32_t> ids,
                   AtomicFile& file) {
  const std::size_t position = sequence.position();
  std::array<std::byte, kSessionPreambleBytes> preamble = {};
  std::memcpy(preamble.data(), kMagic.data(), kMagic.size());
  put(preamble, kVersionAt, kSessionVersion);
  put(preamble, kLayersAt, static_cast<std::uint32_t>(config.num_hidden_layers));
  put(preamble, kFingerprintAt, fingerprint);
  put(preamble, kIdCountAt, std::uint64_t{ids.size()});
  put(preamble, kPositionAt, std::uint64_t{position});
  put(preamble, kFileBytesAt, expected_bytes(config, header_bytes_of(ids.size()), position));

  Checksum checksum;
  const auto write = [&](std::span<const std::byte> bytes) {
    file.write(bytes);
    checksum.add(bytes);
  };
  // Ends a part of the file; its checksum is the first that the next one covers.
  const auto end_part = [&] {
    const ChecksumBytes sum = checksum.take();
    write(sum);
  };
  write(preamble);
  write(std::as_bytes(ids));
  end_part();
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    sequence.visit_layer(layer, position,
                         [&](std::span<const float> part) { write(std::as_bytes(part)); });
    end_part();
  }
  file.commit();
}

SessionReader::SessionReader(io::FileSystem& file_system,
                             const std::filesystem::path& path,
                             const std::string& where)
    : where_(where) {
  io::OpenResult opened = file_system.open(path, io::Caching::kBuffered);
  if (opened.file == nullptr) {
    refuse_user_file(where, "cannot be read", "", io::errno_text(opened.error));
  }
  file_ = std::move(opened.file);
  const std::uint64_t size = file_->size();
  std::vector<std::byte> bytes(std::min<std::uint64_t>(size, kSessionPreambleBytes));
  io::read_exact(*file_, 0, bytes, ErrorKind::kUserFile);
  const std::uint64_t header_bytes = session_header_bytes(bytes, size, where);
  try {
    bytes.resize(static_cast<std::size_t>(header_bytes));
    io::read_exact(*file_, 0, bytes, ErrorKind::kUserFile);
    header_ = parse_session_header(bytes, size, where);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::kMemory, {.what = "its ids do not fit into memory",
                                     .where = where,
                                     .found = bytes_text(header_bytes)});
  }
}

void SessionReader::check(const ModelConfig& config, const ChecksumBytes& fingerprint) const {
  if (header_.layers != config.num_hidden_layers) {
    refuse_user_file(where_, "saved with another model (layers)",
                     std::to_string(config.num_hidden_layers), std::to_string(header_.layers));
  }
  if (header_.fingerprint != fingerprint) {
    refuse_user_file(where_, "saved with another model (fingerprint of config and checkpoint)",
                     checksum_text(fingerprint), checksum_text(header_.fingerprint));
  }
  const std::uint64_t expected = expected_bytes(config, header_.bytes(), header_.position);
  if (header_.file_bytes != expected) {
    refuse_user_file(where_, "its size is not that of its states", bytes_text(expected),
                     bytes_text(header_.file_bytes));
  }
}

void SessionReader::read_states(const ModelConfig& config, model::SequenceState& sequence) const {
  std::uint64_t offset = header_.bytes();
  ChecksumBytes before = header_.checksum;
  Checksum checksum;
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    checksum.add(before);
    sequence.visit_layer(layer, header_.position, [&](std::span<float> part) {
      const std::span<std::byte> bytes = std::as_writable_bytes(part);
      io::read_exact(*file_, offset, bytes, ErrorKind::kUserFile);
      checksum.add(bytes);
      offset += bytes.size();
    });
    io::read_exact(*file_, offset, before, ErrorKind::kUserFile);
    offset += before.size();
    const ChecksumBytes found = checksum.take();
    if (found != before) {
      refuse_user_file(where_,
                       "damaged: the checksum of layer " + std::to_string(layer) + " is another",
                       checksum_text(before), checksum_text(found));
    }
  }
  sequence.resume(header_.position);
}

}  // namespace k3::runtime

namespace k3 {

SavedSession::SavedSession(const std::filesystem::path& path, const std::string& where)
    : reader_(std::make_unique<runtime::SessionReader>(io::posix_file_system(), path, where)) {}

SavedSession::SavedSession(SavedSession&&) noexcept = default;
SavedSession& SavedSession::operator=(SavedSession&&) noexcept = default;
SavedSession::~SavedSession() = default;

std::span<const std::int32_t> SavedSession::ids() const {
  return reader_->header().ids;
}

std::size_t SavedSession::position() const {
  return reader_->header().position;
}

}  // namespace k3
