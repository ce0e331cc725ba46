// The file of a saved session, as docs/formats.md describes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3/atomic_file.h"
#include "k3/config.h"

#include "base/checksum.h"
#include "io/file.h"
#include "model/sequence_state.h"

namespace k3::runtime {

// Magic, version, layers, fingerprint, number of ids, position, size of the file.
inline constexpr std::size_t kSessionPreambleBytes = 56;

inline constexpr std::uint32_t kSessionVersion = 1;

// What stands before the states.
struct SessionHeader {
  std::uint32_t layers = 0;
  ChecksumBytes fingerprint = {};
  std::size_t position = 0;       // at most ids.size()
  std::uint64_t file_bytes = 0;   // of the whole file
  std::vector<std::int32_t> ids;  // none is negative
  ChecksumBytes checksum = {};    // of all before it

  [[nodiscard]] std::uint64_t bytes() const;
};

// Bytes of the header that begins with `preamble`, in a file of `file_bytes` bytes, which has as many.
// Throws Error(kUserFile): no saved session, another version, another size than it was saved with.
[[nodiscard]] std::uint64_t session_header_bytes(std::span<const std::byte> preamble,
                                                 std::uint64_t file_bytes,
                                                 const std::string& where);

// The whole header: session_header_bytes() bytes. Throws Error(kUserFile) the same way, and when the
// checksum is another.
[[nodiscard]] SessionHeader parse_session_header(std::span<const std::byte> header,
                                                 std::uint64_t file_bytes,
                                                 const std::string& where);

// Writes and commits a sequence that is not torn and has seen at most `ids`, layer by layer. Throws
// Error(kIo).
void write_session(const ModelConfig& config,
                   const ChecksumBytes& fingerprint,
                   model::SequenceState& sequence,
                   std::span<const std::int32_t> ids,
                   AtomicFile& file);

class SessionReader {
 public:
  // Reads the header. Throws Error(kUserFile).
  SessionReader(io::FileSystem& file_system,
                const std::filesystem::path& path,
                const std::string& where);

  [[nodiscard]] const SessionHeader& header() const { return header_; }

  // Throws Error(kUserFile) unless the file was saved with this model and has the size that config and
  // position demand.
  void check(const ModelConfig& config, const ChecksumBytes& fingerprint) const;

  // After check(): reads the states into a new sequence, layer by layer. Throws Error(kUserFile) for a
  // damaged layer, Error(kMemory).
  void read_states(const ModelConfig& config, model::SequenceState& sequence) const;

 private:
  std::string where_;
  std::unique_ptr<io::File> file_;
  SessionHeader header_;
};

}  // namespace k3::runtime
