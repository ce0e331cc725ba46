// One safetensors file: its header, parsed and checked against the file's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "io/file.h"

namespace k3::io {

// The format's own limit for a header (huggingface/safetensors, MAX_HEADER_SIZE).
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// A tensor of one header. Views stay valid until the reader parses again.
struct HeaderTensor {
  std::string_view name;        // decoded
  std::string_view dtype_text;  // as written
  DType dtype = DType::kOther;
  std::span<const std::uint64_t> shape;
  std::uint64_t offset = 0;  // of the first byte, from the start of the file
  std::uint64_t nbytes = 0;
};

// Parses headers one after the other, reusing its buffers.
//
// A header is refused as a whole, with Error(kCheckpoint) naming file, tensor, expected and found,
// when anything in it is wrong: the file is empty, a Git LFS pointer or shorter than a tensor's
// end; the header's length or JSON is invalid; a name stands twice; offsets are not two whole
// numbers in order, overlap another tensor's or contradict shape times type. Of an unknown type
// only the offsets are known, so only they are checked. "__metadata__" is skipped; unknown keys of
// an entry, gaps between tensors and bytes after the last one are fine.
class SafetensorsHeader {
 public:
  SafetensorsHeader();
  ~SafetensorsHeader();
  SafetensorsHeader(const SafetensorsHeader&) = delete;
  SafetensorsHeader& operator=(const SafetensorsHeader&) = delete;
  SafetensorsHeader(SafetensorsHeader&&) = delete;
  SafetensorsHeader& operator=(SafetensorsHeader&&) = delete;

  // The tensors of an open file, in header order.
  [[nodiscard]] std::span<const HeaderTensor> read(File& file);

  // The same for a file of `file_bytes` whose header (after the length) is `json`.
  [[nodiscard]] std::span<const HeaderTensor> parse(std::string_view json,
                                                    std::uint64_t file_bytes,
                                                    std::string_view where);

 private:
  class Parser;

  std::unique_ptr<Parser> parser_;
};

}  // namespace k3::io
